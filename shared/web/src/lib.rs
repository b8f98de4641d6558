//! What the HTTP functions share: problem details with stable codes, credentials, request ids, strict bodies.
//!
//! A handler extracts, makes one call, renders. Everything it might get wrong the same way as another stands here once. A
//! client's mistake is answered with its place; what a 5xx was caused by is in the log alone.
//!
//! ```
//! use axum::response::IntoResponse as _;
//! use http::{StatusCode, header};
//! use keel_kernel::Refusal;
//! use keel_web::{Code, Problem};
//!
//! // What the kernel refuses is one row of the error table.
//! let problem = Problem::from(Refusal::SessionClosed);
//! assert_eq!(problem.code(), Code::SessionClosed);
//! let response = problem.into_response();
//! assert_eq!(response.status(), StatusCode::CONFLICT);
//! assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
//!
//! // V6: a member that does not read names its place.
//! assert_eq!(Problem::member("/delivery", "must be queue or guide").code(), Code::InvalidPayload);
//! ```
//!
//! | to know | read |
//! |---|---|
//! | what every function wears on the outside | [`service`] |
//! | who calls, and what they may | [`auth`] |
//! | how bodies, paths, queries and headers are read | [`body`], [`params`], [`cursor`] |
//! | every error that a client can meet | [`error`] |
//! | how a decision is shown | [`decision`] |
//! | ids, traces, logs and what is counted | [`request`], [`telemetry`] |

pub mod auth;
pub mod body;
pub mod cursor;
pub mod decision;
pub mod error;
pub mod params;
pub mod request;
pub mod revision;
pub mod service;
pub mod telemetry;

pub use auth::{Auth, Caller, Scope};
pub use body::Body;
pub use error::{Code, Problem};
