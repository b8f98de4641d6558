//! [`Ledger`]: the commands and reads that the functions have over sessions. A command looks at its read set, asks the
//! kernel and writes the transition, until a write is committed or there is nothing to write.
//!
//! | module | holds |
//! |---|---|
//! | `engine` | the one loop that decides, writes and tries again |
//! | `replay` | how a retry is told from a conflict (I3, I5, I6) |
//! | `read_set` | what commands look at before they decide |
//! | `client`, `owner`, `sessions`, `decisions` | the commands, each with what it asks the kernel |
//! | `reads` | what is only read |

mod client;
mod decisions;
mod engine;
mod idempotency;
mod owner;
mod read_set;
mod reads;
mod sessions;

use std::sync::Arc;

use keel_env::Env;
use keel_kernel::{CommitId, Head, Millis, NewEvent, Refusal, Transition};

use crate::hints::{Hint, SharedHints};
use crate::notifier::CommitNotifier;
use crate::port::{SessionKey, Store, StoreError};
use engine::{Carried, Job, Step, Wrote};
pub use owner::{Appended, Claimed, SettledRun};
use read_set::OfHead;

/// How long leases hold, and how often a command is tried.
#[derive(Clone, Copy, Debug)]
pub struct LedgerConfig {
    /// How long a claim, a renewal and an owner's commit hold the lease, in milliseconds.
    pub lease_ms: u64,
    /// How often a command may lose a race or find the store busy before it gives up.
    pub tries: u32,
}

impl Default for LedgerConfig {
    fn default() -> Self {
        Self { lease_ms: 60_000, tries: 12 }
    }
}

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A rule forbids it. Nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Every try met a busy store or a faster writer. Sending the command again is safe (I6).
    #[error("the session is busy")]
    Busy,
    /// The store failed. Sending the command again is safe (I6).
    #[error("the store failed")]
    Store(#[from] StoreError),
}

/// The ledger: the only door to a session's rows.
#[derive(Clone)]
pub struct Ledger {
    store: Arc<dyn Store>,
    hints: SharedHints,
    notifier: CommitNotifier,
    env: Arc<dyn Env>,
    config: LedgerConfig,
}

impl Ledger {
    /// A ledger over a store.
    pub fn new(
        store: Arc<dyn Store>,
        hints: SharedHints,
        notifier: CommitNotifier,
        env: Arc<dyn Env>,
        config: LedgerConfig,
    ) -> Self {
        Self { store, hints, notifier, env, config }
    }

    /// The source of time, ids and randomness.
    pub fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// Where readers wait for commits.
    pub fn notifier(&self) -> &CommitNotifier {
        &self.notifier
    }

    /// How long a claim, a renewal and an owner's commit hold the lease, in milliseconds.
    pub fn lease_ms(&self) -> u64 {
        self.config.lease_ms
    }

    /// A new commit's id.
    fn commit_id(&self) -> CommitId {
        CommitId::parse(self.env.unique()).expect("hex digits are visible ASCII")
    }

    /// Carries out a command that changes the head alone, and returns the head afterwards. `known` is the caller's last
    /// head; it saves the first read.
    async fn head_only(
        &self,
        at: &SessionKey,
        known: Option<Head>,
        decide: impl Fn(&Head, Millis) -> Result<Option<Transition>, Refusal> + Send + Sync,
    ) -> Result<Head, LedgerError> {
        let id = self.commit_id();
        let step = |head: &Head, now: Millis, _: &[NewEvent]| {
            Ok(decide(head, now)?.map_or(Step::Done(()), Step::Write))
        };
        match self.carry_out(at, (&OfHead, known), Job::without_events(&id), step).await? {
            Carried::Done((), head) | Carried::Wrote(Wrote { head, .. }) => Ok(head),
        }
    }

    /// Sends a hint, to be seen after `after_ms` milliseconds at the earliest. Where it cannot be sent, the sweep finds the
    /// session.
    pub async fn hint(&self, at: &SessionKey, after_ms: u64) {
        if let Err(error) = self.hints.send(&Hint::about(at), after_ms).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a hint was not queued; the sweep will find the session"
            );
        }
    }
}
