//! The worker: it answers runs. A hint names a session, a claim takes its run, and the agent loop answers it. Meanwhile a
//! watcher keeps the lease, looks for a cancel and watches the invocation's time.
//!
//! A hint that comes twice, late or for nothing finds nothing to claim and is dropped. A worker that dies leaves all that
//! its successor needs in the ledger and the head.

pub mod batch;
pub mod children;
mod ledger_session_port;
mod resources;
mod tenant_resources;
mod waits;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use keel_agent::tool::{ToolOutput, ToolSpec};
use keel_agent::{
    Ended, Ports, RunContext, SessionPort as _, SessionPortError, SettleResult, Signals, Tools,
};
use keel_kernel::event::ToolCall;
use keel_kernel::run::{NotClaimable, Outcome};
use keel_kernel::{OwnerId, SessionDescription};
use keel_ledger::{Claimed, Ledger, LedgerError, SessionKey, StoreError, TenantStore};
use tokio::time::Instant;

use ledger_session_port::{Known, LedgerSessionPort};
pub use resources::{AttemptResources, FixedResources, MissingResources, ResourceSource};
pub use tenant_resources::{ConfigureModel, TenantResources};
use waits::{SessionWaits, TenantSpending};
use watch::Watcher;

/// A worker's limits.
#[derive(Clone, Copy, Debug)]
pub struct WorkerConfig {
    /// Requests that one attempt may make.
    pub max_turns: u32,
    /// The second attempt's backoff, in milliseconds; doubled for each later one, up to a minute.
    pub backoff_ms: u64,
    /// The last part of an invocation, in which no request to a model and no tool call begins.
    pub no_new_request: Duration,
    /// The last part of an invocation, in which whatever is at work is stopped and the run handed over (S5).
    pub stop: Duration,
    /// The pause between two looks for a cancel, from and to, in milliseconds: less than a second.
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

/// The queue message that brought a hint. It stays invisible to others while its run is worked on.
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
    /// There was nothing to claim, for this reason.
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
    SessionPort(#[from] SessionPortError),
}

/// A worker: it answers the runs of any tenant's sessions.
#[derive(Clone)]
pub struct Worker {
    /// The ledger.
    pub ledger: Ledger,
    /// What tenants have spent.
    pub tenants: TenantStore,
    /// Where each attempt gets its model and tools.
    pub resources: Arc<dyn ResourceSource>,
    /// Its limits.
    pub config: WorkerConfig,
    /// Turns true when every run must be handed over (SIGTERM).
    pub drain: tokio::sync::watch::Receiver<bool>,
}

impl Worker {
    /// Answers the session's run, if there is one to claim, until `deadline` at most.
    pub async fn answer_run(
        &self,
        at: &SessionKey,
        deadline: Option<Instant>,
        message: &dyn Message,
    ) -> Result<Answered, WorkerError> {
        // The name is new for each claim, so that no two attempts in one process are taken for one owner.
        let owner = OwnerId::parse(format!("worker-{}", self.ledger.env().unique())).expect("visible ASCII");
        let claimed = match self.ledger.claim(at, &owner).await? {
            Ok(claimed) => claimed,
            Err(not) => return Ok(Answered::NotClaimed(not)),
        };
        let description = self.ledger.description(at).await?;
        let token = claimed.token.clone();
        let known = Known::new(claimed.head.clone());
        let session_port =
            LedgerSessionPort::new(self.ledger.clone(), at.clone(), token.clone(), known.clone());
        tracing::info!(epoch = token.epoch.0, attempt = claimed.head.run.attempts, "an attempt begins");
        // S: a cancel that came before the claim is known from the beginning.
        let cancel = claimed.head.run.cancel.is_some();
        let (signals, received) = tokio::sync::watch::channel(Signals { cancel, ..Signals::default() });
        let watcher = Watcher { worker: self, at, token: &claimed.token, deadline, message, signals };
        let attempt = async {
            match self.resources.resources(at, description.as_ref()).await {
                Ok(resources) => {
                    self.work(
                        at,
                        &claimed,
                        AttemptInputs { resources, description, session_port: &session_port, known },
                        received,
                    )
                    .await
                }
                Err(error) => self.fail(&claimed, &session_port, &error).await,
            }
        };
        // The watcher begins right after the claim, since it may take long to connect to a tenant's tools.
        let ended = tokio::select! {
            biased;
            ended = attempt => ended?,
            never = watcher.watch(claimed.head.clone()) => match never {},
        };
        tracing::info!( epoch = claimed.token.epoch.0, ended = ?ended,
            "an attempt ended"
        );
        Ok(Answered::Ended(ended))
    }

