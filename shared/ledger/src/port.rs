//! What a store must do, and the three ways a write can end that are not success: a refusal (the kernel's), a lost race
//! (a value that the loop handles) and a failure (the store's).

use std::error::Error;
use std::fmt;

use async_trait::async_trait;
use keel_kernel::event::KeyName;
use keel_kernel::{CommitId, DedupeKey, Event, Head, Seq, SessionId, TenantId, Transition};

/// A session within its tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// Who owns it.
    pub tenant: TenantId,
    /// Its id.
    pub session: SessionId,
}

impl fmt::Display for SessionKey {
    /// The partition key: neither id can contain `#`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.tenant, self.session)
    }
}

/// A dedupe key that is taken: which event holds it, and what it said (I3, I5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// The key's name.
    pub name: KeyName,
    /// The key.
    pub key: DedupeKey,
    /// The event that holds it.
    pub seq: Seq,
    /// SHA-256 of the canonical payload as it was sent, in hex.
    pub digest: String,
    /// The commit that took it.
    pub commit: CommitId,
}

/// How a write under guards ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// All of it is written.
    Committed,
    /// Nothing is written; what stood in the way, as far as the store told. Not every obstacle need be named.
    Lost(Obstacles),
    /// Nothing is written: another transaction was at the same items. Try again after a moment.
    Conflict,
}

/// What stood in a write's way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Obstacles {
    /// Keys that are taken.
    pub keys: Vec<KeyRow>,
    /// A call id that an earlier result holds (V2).
    pub call: Option<DedupeKey>,
    /// The head as it is, when a guard no longer holds.
    pub head: Option<Head>,
}

/// A page of a session's events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventPage {
    /// The events, in order.
    pub events: Vec<Event>,
    /// More may follow the last one.
    pub has_more: bool,
}

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Everything committed before the read: 1 RRU per 4 KB.
    Strong,
    /// Possibly a moment behind: half of that.
    Eventual,
}

/// What the store could not do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written, for sure.
    #[error("the store did not carry out {0}")]
    NotWritten(&'static str, #[source] Box<dyn Error + Send + Sync>),
    /// The answer was lost: it may have been carried out. The default for whatever is not known to be harmless.
    #[error("the store did not answer {0}")]
    Unknown(&'static str, #[source] Box<dyn Error + Send + Sync>),
    /// An item does not read as what it must be.
    #[error("an item of the table does not decode: {0}")]
    Corrupt(String),
}

/// The verbs the retry loop needs of a store.
#[async_trait]
pub trait Store: Send + Sync {
    /// The session's head, strongly read; `None`: there is no such session.
    async fn head(&self, at: &SessionKey) -> Result<Option<Head>, StoreError>;

    /// The head, possibly a moment old, for half the price: good enough to write under its guards, never to conclude from.
    async fn head_eventual(&self, at: &SessionKey) -> Result<Option<Head>, StoreError>;

    /// Carries a transition out under its guards: all of it or nothing. Where it appends events, the same `token` (1 to
    /// 36 characters) with the same transition, within ten minutes, is answered as the first time.
    async fn write(
        &self,
        at: &SessionKey,
        before: &Head,
        transition: &Transition,
        token: &str,
    ) -> Result<Written, StoreError>;

    /// The rows of those keys that are taken.
    async fn keys(&self, at: &SessionKey, keys: &[(KeyName, DedupeKey)]) -> Result<Vec<KeyRow>, StoreError>;

    /// At most `limit` events after a position. May be cut short (then `has_more`).
    async fn events(
        &self,
        at: &SessionKey,
        after: Seq,
        limit: usize,
        consistency: Consistency,
    ) -> Result<EventPage, StoreError>;
}
