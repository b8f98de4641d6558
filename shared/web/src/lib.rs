//! What the HTTP functions share: problem details with stable codes, credentials, request ids, strict bodies.
//!
//! A handler extracts, makes one call, renders. Everything it might get wrong the same way as another stands here once.

pub mod auth;
pub mod body;
pub mod cursor;
pub mod decision;
pub mod error;
pub mod params;
pub mod request;
pub mod service;
pub mod telemetry;

pub use auth::{Auth, Caller, Scope};
pub use body::Body;
pub use error::{Code, Problem};
