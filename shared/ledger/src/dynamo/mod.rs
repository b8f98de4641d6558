//! The ledger in DynamoDB: three tables, whose definitions stand in `infra/tables.json`.

pub mod items;
pub mod keys;
mod partials;
mod reads;
mod row;
mod rows;
mod settings;
mod store;
mod transact;
mod waits;

use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;

pub use partials::PartialChunk;
pub use rows::{DuePage, DuePlace};

use crate::meter::Meter;

/// The names of the tables.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The ledger and its dedupe keys.
    pub events: String,
    /// Heads, sessions, API keys.
    pub state: String,
    /// Token frames on their way to streams.
    pub partials: String,
}

impl Tables {
    /// Tables that share a prefix: `{prefix}events` …
    pub fn with_prefix(prefix: &str) -> Self {
        let name = |table: &str| format!("{prefix}{table}");
        Self { events: name("events"), state: name("state"), partials: name("partials") }
    }
}

/// The store over DynamoDB.
#[derive(Clone, Debug)]
pub struct Dynamo {
    client: Client,
    /// The same, for calls that may be carried out twice.
    retrying_client: Client,
    tables: Tables,
    meter: Arc<Meter>,
}

impl Dynamo {
    /// A store over these tables. The client must not retry by itself: the machine is the only retry loop.
    pub fn new(client: Client, tables: Tables) -> Self {
        Self { retrying_client: client.clone(), client, tables, meter: Arc::default() }
    }

    /// Lets the SDK try calls again that may be carried out twice. Where any other failed, the machine must see it.
    #[must_use]
    pub fn retrying(self, retries: RetryConfig) -> Self {
        let retrying_client =
            Client::from_conf(self.client.config().to_builder().retry_config(retries).build());
        Self { retrying_client, ..self }
    }

    /// What the calls of this store cost.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }
}
