//! A session in memory that writes the kernel's transitions as a store must, and short functions that make events.

use keel_kernel::commit::decide;
use keel_kernel::requests;
use keel_kernel::run::{self, ClaimRequest, Outcome, Settle, Settled};
use keel_kernel::testing::MemorySession;
use keel_kernel::transcript::History;
use keel_kernel::transition::Obstacles;
use keel_kernel::waiting;
use keel_kernel::{
    Commit, CommitId, DedupeKey, Event, Head, KeyName, Kind, LeaseToken, Millis, NewEvent, OwnerId, Payload,
    Refusal, RunStatus, Seq, SessionDescription, SessionId, StateOwner, Transition, WaitReason,
};
use serde_json::{Value, json};

/// How long leases hold here, in milliseconds.
pub(crate) const LEASE_MS: u64 = 60_000;
/// Attempts that a run of a [`Session::native`] may have.
pub(crate) const ATTEMPTS: u32 = 3;

pub(crate) fn key(text: &str) -> DedupeKey {
    DedupeKey::parse(text).expect("a test's key is well formed")
}

pub(crate) fn payload(value: &Value) -> Payload {
    Payload::from_value(value).expect("a test's payload is strict JSON")
}

pub(crate) fn event(kind: Kind, value: &Value, key: Option<(KeyName, DedupeKey)>) -> NewEvent {
    NewEvent { kind, payload: payload(value), key }
}

pub(crate) fn queue(request_id: &str) -> NewEvent {
    let value = json!({ "text": request_id, "delivery": "queue" });
    event(Kind::UserMessage, &value, Some((KeyName::RequestId, key(request_id))))
}

pub(crate) fn guide(request_id: &str) -> NewEvent {
    let value = json!({ "text": request_id, "delivery": "guide" });
    event(Kind::UserMessage, &value, Some((KeyName::RequestId, key(request_id))))
}

/// A completed answer, with calls if any are named.
pub(crate) fn answer(generation: &str, input_seqs: &[u64], calls: &[&str]) -> NewEvent {
    let stop = if calls.is_empty() { "end_turn" } else { "tool_use" };
    message(generation, Some(input_seqs), calls, stop)
}

/// A failed answer.
pub(crate) fn failed(generation: &str, input_seqs: &[u64]) -> NewEvent {
    message(generation, Some(input_seqs), &[], "error")
}

pub(crate) fn message(generation: &str, inputs: Option<&[u64]>, calls: &[&str], stop: &str) -> NewEvent {
    let content: Vec<Value> = calls
        .iter()
        .map(|id| json!({ "type": "toolCall", "id": id, "name": "echo", "arguments": {} }))
        .collect();
    let mut value = json!({ "content": content, "stopReason": stop });
    if let Some(inputs) = inputs {
        value["inputSeqs"] = json!(inputs);
    }
    event(Kind::AssistantMessage, &value, Some((KeyName::GenerationId, key(generation))))
}

pub(crate) fn result(call: &str) -> NewEvent {
    let value = json!({ "toolCallId": call, "content": "42" });
    event(Kind::ToolResult, &value, Some((KeyName::ToolCallId, key(call))))
}

pub(crate) fn finished(status: &str) -> NewEvent {
    event(Kind::RunFinished, &json!({ "status": status }), None)
}

pub(crate) fn external(request_id: &str) -> NewEvent {
    let value = json!({ "backend": "b", "externalRef": request_id });
    event(Kind::ExternalEvent, &value, Some((KeyName::RequestId, key(request_id))))
}

/// The outcome of a commit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Committed {
    /// It was written as these events.
    Wrote(Vec<Event>),
    /// I3: every key is held by an event with the same payload.
    Replayed(Vec<Seq>),
}

impl Committed {
    /// The seqs of the events, which must have been written.
    pub(crate) fn seqs(self) -> Vec<u64> {
        match self {
            Committed::Wrote(events) => events.iter().map(|event| event.seq.0).collect(),
            Committed::Replayed(seqs) => panic!("replayed {seqs:?}"),
        }
    }
}

/// A session in memory, and a clock.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) memory: MemorySession,
    pub(crate) now: Millis,
    commits: u64,
}

impl std::ops::Deref for Session {
    type Target = MemorySession;

    fn deref(&self) -> &MemorySession {
        &self.memory
    }
}

impl std::ops::DerefMut for Session {
    fn deref_mut(&mut self) -> &mut MemorySession {
        &mut self.memory
    }
}

impl Session {
    pub(crate) fn new(state_owner: StateOwner) -> Self {
        let id = SessionId::parse("s").expect("a session id");
        let description = SessionDescription { state_owner, ..SessionDescription::native(id, Millis(0)) };
        let memory = MemorySession::new(description, Head::new(state_owner, ATTEMPTS));
        Self { memory, now: Millis(1_000_000), commits: 0 }
    }

    pub(crate) fn native() -> Self {
        Self::new(StateOwner::Native)
    }

    pub(crate) fn commit_id(&mut self) -> CommitId {
        self.commits += 1;
        CommitId::parse(format!("commit-{}", self.commits)).expect("visible ASCII")
    }

    /// Writes a transition that was decided on the current head.
    pub(crate) fn carry_out(&mut self, transition: Transition) -> Result<Vec<Event>, Refusal> {
        let before = self.head.clone();
        match self.memory.write(&before, &transition) {
            Ok(()) => Ok(transition.events),
            Err(Obstacles { call: Some(call), .. }) => Err(Refusal::CallIdReused(call.to_string())),
            Err(obstacles) => panic!("I2: what a transition needs is looked up first: {obstacles:?}"),
        }
    }

