//! The kernel's transitions, carried out: as DynamoDB transactions, reads, and hints on a queue.
//!
//! [`Ledger`] is what the functions hold, and the only door to a session's rows. Each of its verbs reads, asks the kernel,
//! writes under the transition's guards, and tries again when somebody else was faster; its engine is the only retry loop
//! there is. [`TenantStore`] is the other half: what belongs to a tenant and to no session.
//!
//! ```
//! use keel_kernel::{Payload, SessionDescription};
//! use keel_ledger::{Ledger, LedgerError, SessionKey};
//!
//! /// Makes a session and commits an input to it.
//! async fn greet(ledger: &Ledger, at: &SessionKey) -> Result<u64, LedgerError> {
//!     let description = SessionDescription::native(at.session.clone(), ledger.env().now());
//!     ledger.create(at, &description, Default::default()).await?;
//!     let payload = Payload::parse(r#"{"text":"hello"}"#)?;
//!     Ok(ledger.input(at, payload, None).await?.events[0].seq.0)
//! }
//! ```
//!
//! | to know | read |
//! |---|---|
//! | what a store must do, and how a refusal is told from a lost race and from a failure | [`port`] |
//! | how a transition becomes a write in plain data | [`plan`] |
//! | what the items and their keys look like | [`items`], [`keys`], [`value`] |
//! | how that is said to DynamoDB, and what it costs | [`dynamo`], [`meter`] |
//! | how workers and streams are told of news | [`hints`], [`notifier`] |
//! | what belongs to a tenant alone | [`tenant`] |

mod commands;
pub mod dynamo;
pub mod hints;
pub mod items;
pub mod keys;
#[cfg(feature = "testing")]
pub mod layer;
#[cfg(feature = "testing")]
pub mod memory;
pub mod meter;
pub mod notifier;
pub mod plan;
pub mod port;
pub mod tenant;
pub mod value;

pub use commands::{Appended, Claimed, Ledger, LedgerConfig, LedgerError, SettledRun};
pub use port::{SessionKey, Store, StoreError};
pub use tenant::TenantStore;
