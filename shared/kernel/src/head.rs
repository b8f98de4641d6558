//! A session's head: all that most rules need to know of a session, so that one read is enough to decide.
//!
//! The part that the ledger determines is [`LedgerState`]; folding the ledger's events gives it again (L5). The rest
//! (the lease, the run) is what the ledger does not hold: who works on the session, and how many attempts there were.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::event::{AssistantMessage, Event, Facts, Spent};
use crate::ids::{CommitId, DedupeKey, Epoch, Millis, OwnerId, Seq, SessionId};
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
    /// The last completed answer; zero: there is none.
    pub last_answer: Seq,
    /// K2: the newest compaction, if there is one.
    pub compacted: Option<Compacted>,
    /// H5: what all answers and summaries cost together.
    pub spent: Spent,
}

/// What a compaction leaves of the ledger for a context (K1, K2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// The compaction event.
    pub seq: Seq,
    /// Events from here on are kept.
    pub first_kept: Seq,
    /// Inputs before it that no answer had named yet: they are kept too.
    pub waiting: BTreeSet<Seq>,
}

impl Compacted {
    /// Whether a context still shows the input or answer at this position.
    pub fn keeps(&self, seq: Seq) -> bool {
        seq >= self.first_kept || self.waiting.contains(&seq)
    }
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
            Facts::Assistant(message) => self.apply_assistant(event.seq, message, event.watermark),
            Facts::Tool(result) => {
                self.open_calls.remove(&result.tool_call_id);
            }
            Facts::Compaction(compaction) => {
                self.spent.add(compaction.spent);
                // A compaction that names an event which is not there yet has no effect.
                if let Some(first_kept) = compaction.first_kept.filter(|first| *first <= event.seq) {
                    // K1: the last answer is kept, for its calls may still need their results.
                    let first_kept = if self.last_answer == Seq::ZERO {
                        first_kept
                    } else {
                        first_kept.min(self.last_answer)
                    };
                    let waiting = self.unanswered.iter().copied().filter(|seq| *seq < first_kept).collect();
                    self.compacted = Some(Compacted { seq: event.seq, first_kept, waiting });
                }
            }
            Facts::Finished(_) | Facts::External(_) | Facts::Reserved => {}
        }
    }

    fn apply_assistant(&mut self, seq: Seq, message: &AssistantMessage, watermark: Option<Seq>) {
        // A3: a failed message answers nothing, its calls were never made, and it leaves a turn owed.
        self.owed_turn = message.failed || !message.calls.is_empty();
        if !message.failed {
            self.last_answer = seq;
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
        self.spent.add(message.spent);
    }

    /// K2: the events that a context can still show: those at these positions, and all from the returned position on.
    pub fn shown(&self) -> (&BTreeSet<Seq>, Seq) {
        static NOTHING: BTreeSet<Seq> = BTreeSet::new();
        self.compacted.as_ref().map_or((&NOTHING, Seq(1)), |kept| (&kept.waiting, kept.first_kept))
    }

    /// L5: the state rebuilt from a ledger's events, which start at seq 1.
    ///
    /// # Errors
    /// A payload does not pass the rules it was committed under: the table was changed from outside.
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
    /// The id of the claim that made the lease. A claim whose answer was lost recognises itself by it (I6).
    pub claim: CommitId,
    /// From when on others may claim. It only lets work go on; what makes writes safe is the epoch (C2).
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
    /// An owner may claim it, at `not_before` at the earliest.
    Pending,
    /// An attempt has the lease.
    Running,
    /// H1: something outside must happen first. Nobody has the lease, and no attempt counts.
    Waiting,
    /// The last run answered everything it was given.
    Done,
    /// The last run was cancelled or spent its attempts.
    Failed,
}

impl RunStatus {
    /// Every status.
    pub const ALL: [RunStatus; 6] = [
        RunStatus::Idle,
        RunStatus::Pending,
        RunStatus::Running,
        RunStatus::Waiting,
        RunStatus::Done,
        RunStatus::Failed,
    ];

    /// Pending, running or waiting: new input joins it instead of starting another.
    pub fn is_live(self) -> bool {
        match self {
            RunStatus::Pending | RunStatus::Running | RunStatus::Waiting => true,
            RunStatus::Idle | RunStatus::Done | RunStatus::Failed => false,
        }
    }

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            RunStatus::Idle => "idle",
            RunStatus::Pending => "pending",
            RunStatus::Running => "running",
            RunStatus::Waiting => "waiting",
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

/// H1: what a waiting run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitReason {
    /// A person's answer (H2).
    Decision,
    /// A child session's end (H4).
    Child,
    /// A higher budget (H5).
    Budget,
}

impl WaitReason {
    /// Every reason.
    pub const ALL: [WaitReason; 3] = [WaitReason::Decision, WaitReason::Child, WaitReason::Budget];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            WaitReason::Decision => "decision",
            WaitReason::Child => "child",
            WaitReason::Budget => "budget",
        }
    }
}

