//! What belongs to a tenant and to no session: settings, API keys, what was spent in a month; and the tenant's lists of
//! sessions and open decisions, which are only read here.
//!
//! No rule of the kernel depends on these rows. A session's own rows are reached through the [`Ledger`](crate::Ledger)
//! alone.

use keel_kernel::Session;
use serde::{Deserialize, Serialize};

use crate::dynamo::Dynamo;

/// A tenant's rows.
#[derive(Clone, Debug)]
pub struct TenantStore(pub(crate) Dynamo);

impl TenantStore {
    /// The tenants' rows in these tables.
    pub fn new(dynamo: Dynamo) -> Self {
        Self(dynamo)
    }
}

/// A page of a tenant's sessions, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionPage {
    /// The sessions.
    pub sessions: Vec<Session>,
    /// Where the next page begins: the sort key of the last row that was read. `None`: there is no next page.
    pub next: Option<String>,
}

/// An API key's row. The secret itself is not kept, only its hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeyRow {
    /// SHA-256 of the secret, in hex.
    pub hash: String,
    /// What the key may do: `client`, `owner`, `admin`.
    pub scopes: Vec<String>,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
}
