//! The ledger: the kernel's transitions, carried out as DynamoDB transactions; reads; and hints on a queue.
//!
//! What it promises:
//! - **[`Ledger`] is the only door to a session's rows:** its head, events, dedupe keys, description, decisions, children and
//!   partials. Each of its commands looks, asks the kernel and writes, and where another write came first it decides again.
//!   [`TenantStore`] holds what belongs to no session.
//! - **A transition is written whole or not at all,** and only while its guards hold. So what a command decided on may be
//!   out of date: the write then fails, and nothing else happens.
//! - **Every command may be sent again** after a lost answer (I6). A refusal means that nothing was written.
//! - **Retries are in one place,** `commands/engine.rs`. The SDK tries no write to a session's rows again by itself.
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
//! The modules, in reading order:
//!
//! | module | holds |
//! |---|---|
//! | `commands` | [`Ledger`]: its commands and reads, and the loop that tries again (`commands/engine.rs`) |
//! | [`port`] | what a store must do, and how a write can end |
//! | [`plan`] | a transition's writes in plain data |
//! | [`items`], [`keys`], [`value`] | what the items and their keys look like |
//! | [`dynamo`], [`meter`] | the store in DynamoDB, which renders and sends a plan; what its calls cost |
//! | [`tenant_store`] | what belongs to a tenant and to no session |
//! | [`hints`], [`notifier`] | how workers are told of work, and streams of commits |
//! | `memory`, `layer` | with the feature `testing`: a store in memory, and a store over another one |

mod commands;
pub mod dynamo;
pub mod hints;
pub mod items;
pub mod keys;
#[cfg(feature = "testing")]
pub mod memory;
pub mod meter;
pub mod notifier;
pub mod plan;
pub mod port;
#[cfg(feature = "testing")]
pub mod store_layer;
pub mod tenant_store;
pub mod value;

pub use commands::{Appended, Claimed, Ledger, LedgerConfig, LedgerError, SettledRun};
pub use port::{SessionKey, Store, StoreError};
pub use tenant_store::TenantStore;
