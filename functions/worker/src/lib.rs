//! Answers runs: a hint names a session, a claim makes it ours, the loop answers it, and meanwhile a watcher keeps the
//! lease, listens for a cancel and looks at the clock.
//!
//! A hint that comes twice, late or for nothing fails to claim and is dropped.

mod desk;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use keel_agent::{DeskError, Ended, Ports, Provider, RunContext, Signals, Tools};
use keel_kernel::OwnerId;
use keel_kernel::run::NotClaimable;
use keel_ledger::dynamo::Dynamo;
use keel_ledger::{Claimed, Ledger, LedgerError, SessionKey, StoreError};
use tokio::time::Instant;

use desk::LedgerDesk;
use watch::Watcher;

/// What a worker may do.
#[derive(Clone, Copy, Debug)]
pub struct WorkerConfig {
    /// Requests that one attempt may make.
    pub max_turns: u32,
    /// The second attempt's backoff, in milliseconds; doubled for each later one, up to a minute.
    pub backoff_ms: u64,
    /// No new model request or tool in this last part of an invocation.
    pub no_new_request: Duration,
    /// What runs is stopped and handed over in this last part of an invocation.
    pub stop: Duration,
    /// How often the head is looked at for a cancel, in milliseconds: well within a second.
    pub look_ms: (u64, u64),
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            max_turns: 50,
            backoff_ms: 2_000,
            no_new_request: Duration::from_secs(90),
            stop: Duration::from_secs(30),
            look_ms: (350, 550),
        }
    }
}

/// The longest backoff, in milliseconds.
const BACKOFF_MAX_MS: u64 = 60_000;

/// The queue message behind a hint: it stays invisible to others as long as its run is worked on.
#[async_trait]
pub trait Message: Send + Sync {
    /// Keeps it invisible for another lease.
    async fn keep(&self);
}

/// A hint without a message to keep.
#[derive(Clone, Copy, Debug)]
pub struct NoMessage;

#[async_trait]
impl Message for NoMessage {
    async fn keep(&self) {}
}

/// What became of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// There was nothing for us to do.
    NotClaimed(NotClaimable),
    /// The attempt ended.
    Ended(Ended),
}

/// An attempt broke off. Its lease runs out, and a successor goes on.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The ledger could not be used.
    #[error("the ledger could not be used")]
    Ledger(#[from] LedgerError),
    /// A row could not be read.
    #[error("a row could not be read")]
    Row(#[from] StoreError),
    /// The loop broke off.
    #[error("the attempt broke off")]
    Desk(#[from] DeskError),
}

/// A worker.
#[derive(Clone)]
pub struct Worker {
    /// The ledger's verbs.
    pub ledger: Ledger,
    /// Sessions as described, partials, glances at heads.
    pub rows: Dynamo,
    /// The model.
    pub provider: Arc<dyn Provider>,
    /// The tools.
    pub tools: Arc<dyn Tools>,
    /// What it may do.
    pub config: WorkerConfig,
    /// Turns true when every run must be handed over (SIGTERM).
    pub drain: tokio::sync::watch::Receiver<bool>,
}

impl Worker {
    /// Answers the session's run, if there is one to claim, until `deadline` at most.
    pub async fn answer(
        &self,
        at: &SessionKey,
        deadline: Option<Instant>,
        message: &dyn Message,
    ) -> Result<Answered, WorkerError> {
        // Unique for each claim, so that no two attempts of one process are taken for one owner.
        let owner = OwnerId::parse(format!("worker-{}", self.ledger.env().unique())).expect("visible ASCII");
        let claimed = match self.ledger.claim(at, &owner).await? {
            Ok(claimed) => claimed,
            Err(not) => return Ok(Answered::NotClaimed(not)),
        };
        let run = self.context(at, &claimed).await?;
        tracing::info!(
            tenant = %at.tenant, session = %at.session, epoch = claimed.token.epoch.0, attempt = run.attempt,
            "an attempt begins"
        );
        let (signals, told) = tokio::sync::watch::channel(Signals::default());
        let desk = LedgerDesk::new(self.ledger.clone(), self.rows.clone(), at.clone(), claimed.clone());
        let watcher = Watcher { worker: self, at, token: &claimed.token, deadline, message, signals };
        let new_id = || self.ledger.env().unique();
        let ports = Ports { desk: &desk, provider: &*self.provider, tools: &*self.tools, new_id: &new_id };
        let ended = tokio::select! {
            biased;
            ended = keel_agent::answer(ports, &run, told) => ended?,
            never = watcher.watch(claimed.head.clone()) => match never {},
        };
        tracing::info!(
            tenant = %at.tenant, session = %at.session, epoch = claimed.token.epoch.0, ended = ?ended,
            "an attempt ended"
        );
        Ok(Answered::Ended(ended))
    }

    async fn context(&self, at: &SessionKey, claimed: &Claimed) -> Result<RunContext, WorkerError> {
        let meta = self.rows.session(at).await?.map(|session| session.meta);
        let run = &claimed.head.run;
        let full = (self.config.backoff_ms << run.attempts.saturating_sub(1).min(10)).min(BACKOFF_MAX_MS);
        Ok(RunContext {
            watermark: run.watermark,
            attempt: run.attempts,
            max_attempts: claimed.head.max_attempts,
            max_turns: self.config.max_turns,
            model: meta.as_ref().and_then(|meta| meta.model.clone()),
            system: meta.and_then(|meta| meta.system),
            backoff_ms: self.ledger.env().pick(full / 2..=full),
        })
    }
}
