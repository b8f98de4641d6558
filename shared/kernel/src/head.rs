//! A session's row: what the next decision needs, so that nothing else is read for it.
//!
//! The part that the ledger determines is [`LedgerState`]; folding the ledger's events gives it again (L5). The rest
//! (the lease, the run row) is what the ledger does not hold: who works, and how often they tried.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::event::{AssistantMessage, Event, Facts};
use crate::ids::{CommitId, DedupeKey, Epoch, Millis, OwnerId, Seq};
use crate::refusal::Refusal;

/// Whose loop answers a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateOwner {
    /// Ours: input makes runs.
    #[default]
    Native,
    /// An external backend's: only `external.event` is taken, and nothing is claimed (C4).
    External,
}

/// What the ledger alone determines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LedgerState {
    /// The last committed position (L2).
    pub seq: Seq,
    /// A2: the inputs no completed answer has named.
    pub unanswered: BTreeSet<Seq>,
    /// The committed tool calls without a result, in no failed message (V3).
    pub open_calls: BTreeSet<DedupeKey>,
    /// A3: the model owes a turn: its last message failed, or it asked for tools.
    pub owed_turn: bool,
    /// A4: an assistant message has carried inputSeqs, so inputSeqs decides from here on.
    pub input_seqs_seen: bool,
}

impl LedgerState {
    /// The state after one more event.
    pub fn apply(&mut self, event: &Event, facts: &Facts) {
        debug_assert_eq!(event.seq, self.seq.next(), "L2: events are applied in order");
        self.seq = event.seq;
        match facts {
            Facts::User(_) => {
                self.unanswered.insert(event.seq);
            }
            Facts::Assistant(message) => self.apply_assistant(message, event.watermark),
            Facts::Tool(result) => {
                self.open_calls.remove(&result.tool_call_id);
            }
            Facts::Compaction | Facts::Finished(_) | Facts::External(_) | Facts::Reserved => {}
        }
    }

    fn apply_assistant(&mut self, message: &AssistantMessage, watermark: Option<Seq>) {
        // A3: a failed message answers nothing, its calls were never made, and it leaves a turn owed.
        self.owed_turn = message.failed || !message.calls.is_empty();
        if !message.failed {
            match &message.input_seqs {
                Some(seqs) => self.unanswered.retain(|seq| !seqs.contains(seq)), // A2
                None if !self.input_seqs_seen => {
                    self.unanswered.retain(|seq| Some(*seq) > watermark); // A4
                }
                None => {}
            }
            self.open_calls.extend(message.calls.iter().map(|call| call.id.clone()));
        }
        self.input_seqs_seen |= message.input_seqs.is_some();
    }

    /// L5: the state rebuilt from a ledger's events, which start at seq 1.
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Self, Refusal> {
        let mut state = Self::default();
        for event in events {
            state.apply(event, &Facts::read(event.kind, &event.payload)?);
        }
        Ok(state)
    }
}

/// Who may write a session's owner events, until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The process.
    pub owner: OwnerId,
    /// The claim that made the lease: a claim whose answer was lost finds itself by it.
    pub claim: CommitId,
    /// When others may claim. It gives liveness only: safety is the epoch's (C2).
    pub until: Millis,
}

/// What an owner shows with each of its writes (C2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseToken {
    /// The owner's name.
    pub owner: OwnerId,
    /// The epoch its claim made.
    pub epoch: Epoch,
}

/// What a session's run is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// There was no run yet.
    #[default]
    Idle,
    /// Waiting for an owner.
    Pending,
    /// An attempt has the lease.
    Running,
    /// The last run answered everything it was given.
    Done,
    /// The last run was cancelled or spent its attempts.
    Failed,
}

impl RunStatus {
    /// Pending or running: new input joins it instead of starting another.
    pub fn is_live(self) -> bool {
        match self {
            RunStatus::Pending | RunStatus::Running => true,
            RunStatus::Idle | RunStatus::Done | RunStatus::Failed => false,
        }
    }

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            RunStatus::Idle => "idle",
            RunStatus::Pending => "pending",
            RunStatus::Running => "running",
            RunStatus::Done => "done",
            RunStatus::Failed => "failed",
        }
    }
}

