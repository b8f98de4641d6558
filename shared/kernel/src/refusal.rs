//! The closed list of reasons why a command is refused. A refusal is an answer, not a failure: nothing was written, and
//! it says which rule was broken and where.

use serde::Serialize;

use crate::ids::{Epoch, Seq};
use crate::kind::{KeyName, Kind};

/// A rule's number in `docs/contract.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(pub &'static str);

/// One thing wrong in one place (V6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// A JSON pointer (RFC 6901) into the document that was sent.
    pub pointer: String,
    /// What is wrong there, as a sentence's end: "must be a string".
    pub detail: String,
}

impl Fault {
    /// A fault at a JSON pointer.
    pub fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }

    /// The same fault in a document that holds this one at the pointer `under`.
    #[must_use]
    pub fn under(self, under: &str) -> Self {
        Self { pointer: format!("{under}{}", self.pointer), detail: self.detail }
    }
}

/// Why a command was refused. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// I4a, V1–V5: the payload is not acceptable.
    #[error("the payload is not acceptable")]
    Invalid {
        /// The rule that the payload breaks.
        rule: Rule,
        /// Where and why.
        fault: Fault,
    },
    /// L3: the kind is not in the vocabulary.
    #[error("{0:?} is not an event kind")]
    UnknownKind(String),
    /// C3: the entry does not take this kind.
    #[error("{0} is not accepted here")]
    KindNotAccepted(Kind),
    /// C1: a lease token came with an event that takes none.
    #[error("{0} takes no lease token")]
    TokenNotAllowed(Kind),
    /// C1: an owner event came without a lease token.
    #[error("{0} needs a lease token")]
    TokenRequired(Kind),
    /// I1: a key came with a kind that takes none, or that takes another one.
    #[error("{kind} takes no {given}")]
    KeyNotAllowed {
        /// The event's kind.
        kind: Kind,
        /// The key that was passed.
        given: KeyName,
    },
    /// The session is not there, or belongs to another tenant: both get the same bytes (C3).
    #[error("there is no such session")]
    NotFound,
    /// I8: the session id is taken by a session that another creation made.
    #[error("the session id is taken by a session with another description")]
    SessionExists,
    /// The description has another revision than the client wants to change.
    #[error("If-Match names another revision")]
    RevisionDiffers {
        /// The revision it has.
        revision: u64,
    },
    /// C2, S3: the epoch has moved on, or another owner holds it.
    #[error("the lease is no longer yours")]
    Fenced {
        /// The newest epoch claimed.
        current_epoch: Epoch,
    },
    /// C6: the session is closed.
    #[error("the session is closed")]
    SessionClosed,
    /// C4: the session's state is owned outside.
    #[error("the session's state is owned by an external backend")]
    ExternalSession,
    /// C: an external event came for a native session.
    #[error("the session is native; it takes no external events")]
    NativeSession,
    /// I5: the key is taken by another payload.
    #[error("{name} {key:?} is already used by event {seq} with another payload")]
    IdempotencyConflict {
        /// The key's name.
        name: KeyName,
        /// The key.
        key: String,
        /// The event that holds it.
        seq: Seq,
    },
    /// A1: inputSeqs names an event that is no input, or one that an answer has named before.
    #[error("event {0} is not an unanswered input")]
    NotUnanswered(Seq),
    /// V3: the result names no open call of a committed message.
    #[error("tool call {0:?} is not an open call of a committed message")]
    UnknownToolCall(String),
    /// V2: a call id that an earlier message used.
    #[error("tool call id {0:?} was used by an earlier message")]
    CallIdReused(String),
    /// The payload, or the commit's payloads together, are too large.
    #[error("{what} has {bytes} bytes; the limit is {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// Too many of something for now or for one commit.
    #[error("{what}: the limit is {limit}")]
    LimitReached {
        /// What there would be too many of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// H2: the decision has another answer.
    #[error("the decision was answered otherwise")]
    DecisionTaken,
    /// H2: nobody answered the decision in time.
    #[error("the decision has expired")]
    DecisionExpired,
    /// H2: the answer is about other arguments than the call's.
    #[error("the digest is not that of the call's arguments")]
    DecisionDiffers,
    /// S1: this attempt has committed its run.finished.
    #[error("this attempt has already committed its run.finished")]
    AlreadyFinished,
}

impl Refusal {
    /// Whether the command could have been accepted in another state of the session. Such a refusal is given after a strong
    /// read alone. It may also mean that this very commit was carried out before and its answer lost, so its keys are
    /// looked up first (I6).
    pub fn depends_on_state(&self) -> bool {
        match self {
            Refusal::Fenced { .. }
            | Refusal::SessionClosed
            | Refusal::NotUnanswered(_)
            | Refusal::UnknownToolCall(_)
            | Refusal::CallIdReused(_)
            | Refusal::LimitReached { .. }
            | Refusal::AlreadyFinished
            | Refusal::NotFound
            | Refusal::SessionExists
            | Refusal::RevisionDiffers { .. }
            | Refusal::DecisionTaken
            | Refusal::DecisionExpired
            | Refusal::DecisionDiffers => true,
            Refusal::Invalid { .. }
            | Refusal::UnknownKind(_)
            | Refusal::KindNotAccepted(_)
            | Refusal::TokenNotAllowed(_)
            | Refusal::TokenRequired(_)
            | Refusal::KeyNotAllowed { .. }
            | Refusal::ExternalSession
            | Refusal::NativeSession
            | Refusal::IdempotencyConflict { .. }
            | Refusal::TooLarge { .. } => false,
        }
    }

    /// V: a payload's fault.
    pub fn invalid(rule: &'static str, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Refusal::Invalid { rule: Rule(rule), fault: Fault::new(pointer, detail) }
    }
}
