//! A session as its creator described it, and what a client may change of that.
//!
//! The description is a row of its own beside the head, so that no commit pays for its size.

use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::caps;
use crate::head::{Head, StateOwner};
use crate::ids::{DedupeKey, Millis, SessionId};

/// A session's description: the row beside its head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionDescription {
    /// The session's id.
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
    /// Of an external session: its backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Of an external session: the backend's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_ref: Option<String>,
    /// The plugins whose tools it may use; absent: all of the tenant's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugins: Option<Vec<String>>,
    /// Of a child session: where it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_of: Option<ChildOf>,
    /// Attempts that each run of it may have.
    pub max_attempts: u32,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// 1 when it was created, +1 at every change of this row. Clients see it as the ETag.
    pub revision: u64,
    /// SHA-256 of the body that it was created from, in hex: the same id with the same body is the same creation again
    /// (I8).
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
    /// How many levels below the top: 1 for a child of a session that is itself no child.
    pub depth: u32,
}

impl SessionDescription {
    /// A native session without a description.
    pub fn native(session_id: SessionId, created: Millis) -> SessionDescription {
        SessionDescription {
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

    /// How many levels below the top it is: 0 for a session that is no child.
    pub fn depth(&self) -> u32 {
        self.child_of.as_ref().map_or(0, |of| of.depth)
    }

    /// Whether the same call made both: of the same body, for the same parent's call.
    pub(crate) fn is_of_the_same_call(&self, other: &SessionDescription) -> bool {
        self.digest == other.digest && self.child_of == other.child_of
    }
}

/// A session: its description and its head.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Its description.
    pub description: SessionDescription,
    /// Its head.
    pub head: Head,
}

/// What a client may change of a session. The outer `None`: it stays as it is; the inner one: it goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionPatch {
    /// The title.
    pub title: Option<Option<String>>,
    /// The model.
    pub model: Option<Option<String>>,
    /// The system prompt.
    pub system: Option<Option<String>>,
    /// The metadata.
    pub metadata: Option<Option<serde_json::Map<String, serde_json::Value>>>,
    /// The plugins.
    pub plugins: Option<Option<Vec<String>>>,
    /// H5: the budget.
    pub budget: Option<Budget>,
    /// Change it only at one of these revisions; `None`: at any.
    pub only_at: Option<Vec<u64>>,
}
