//! The ledger in DynamoDB: three tables, whose definitions stand in `infra/tables.json`.
//!
//! [`Dynamo`] is the connection. Its rows are reached through the [`Ledger`](crate::Ledger), which takes it as its
//! [`Store`](crate::Store), and through a [`TenantStore`](crate::TenantStore), for what belongs to no session.

mod convert;
mod partials;
mod plan;
mod reads;
mod store;
mod tenant;
mod transact;

use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;

pub use convert::read_item;
pub use plan::transaction;

use crate::meter::Meter;

/// The names of the tables.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The ledger and its dedupe keys.
    pub events: String,
    /// Heads, sessions, API keys.
    pub state: String,
    /// Partials on their way to streams.
    pub partials: String,
}

impl Tables {
    /// Tables that share a prefix: `{prefix}events` …
    pub fn with_prefix(prefix: &str) -> Self {
        let name = |table: &str| format!("{prefix}{table}");
        Self { events: name("events"), state: name("state"), partials: name("partials") }
    }
}

/// The tables in DynamoDB, and what calls of them cost.
#[derive(Clone, Debug)]
pub struct Dynamo {
    client: Client,
    /// The same, for calls that may be carried out twice.
    retrying_client: Client,
    tables: Tables,
    meter: Arc<Meter>,
}

impl Dynamo {
    /// Over these tables. The client must not retry by itself: the ledger's loop is the only one for writes.
    pub fn new(client: Client, tables: Tables) -> Self {
        Self { retrying_client: client.clone(), client, tables, meter: Arc::default() }
    }

    /// Lets the SDK try calls again that may be carried out twice. Where any other failed, the ledger must see it.
    #[must_use]
    pub fn retrying(self, retries: RetryConfig) -> Self {
        let retrying_client =
            Client::from_conf(self.client.config().to_builder().retry_config(retries).build());
        Self { retrying_client, ..self }
    }

    /// What the calls of these tables cost.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }
}
