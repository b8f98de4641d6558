//! The ledger in DynamoDB: three tables, which `infra/tables.json` defines.
//!
//! [`Dynamo`] is the connection. A session's rows are reached through the [`Ledger`](crate::Ledger), which takes it as its
//! [`Store`](crate::Store). What belongs to no session is reached through a [`TenantStore`](crate::TenantStore).
//!
//! | module | holds |
//! |---|---|
//! | `store` | the store of the ledger |
//! | `plan`, `transact` | how a plan is rendered and sent, and how its end is read |
//! | `reads` | the reads that others are made of |
//! | `partials`, `tenant` | the partials table; the tenants' rows |
//! | `convert` | plain values as the SDK's, and back |

mod convert;
mod partials;
mod plan;
mod reads;
mod store;
mod tenant_store;
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
    /// Heads, descriptions, decisions, children, settings, API keys.
    pub state: String,
    /// Partials on their way to streams.
    pub partials: String,
}

impl Tables {
    /// Tables that share a prefix: `{prefix}events`, `{prefix}state`, `{prefix}partials`.
    pub fn with_prefix(prefix: &str) -> Self {
        let name = |table: &str| format!("{prefix}{table}");
        Self { events: name("events"), state: name("state"), partials: name("partials") }
    }
}

/// The tables in DynamoDB, and a sum of what calls to them cost.
#[derive(Clone, Debug)]
pub struct Dynamo {
    client: Client,
    /// The same client, which tries again by itself: for calls that may be carried out twice.
    retrying_client: Client,
    tables: Tables,
    meter: Arc<Meter>,
}

impl Dynamo {
    /// A connection to these tables. The client must not try again by itself: for writes the ledger's loop is the only one.
    pub fn new(client: Client, tables: Tables) -> Self {
        Self { retrying_client: client.clone(), client, tables, meter: Arc::default() }
    }

    /// Lets the SDK try again those calls that may be carried out twice. The failure of any other call must reach the
    /// ledger.
    #[must_use]
    pub fn retrying(self, retries: RetryConfig) -> Self {
        let retrying_client =
            Client::from_conf(self.client.config().to_builder().retry_config(retries).build());
        Self { retrying_client, ..self }
    }

    /// What the calls to these tables cost.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }
}