/// Why a run is failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailReason {
    /// A client cancelled it.
    Cancelled,
    /// The attempt budget is spent.
    AttemptsSpent,
    /// The session was closed under it.
    Closed,
}

/// How the last settle ended: its owner may ask again and gets the same answer (I6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastSettle {
    /// The epoch that settled.
    pub epoch: Epoch,
    /// What the run became then.
    pub status: RunStatus,
}

/// The run row (A5: it survives every takeover).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// What it is doing.
    pub status: RunStatus,
    /// Attempts spent, the current one included. A hand-over gives its attempt back (S5).
    pub attempts: u32,
    /// How often it was handed over.
    pub handovers: u32,
    /// A claim before this moment is too early (backoff).
    pub not_before: Millis,
    /// A4: the last seq when the run was first claimed. Inputs up to it are this run's; `None`: not claimed yet.
    pub watermark: Option<Seq>,
    /// A client asked to cancel when this was the last seq. Input after it starts the next run.
    pub cancel: Option<Seq>,
    /// Why it failed, where it did.
    pub reason: Option<FailReason>,
    /// How the last settle ended.
    pub settled: Option<LastSettle>,
}

impl Run {
    /// A run that nobody has claimed yet.
    #[must_use]
    pub fn fresh(settled: Option<LastSettle>) -> Run {
        Run { status: RunStatus::Pending, settled, ..Run::default() }
    }
}

/// A session's row.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// Whose loop answers it.
    pub state_owner: StateOwner,
    /// C6: it takes no more commits.
    pub closed: bool,
    /// The attempt budget of each run.
    pub max_attempts: u32,
    /// What the ledger determines.
    pub ledger: LedgerState,
    /// The run row.
    pub run: Run,
    /// The newest epoch claimed.
    pub epoch: Epoch,
    /// The current lease, if somebody holds one.
    pub lease: Option<Lease>,
    /// S1: the newest epoch that committed its run.finished.
    pub finished: Epoch,
    /// When the sweep looks at the session next; `None` where nothing is due. Set when a run becomes pending and left
    /// alone until it settles, since an indexed attribute must not change with every commit.
    pub due: Option<Millis>,
}

impl Head {
    /// A new session's row.
    pub fn new(state_owner: StateOwner, max_attempts: u32) -> Head {
        Head {
            state_owner,
            closed: false,
            max_attempts,
            ledger: LedgerState::default(),
            run: Run::default(),
            epoch: Epoch(0),
            lease: None,
            finished: Epoch(0),
            due: None,
        }
    }

    /// A2, A3: something waits for a model: an input, or a turn.
    pub fn is_owed(&self) -> bool {
        self.ledger.owed_turn || !self.ledger.unanswered.is_empty()
    }

    /// S: input that this run was not given when it was first claimed.
    pub fn newer_input(&self) -> bool {
        self.ledger.unanswered.last().copied() > self.run.watermark
    }

    /// C2: the token is the current lease's.
    pub fn check_lease(&self, token: &LeaseToken) -> Result<(), Refusal> {
        let current = self.lease.as_ref().is_some_and(|lease| lease.owner == token.owner);
        if current && token.epoch == self.epoch {
            Ok(())
        } else {
            Err(Refusal::Fenced { current_epoch: self.epoch })
        }
    }

    /// C6.
    pub fn check_open(&self) -> Result<(), Refusal> {
        if self.closed { Err(Refusal::SessionClosed) } else { Ok(()) }
    }

    /// C4: the session is one of ours.
    pub fn check_native(&self) -> Result<(), Refusal> {
        match self.state_owner {
            StateOwner::Native => Ok(()),
            StateOwner::External => Err(Refusal::ExternalSession),
        }
    }

    /// Makes a run that nobody has claimed, due for the sweep soon.
    pub(crate) fn start_run(&mut self, now: Millis) {
        self.run = Run::fresh(self.run.settled.clone());
        self.due = Some(now.plus(crate::caps::PENDING_GRACE_MS));
    }
}
