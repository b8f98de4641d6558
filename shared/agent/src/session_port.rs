//! The session as its owner sees it: what the loop reads and writes, and nothing of how.

use std::error::Error;

use async_trait::async_trait;
use keel_kernel::run::Outcome;
use keel_kernel::transcript::History;
use keel_kernel::{Event, NewEvent, Refusal, RunStatus, Seq};

/// A chunk of a generation's text on its way to streams (R3a).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partial {
    /// The generation.
    pub generation_id: String,
    /// 0-based place in the generation.
    pub index: u32,
    /// The text.
    pub text: String,
    /// Set on the last chunk of a generation that will not be committed: why.
    pub dead: Option<&'static str>,
}

/// How a settle ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleResult {
    /// The run has this status now.
    Settled(RunStatus),
    /// The ledger has moved on; nothing is written.
    Moved,
}

/// Why a write or read did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum SessionPortError {
    /// The session is another's now, or closed. Stop, and write nothing more (C2, C6).
    #[error("the session is no longer ours")]
    Lost,
    /// The rules say no.
    #[error("the ledger refused the commit")]
    Refused(#[source] Refusal),
    /// The store failed, after every retry that makes sense.
    #[error("the ledger could not be reached")]
    Store(#[source] Box<dyn Error + Send + Sync>),
}

/// The session as its owner sees it.
#[async_trait]
pub trait SessionPort: Send + Sync {
    /// K2: the ledger as far as a context can show it, strongly read.
    async fn history(&self) -> Result<History, SessionPortError>;

    /// Every event after a position, strongly read.
    async fn events_after(&self, after: Seq) -> Result<Vec<Event>, SessionPortError>;

    /// Commits events together. Sending them again is safe: what is there already counts as committed (I3).
    async fn commit(&self, events: Vec<NewEvent>) -> Result<(), SessionPortError>;

    /// Settles the attempt with its last events; with `only_at`, only while the last seq is still that one (S1, S4).
    async fn settle(
        &self,
        outcome: Outcome,
        events: Vec<NewEvent>,
        only_at: Option<Seq>,
    ) -> Result<SettleResult, SessionPortError>;

    /// Hands the run over (S5).
    async fn release(&self) -> Result<(), SessionPortError>;

    /// Passes a chunk on to streams. What fails here is lost: partials are no part of the ledger (R3).
    async fn partial(&self, partial: Partial) -> Result<(), SessionPortError>;
}
