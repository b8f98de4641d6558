//! What a store must do, and the three ways a write can end that are not success: a refusal (the kernel's), a lost race
//! (a value that the loop handles) and a failure (the store's).

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
    /// All of it is written.
    Committed,
    /// Nothing is written; what stood in the way, as far as the store told. Not every obstacle need be named.
    Lost(Obstacles),
    /// Nothing is written: another transaction was at the same items. Try again after a moment.
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

/// A page of the index of due sessions.
#[derive(Clone, Debug, Default)]
pub struct DuePage {
    /// The sessions, with their heads as they are.
    pub sessions: Vec<(SessionKey, Head)>,
    /// Where the next page begins, if there may be more.
    pub next: Option<DuePlace>,
}

/// A place in the index of due sessions. Good for as long as anybody keeps it: what is gone by then is passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuePlace {
    /// The last session that was looked at.
    pub at: SessionKey,
    /// When it was due.
    pub due: Millis,
}

/// Partials of a session, in the order of their sort keys, each with its own.
pub type PartialPage = Vec<(String, PartialChunk)>;

/// What the ledger needs of a store: strongly or eventually read rows of a session, one guarded write, the index of due
/// sessions, and partials.
#[async_trait]
pub trait Store: Send + Sync {
    /// The session's head; `None`: there is no such session. An eventual one may be a moment old: good enough to write
    /// under its guards, never to conclude from.
    async fn head(&self, at: &SessionKey, consistency: Consistency) -> Result<Option<Head>, StoreError>;

    /// The session's description, strongly read.
    async fn description(&self, at: &SessionKey) -> Result<Option<SessionDescription>, StoreError>;

    /// The session's description and head, strongly read together.
    async fn session(&self, at: &SessionKey) -> Result<Option<Session>, StoreError>;

    /// Description and head of each of these sessions, at most 100, in their order, possibly a moment old. Those that are
    /// not there are left out.
    async fn sessions(&self, at: &[SessionKey]) -> Result<Vec<Session>, StoreError>;

    /// Carries a transition out that was decided on `before` (`None`: there is no session yet): all of it under its guards
    /// or nothing. Where it writes more than one item, the same `token` (1 to 36 characters) with the same transition,
    /// within ten minutes, is answered as the first time.
    async fn write(
        &self,
        at: &SessionKey,
        before: Option<&Head>,
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

    /// A decision (H2).
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

    /// At most `limit` sessions of an index partition (0 to [`DUE_SHARDS`](crate::keys::DUE_SHARDS) − 1) that are due, the
    /// longest due first, with their heads. `after` goes on where an earlier page ended.
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
    /// their age, so a later generation's chunks come behind.
    async fn partials(&self, at: &SessionKey, after: &str) -> Result<PartialPage, StoreError>;

    /// Where a reader that comes now begins: behind every generation that has begun, since no generation is read from its
    /// middle (R3, R3a).
    async fn partials_from_now(&self, at: &SessionKey) -> Result<String, StoreError>;
}
