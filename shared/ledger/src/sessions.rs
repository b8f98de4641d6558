//! A session as its creator described it: what no rule depends on, kept apart from the head so that a commit does not
//! pay for it.

use keel_kernel::{DedupeKey, Head, Millis, SessionId, StateOwner, caps};
use serde::{Deserialize, Serialize};

/// The descriptive row of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// The session.
    pub session_id: SessionId,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The model that answers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Whatever its creator wants to keep with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Whose loop answers it.
    pub state_owner: StateOwner,
    /// External: which backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// External: the backend's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_ref: Option<String>,
    /// The plugins whose tools it may use; absent: all of the tenant's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugins: Option<Vec<String>>,
    /// Of a child: whose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_of: Option<ChildOf>,
    /// Attempts that each run may spend.
    pub max_attempts: u32,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// +1 at every change of this row: its ETag.
    pub revision: u64,
    /// SHA-256 of what it was created from: the same session id with the same body is the same call again.
    pub digest: String,
}

/// Where a child session comes from (H4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildOf {
    /// The session whose run it works for.
    pub parent: SessionId,
    /// The session at the top.
    pub root: SessionId,
    /// The parent's call that it answers.
    pub tool_call_id: DedupeKey,
    /// How far from the top: 1 for a child of a session that is none.
    pub depth: u32,
}

impl Meta {
    /// A native session without a description.
    pub fn native(session_id: SessionId, created: Millis) -> Meta {
        Meta {
            session_id,
            title: None,
            model: None,
            system: None,
            metadata: None,
            state_owner: StateOwner::Native,
            backend: None,
            external_ref: None,
            plugins: None,
            child_of: None,
            max_attempts: caps::ATTEMPTS_DEFAULT,
            created_ms: created.0,
            revision: 1,
            digest: String::new(),
        }
    }

    /// When it was created.
    pub fn created(&self) -> Millis {
        Millis(self.created_ms)
    }
}

/// A session: its description and its head.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Its description.
    pub meta: Meta,
    /// Its head.
    pub head: Head,
}

/// How a creation ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Created {
    /// It is new.
    Now(Session),
    /// The session id is taken, by this session.
    Before(Session),
}

/// How a change of the description ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Patched {
    /// Written.
    Now(Meta),
    /// The row has another revision by now.
    Stale(u64),
}

/// A page of a tenant's sessions, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionPage {
    /// The sessions.
    pub sessions: Vec<Session>,
    /// Where the next page begins: the sort key of the last row looked at. `None`: there is none.
    pub next: Option<String>,
}

/// An API key's row. The secret itself is nowhere: only its hash is.
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
