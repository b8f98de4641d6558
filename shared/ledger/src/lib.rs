//! The kernel's decisions, carried out: as DynamoDB transactions, reads, and hints on a queue.
//!
//! [`Ledger`] is what the functions hold. Each of its verbs reads a head, asks the kernel, writes under the decision's
//! guards, and tries again when somebody else was faster; its engine is the only retry loop there is.
//!
//! | to know | read |
//! |---|---|
//! | how a decision becomes a transaction | [`plan`] |
//! | what the items look like | [`dynamo`] |
//! | how a refusal is told from a lost race and from a failure | [`port`] |
//! | how workers and streams hear of news | [`hints`], [`notifier`] |

mod commands;
pub mod dynamo;
pub mod hints;
pub mod memory;
pub mod meter;
pub mod notifier;
pub mod plan;
pub mod port;
pub mod sessions;

pub use commands::{Appended, Claimed, Ledger, LedgerConfig, LedgerError, SettledRun};
pub use port::{SessionKey, Store, StoreError};