    /// I3, I5: the outcome that follows from the taken keys of a commit; `None`: none is taken.
    fn replay(&self, events: &[NewEvent]) -> Result<Option<Committed>, Refusal> {
        let mut seqs = Vec::new();
        for new in events {
            let Some((name, key)) = &new.key else { continue };
            let Some(row) = self.keys.get(&(*name, key.clone())) else { continue };
            if new.sent()?.1 != row.digest {
                return Err(Refusal::IdempotencyConflict { name: *name, key: key.to_string(), seq: row.seq });
            }
            seqs.push(row.seq);
        }
        Ok((!seqs.is_empty()).then_some(Committed::Replayed(seqs)))
    }

    pub(crate) fn commit(
        &mut self,
        lease: Option<&LeaseToken>,
        events: Vec<NewEvent>,
    ) -> Result<Committed, Refusal> {
        let id = self.commit_id();
        let commit = Commit { id: &id, lease, lease_ms: LEASE_MS, events: &events };
        match decide(&self.head, self.now, &commit) {
            Err(refusal) if !refusal.depends_on_state() => Err(refusal),
            Err(refusal) => self.replay(&events)?.ok_or(refusal),
            Ok(transition) => match self.replay(&events)? {
                Some(replayed) => Ok(replayed),
                None => self.carry_out(transition).map(Committed::Wrote),
            },
        }
    }

    /// Commits one input, which must be written. Returns its seq.
    pub(crate) fn input(&mut self, new: NewEvent) -> u64 {
        self.commit(None, vec![new]).expect("the input is accepted").seqs()[0]
    }

    /// Commits an owner's events, which must be written. Returns their seqs.
    pub(crate) fn own(&mut self, token: &LeaseToken, events: Vec<NewEvent>) -> Vec<u64> {
        self.commit(Some(token), events).expect("the owner's commit is accepted").seqs()
    }

    /// Claims the run, which must be claimable.
    pub(crate) fn claim(&mut self, owner: &str) -> LeaseToken {
        self.try_claim(owner).expect("the run is claimable")
    }

    pub(crate) fn try_claim(&mut self, owner: &str) -> Result<LeaseToken, run::NotClaimable> {
        let owner = OwnerId::parse(owner).expect("a test's owner is well formed");
        let request = ClaimRequest { owner: owner.clone(), id: self.commit_id(), lease_ms: LEASE_MS };
        let transition = run::claim(&self.head, self.now, &request)?;
        self.carry_out(transition).expect("a claim takes no keys");
        Ok(LeaseToken { owner, epoch: self.head.epoch })
    }

    /// Settles with a run.finished and nothing else. Returns the run's status.
    pub(crate) fn settle(&mut self, token: &LeaseToken, outcome: Outcome) -> RunStatus {
        let status = match outcome {
            Outcome::Succeeded => "done",
            Outcome::Failed { .. } => "failed",
            Outcome::Cancelled => "cancelled",
        };
        self.try_settle(token, outcome, vec![finished(status)]).expect("the settle is accepted").0
    }

    /// Settles. Returns the run's status, and whether this call wrote it.
    pub(crate) fn try_settle(
        &mut self,
        token: &LeaseToken,
        outcome: Outcome,
        events: Vec<NewEvent>,
    ) -> Result<(RunStatus, bool), Refusal> {
        let id = self.commit_id();
        let settle = Settle { id: &id, token, outcome, events: &events };
        match run::settle(&self.head, self.now, &settle)? {
            Settled::Before(status) => Ok((status, false)),
            Settled::Now(transition) => {
                self.carry_out(transition)?;
                Ok((self.head.run.status, true))
            }
        }
    }

    pub(crate) fn release(&mut self, token: &LeaseToken) -> Result<bool, Refusal> {
        let transition = run::release(&self.head, self.now, token)?;
        self.carry_out_some(transition)
    }

    pub(crate) fn cancel(&mut self) -> Result<bool, Refusal> {
        let transition = requests::cancel(&self.head, self.now)?;
        self.carry_out_some(transition)
    }

    pub(crate) fn park(&mut self, token: &LeaseToken, seen: u64) -> Result<bool, Refusal> {
        let transition = waiting::park(&self.head, token, seen, WaitReason::Decision, None)?;
        self.carry_out_some(transition)
    }

    pub(crate) fn nudge(&mut self) -> bool {
        let transition = waiting::nudge(&self.head, self.now);
        self.carry_out_some(transition).expect("a nudge takes no keys")
    }

    pub(crate) fn queue(&mut self) -> Result<bool, Refusal> {
        let transition = requests::queue(&self.head, self.now)?;
        self.carry_out_some(transition)
    }

    pub(crate) fn close(&mut self) -> bool {
        let transition = requests::close(&self.head, self.now, &[]);
        self.carry_out_some(transition).expect("closing takes no keys")
    }

    fn carry_out_some(&mut self, transition: Option<Transition>) -> Result<bool, Refusal> {
        let Some(transition) = transition else { return Ok(false) };
        self.carry_out(transition)?;
        Ok(true)
    }

    /// Lets so many milliseconds pass.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
    }

    pub(crate) fn history(&self) -> History {
        let mut history = History::default();
        for event in &self.events {
            history.push(event.clone()).expect("a committed event reads back");
        }
        history
    }

    /// A2: the unanswered inputs, as numbers.
    pub(crate) fn unanswered(&self) -> Vec<u64> {
        self.head.ledger.unanswered.iter().map(|seq| seq.0).collect()
    }
}
