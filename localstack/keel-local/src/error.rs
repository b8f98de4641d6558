//! What can keep Keel from starting.

use keel_embedded::tables;
use keel_ledger::{LedgerError, StoreError};

/// Why Keel did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("the ledger could not be opened")]
    Open(#[from] keel_embedded::OpenError),
    #[error("the tables could not be made")]
    Tables(#[from] tables::TablesError),
    #[error("port {port} could not be opened")]
    Listen { port: u16, source: std::io::Error },
    #[error("{0:?} is not KEY=SCOPES")]
    Key(String),
    #[error("a key could not be written")]
    WriteKey(#[source] StoreError),
    #[error("what was left behind could not be looked for")]
    Recover(#[source] LedgerError),
    #[error("the model could not be chosen")]
    Model(#[from] keel_models::BadProviderConfig),
    #[error("the secrets could not be opened")]
    Secrets(#[source] std::io::Error),
    #[error("the caller of plugins could not be made")]
    Plugins(#[source] reqwest::Error),
    #[error("the server ended")]
    Serve(#[source] std::io::Error),
}