    async fn work(
        &self,
        at: &SessionKey,
        claimed: &Claimed,
        inputs: AttemptInputs<'_>,
        received: tokio::sync::watch::Receiver<Signals>,
    ) -> Result<Ended, WorkerError> {
        let AttemptInputs { resources, description, session_port, known } = inputs;
        let run = self.context(claimed, description.as_ref(), &resources);
        let tools = WithAgents(&*resources.tools);
        let policies = tools.specs().into_iter().map(|spec| (spec.name, spec.policy)).collect();
        let tenant = match resources.budget {
            None => None,
            Some(budget) => {
                let month = keel_settings::month(self.ledger.env().now());
                Some(TenantSpending::new(budget, self.tenants.spent(&at.tenant, &month).await?))
            }
        };
        let waits = SessionWaits::new(
            (&self.ledger, &self.tenants),
            (at, &claimed.token, description),
            known,
            policies,
            tenant,
        );
        let new_id = || self.ledger.env().unique();
        let ports = Ports {
            session: session_port,
            provider: &*resources.provider,
            tools: &tools,
            waits: &waits,
            new_id: &new_id,
        };
        Ok(keel_agent::answer_run(ports, &run, received).await?)
    }

    /// Settles an attempt whose resources are missing as failed, with the reason in its summary.
    async fn fail(
        &self,
        claimed: &Claimed,
        session_port: &LedgerSessionPort,
        error: &MissingResources,
    ) -> Result<Ended, WorkerError> {
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "an attempt fails, because what it needs is missing"
        );
        let run = &claimed.head.run;
        let outcome = Outcome::Failed { backoff_ms: self.backoff(run.attempts) };
        let summary = keel_agent::not_begun(run.attempts, &error.what);
        match session_port.settle(outcome, vec![summary], None).await {
            Ok(SettleResult::Settled(status)) => Ok(Ended::Settled(status)),
            Ok(SettleResult::Moved) | Err(SessionPortError::Lost) => Ok(Ended::Lost),
            Err(error) => Err(error.into()),
        }
    }

    fn backoff(&self, attempts: u32) -> u64 {
        let full = (self.config.backoff_ms << attempts.saturating_sub(1).min(10)).min(BACKOFF_MAX_MS);
        self.ledger.env().pick(full / 2..=full)
    }

    fn context(
        &self,
        claimed: &Claimed,
        description: Option<&SessionDescription>,
        resources: &AttemptResources,
    ) -> RunContext {
        let run = &claimed.head.run;
        RunContext {
            watermark: run.watermark,
            attempt: run.attempts,
            max_attempts: claimed.head.max_attempts,
            max_turns: self.config.max_turns,
            model: resources.model.clone(),
            system: description.and_then(|description| description.system.clone()),
            backoff_ms: self.backoff(run.attempts),
            window: resources.window,
            compact: claimed.head.compact,
        }
    }
}

/// A session's tools, and the tool that begins children.
struct WithAgents<'a>(&'a dyn Tools);

#[async_trait]
impl Tools for WithAgents<'_> {
    fn specs(&self) -> Vec<ToolSpec> {
        let mut specs = self.0.specs();
        specs.push(children::spec());
        specs
    }

    async fn call(&self, call: &ToolCall) -> ToolOutput {
        self.0.call(call).await
    }
}

/// What an attempt works with, and its session port.
struct AttemptInputs<'a> {
    resources: AttemptResources,
    description: Option<SessionDescription>,
    session_port: &'a LedgerSessionPort,
    known: Arc<Known>,
}
