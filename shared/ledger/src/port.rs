//! The port to a store: what a store must do, and how a write can end. A lost race is a value, [`Written::Lost`], which the
//! engine handles. A failure is a [`StoreError`]. A refusal is the kernel's alone: no store refuses.

use std::error::Error;
use std::fmt;

use async_trait::async_trait;
use keel_kernel::decision::Decision;
use keel_kernel::event::KeyName;
use keel_kernel::partial::PartialChunk;
use keel_kernel::{
    DedupeKey, Event, Head, KeyRow, Millis, Obstacles, Seq, Session, SessionDescription, SessionId, TenantId,
    Transition,
};

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

impl SessionKey {
    /// The session that a partition key names.
    pub fn parse(pk: &str) -> Option<Self> {
        let (tenant, session) = pk.split_once('#')?;
        Some(Self { tenant: TenantId::parse(tenant).ok()?, session: SessionId::parse(session).ok()? })
    }
}

/// How a write under guards ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// All of it is written, now or under the same token before.
    Committed,
    /// Nothing is written: a condition failed. Why, as far as the store told; not every obstacle need be named.
    Lost(Obstacles),
    /// Nothing is written: another transaction held the same items. Try again after a pause.
    Conflict,
}

/// A page of a session's events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventPage {
    /// The events, in order.
    pub events: Vec<Event>,
    /// More may follow the last one.
    pub has_more: bool,
}

/// DynamoDB's consistency of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// It shows everything that was committed before it: 1 RRU for each 4 KB.
    Strong,
    /// It may be out of date: 0.5 RRU for each 4 KB.
    Eventual,
}

/// Why the store failed. The first field names the operation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It is certain that nothing was written.
    #[error("the store did not carry out {0}")]
    NotWritten(&'static str, #[source] Box<dyn Error + Send + Sync>),
    /// There was no answer, so it may have been carried out. Whatever is not known to be harmless counts as this.
    #[error("the store did not answer {0}")]
    Unknown(&'static str, #[source] Box<dyn Error + Send + Sync>),
    /// An item does not decode. Trying again does not help.
    #[error("an item of the table does not decode: {0}")]
    Corrupt(String),
}

/// A page of the index of due sessions.
#[derive(Clone, Debug, Default)]
pub struct DuePage {
    /// The sessions, with their heads, which may be out of date.
    pub sessions: Vec<(SessionKey, Head)>,
    /// Where the next page begins, if there may be more.
    pub next: Option<DuePlace>,
}

/// A place in the index of due sessions. It never expires: the next page begins with what is after it by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuePlace {
    /// The last session that was looked at.
    pub at: SessionKey,
    /// When it was due.
    pub due: Millis,
}

/// Partials of a session in the order of their sort keys, each with its sort key.
pub type PartialPage = Vec<(String, PartialChunk)>;

/// What the ledger needs of a store: reads of a session's rows, one write under guards, the index of due sessions, and
/// partials. Any of them may fail with a [`StoreError`].
#[async_trait]
pub trait Store: Send + Sync {
    /// The session's head; `None`: there is no such session. An eventual read may be out of date: a write may be decided on
    /// it, since its guards are checked, but no answer may rest on it.
    async fn head(&self, at: &SessionKey, consistency: Consistency) -> Result<Option<Head>, StoreError>;

    /// The session's description, strongly read.
    async fn description(&self, at: &SessionKey) -> Result<Option<SessionDescription>, StoreError>;

    /// The session's description and head, strongly read together.
    async fn session(&self, at: &SessionKey) -> Result<Option<Session>, StoreError>;

    /// Description and head of each of these sessions (at most 100), in their order. They may be out of date. Sessions
    /// that are not there are left out.
    async fn sessions(&self, at: &[SessionKey]) -> Result<Vec<Session>, StoreError>;

    /// Writes a transition that was decided on `before` (`None`: there is no session yet): all of it, under its guards, or
    /// nothing. Where it writes more than one item and is sent again with the same `token` (1 to 36 characters) within ten
    /// minutes, it is answered as the first time.
    async fn write(
        &self,
        at: &SessionKey,
        before: Option<&Head>,
        transition: &Transition,
        token: &str,
    ) -> Result<Written, StoreError>;

    /// The rows of those keys that are taken.
    async fn keys(&self, at: &SessionKey, keys: &[(KeyName, DedupeKey)]) -> Result<Vec<KeyRow>, StoreError>;

    /// At most `limit` events after a position. There may be fewer although more follow; then `has_more` is true.
    async fn events(
        &self,
        at: &SessionKey,
        after: Seq,
        limit: usize,
        consistency: Consistency,
    ) -> Result<EventPage, StoreError>;

    /// A decision (H2), by its id.
    async fn decision(
        &self,
        at: &SessionKey,
        id: &str,
        consistency: Consistency,
    ) -> Result<Option<Decision>, StoreError>;

    /// The session's decisions, answered ones too, strongly read.
    async fn decisions(&self, at: &SessionKey) -> Result<Vec<Decision>, StoreError>;

    /// The session's children (H4), strongly read.
    async fn children(&self, at: &SessionKey) -> Result<Vec<SessionKey>, StoreError>;

    /// At most `limit` sessions of an index partition (0 to [`DUE_SHARDS`](crate::keys::DUE_SHARDS) − 1) that are due at
    /// `now`, the longest due first, with their heads. `after`: go on where an earlier page ended.
    async fn due(
        &self,
        shard: u8,
        now: Millis,
        limit: usize,
        after: Option<DuePlace>,
    ) -> Result<DuePage, StoreError>;

    /// Writes a chunk of a generation's text (R3). A chunk sent twice is the same chunk.
    async fn put_partial(&self, at: &SessionKey, now: Millis, chunk: &PartialChunk)
    -> Result<(), StoreError>;

    /// At most 100 chunks after a sort key (`""`: from the first that has not expired), in order. Generation ids sort by
    /// their age, so a later generation's chunks come after.
    async fn partials(&self, at: &SessionKey, after: &str) -> Result<PartialPage, StoreError>;

    /// The sort key after which a reader that comes now begins: behind every generation that has begun, since no generation
    /// is read from its middle (R3, R3a).
    async fn partials_from_now(&self, at: &SessionKey) -> Result<String, StoreError>;
}
