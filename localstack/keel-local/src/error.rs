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
    #[error("an API key could not be written")]
    WriteKey(#[source] StoreError),
    #[error("the due runs could not be looked up")]
    Recover(#[source] LedgerError),
    #[error("the model's configuration cannot be used")]
    Model(#[from] keel_models::BadProviderConfig),
    #[error("the secrets could not be opened")]
    Secrets(#[source] std::io::Error),
    #[error("the client for plugins could not be made")]
    Plugins(#[source] reqwest::Error),
    #[error("the server ended")]
    Serve(#[source] std::io::Error),
}