/// What the last settle did. An owner that settles again gets the same result (I6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastSettle {
    /// The epoch that settled.
    pub epoch: Epoch,
    /// What the run became then.
    pub status: RunStatus,
}

/// A session's run, as the head has it. It survives every takeover (A5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// What it is doing.
    pub status: RunStatus,
    /// Attempts spent, the current one included. A hand-over gives its attempt back (S5).
    pub attempts: u32,
    /// How often it was handed over.
    pub handovers: u32,
    /// The earliest moment of the next claim (backoff). Of a waiting run: from when on it may be claimed although nothing
    /// happened; 0: the wait has no end.
    pub not_before: Millis,
    /// A4: the last seq when the run was first claimed. Inputs up to it are this run's; `None`: not claimed yet.
    pub watermark: Option<Seq>,
    /// A client asked to cancel when this was the last seq. Input after it starts the next run.
    pub cancel: Option<Seq>,
    /// Why it failed, where it did.
    pub reason: Option<FailReason>,
    /// H1: what it waits for, where it does.
    pub waits: Option<WaitReason>,
    /// H1: how often something happened that it might wait for. An owner that parks it has seen all of them.
    pub nudges: u64,
    /// K3: a compaction was asked for after the current attempt had begun, so the next attempt makes it, in a run of its
    /// own if need be.
    pub compact_next: bool,
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

/// A session's head: its current state.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// Whose loop answers it.
    pub state_owner: StateOwner,
    /// C6: it takes no more commits.
    pub closed: bool,
    /// Attempts that each run may have.
    pub max_attempts: u32,
    /// What the ledger determines.
    pub ledger: LedgerState,
    /// The current run, or the last one.
    pub run: Run,
    /// The newest epoch claimed.
    pub epoch: Epoch,
    /// The current lease, if somebody holds one.
    pub lease: Option<Lease>,
    /// S1: the newest epoch that committed its run.finished.
    pub finished: Epoch,
    /// H5: what the session may spend.
    pub budget: Budget,
    /// H4: the session whose run this one works for.
    pub parent: Option<SessionId>,
    /// H4: a run ended, and the parent was not nudged about it yet.
    pub tells_parent: bool,
    /// K3: somebody asked for a compaction.
    pub compact: bool,
    /// When the sweep looks at the session next; `None` where nothing is due. Set when a run becomes pending and left
    /// alone until it settles, since an indexed attribute must not change with every commit.
    pub due: Option<Millis>,
}

impl Head {
    /// A new session's head.
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
            budget: Budget::default(),
            parent: None,
            tells_parent: false,
            compact: false,
            due: None,
        }
    }

    /// A2, A3: a model must be asked: an input is unanswered, or a turn is owed.
    pub fn is_owed(&self) -> bool {
        self.ledger.owed_turn || !self.ledger.unanswered.is_empty()
    }

    /// S: there is unanswered input above the run's watermark.
    pub fn newer_input(&self) -> bool {
        self.ledger.unanswered.last().copied() > self.run.watermark
    }

    /// C2: the token is the current lease's.
    ///
    /// # Errors
    /// [`Refusal::Fenced`].
    pub fn check_lease(&self, token: &LeaseToken) -> Result<(), Refusal> {
        let current = self.lease.as_ref().is_some_and(|lease| lease.owner == token.owner);
        if current && token.epoch == self.epoch {
            Ok(())
        } else {
            Err(Refusal::Fenced { current_epoch: self.epoch })
        }
    }

    /// C6: the session is open.
    ///
    /// # Errors
    /// [`Refusal::SessionClosed`].
    pub fn check_open(&self) -> Result<(), Refusal> {
        if self.closed { Err(Refusal::SessionClosed) } else { Ok(()) }
    }

    /// C4: the session is native.
    ///
    /// # Errors
    /// [`Refusal::ExternalSession`].
    pub fn check_native(&self) -> Result<(), Refusal> {
        match self.state_owner {
            StateOwner::Native => Ok(()),
            StateOwner::External => Err(Refusal::ExternalSession),
        }
    }

    /// Begins a new run: pending, and due for the sweep after the grace period.
    pub(crate) fn start_run(&mut self, now: Millis) {
        self.run = Run { nudges: self.run.nudges, ..Run::fresh(self.run.settled.clone()) };
        self.due = Some(now.plus(crate::caps::PENDING_GRACE_MS));
    }

    /// H1: makes a waiting run pending: something that it waited for has happened.
    pub(crate) fn resume(&mut self, now: Millis) {
        self.run.status = RunStatus::Pending;
        self.run.waits = None;
        self.run.not_before = Millis(0);
        self.due = Some(now.plus(crate::caps::PENDING_GRACE_MS));
    }

    /// Ends the run. Nothing is due any more, except to nudge the parent of a child (H4).
    pub(crate) fn end_run(&mut self, now: Millis) {
        self.compact = false;
        self.tells_parent |= self.parent.is_some();
        self.due = self.tells_parent.then_some(now);
    }

    /// H5: the budget is reached.
    pub fn is_spent(&self) -> bool {
        self.budget.is_reached(self.ledger.spent)
    }
}
