//! The session port: what the loop reads and writes, without how it is done.

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
    /// Its position in the generation, from 0.
    pub index: u32,
    /// The text.
    pub text: String,
    /// Set on the last chunk of a generation that ends without an answer: the reason.
    pub dead: Option<&'static str>,
}

/// How a settle ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleResult {
    /// The run has this status now.
    Settled(RunStatus),
    /// An event was committed since; nothing is written.
    Moved,
}

/// Why a write or read did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum SessionPortError {
    /// Another owner has claimed the run, or the session is closed. Stop, and write nothing more (C2, C6).
    #[error("another owner has the session, or it is closed")]
    Lost,
    /// The kernel refused the write.
    #[error("the ledger refused the commit")]
    Refused(#[source] Refusal),
    /// The store failed, after all retries.
    #[error("the ledger could not be reached")]
    Store(#[source] Box<dyn Error + Send + Sync>),
}

/// The session as its owner sees it.
#[async_trait]
pub trait SessionPort: Send + Sync {
    /// K2: the events that a context can show, strongly read.
    async fn history(&self) -> Result<History, SessionPortError>;

    /// Every event after a position, strongly read.
    async fn events_after(&self, after: Seq) -> Result<Vec<Event>, SessionPortError>;

    /// Commits events together. Sending them again is safe: events that are there already count as committed (I3).
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

    /// Publishes a chunk to streams. If that fails the chunk is lost: partials are not part of the ledger (R3).
    async fn partial(&self, partial: Partial) -> Result<(), SessionPortError>;
}
