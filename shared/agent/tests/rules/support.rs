//! A ledger in memory under the kernel's real rules, and the session port of each of its owners.

mod owner;
mod waits;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use keel_agent::compact::Window;
pub(crate) use keel_agent::provider::text_of;
use keel_agent::tool::builtin::Builtin;
use keel_agent::{CallState, Partial, RunContext, SessionPort, SessionPortError, SettleResult};
use keel_kernel::commit::{Commit, decide};
use keel_kernel::requests;
use keel_kernel::run::{self, ClaimRequest, Outcome, Settle, Settled};
use keel_kernel::testing::MemorySession;
use keel_kernel::transcript::History;
use keel_kernel::waiting;
use keel_kernel::{
    CommitId, DedupeKey, Event, Head, KeyName, Kind, LeaseToken, LedgerState, Millis, NewEvent, Obstacles,
    OwnerId, Payload, Refusal, Seq, SessionDescription, SessionId, StateOwner, Transition,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use owner::Counting;
pub(crate) use owner::{Owner, Recording};
pub(crate) use waits::MemoryWaits;

/// How long leases hold, and how long a failed attempt waits, in milliseconds.
pub(crate) const LEASE_MS: u64 = 60_000;
pub(crate) const BACKOFF_MS: u64 = 1_000;
pub(crate) const ATTEMPTS: u32 = 3;

/// A session in memory, and what was published of it.
struct Row {
    memory: MemorySession,
    partials: Vec<Partial>,
}

impl std::ops::Deref for Row {
    type Target = MemorySession;

    fn deref(&self) -> &MemorySession {
        &self.memory
    }
}

/// What the waiting of a session depends on.
#[derive(Default)]
pub(crate) struct Outside {
    /// The state of each call, by the tool's name; a tool that is not here is ready.
    pub(crate) call_states: BTreeMap<String, CallState>,
    /// What was opened, and what was abandoned.
    pub(crate) opened: Vec<String>,
    pub(crate) abandoned: Vec<String>,
    /// H5: the tokens that the session may spend.
    pub(crate) budget: Option<u64>,
}

type Hook = Box<dyn FnOnce(&Ledger) + Send>;

/// A session's ledger.
pub(crate) struct Ledger {
    row: Mutex<Row>,
    started: Instant,
    ids: AtomicU64,
    pub(crate) outside: Mutex<Outside>,
    before_settle: Mutex<VecDeque<Hook>>,
    /// Happens right before the next park is decided.
    before_park: Mutex<VecDeque<Hook>>,
    /// S2: a settle that brings a run.finished is refused.
    pub(crate) refuse_summaries: Mutex<bool>,
    /// R3: chunks from this index on do not reach the store.
    pub(crate) partials_fail_from: Mutex<Option<u32>>,
    /// An owner was lost, or its store failed: a generation that it was streaming may stay without its last partial (see
    /// `r3a_a_fenced_owners_generation_says_that_it_died`).
    lost: Mutex<bool>,
    /// I6: the next owner commit is written, and its answer lost.
    pub(crate) lose_answer: Mutex<bool>,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics with it held")
}

impl Ledger {
    pub(crate) fn new() -> Arc<Ledger> {
        let head = Head::new(StateOwner::Native, ATTEMPTS);
        let id = SessionId::parse("s").expect("a session id");
        let description = SessionDescription::native(id, Millis(0));
        let row = Row { memory: MemorySession::new(description, head), partials: Vec::new() };
        Arc::new(Ledger {
            row: Mutex::new(row),
            started: Instant::now(),
            ids: AtomicU64::new(0),
            outside: Mutex::default(),
            before_settle: Mutex::default(),
            before_park: Mutex::default(),
            refuse_summaries: Mutex::default(),
            partials_fail_from: Mutex::default(),
            lost: Mutex::default(),
            lose_answer: Mutex::default(),
        })
    }

    fn now(&self) -> Millis {
        Millis(1_000_000 + u64::try_from(self.started.elapsed().as_millis()).expect("a short test"))
    }

    fn unique(&self, prefix: &str) -> String {
        format!("{prefix}-{:04}", self.ids.fetch_add(1, Ordering::Relaxed))
    }

    fn commit_id(&self) -> CommitId {
        CommitId::parse(self.unique("commit")).expect("visible ASCII")
    }

    fn commit(&self, lease: Option<&LeaseToken>, events: Vec<NewEvent>) -> Result<(), Refusal> {
        let row = &mut *locked(&self.row);
        let events = row.unknown(events)?;
        if events.is_empty() {
            return Ok(());
        }
        let id = self.commit_id();
        let commit = Commit { id: &id, lease, lease_ms: LEASE_MS, events: &events };
        row.write(decide(&row.head, self.now(), &commit)?)
    }

    /// Commits an input; its seq.
    pub(crate) fn input(&self, delivery: &str, text: &str) -> u64 {
        let payload = Payload::from_value(&json!({ "text": text, "delivery": delivery })).expect("strict");
        let key = DedupeKey::parse(self.unique("request")).expect("visible ASCII");
        let new = NewEvent { kind: Kind::UserMessage, payload, key: Some((KeyName::RequestId, key)) };
        self.commit(None, vec![new]).expect("the input is accepted");
        self.head().ledger.seq.0
    }

    pub(crate) fn queue(&self, text: &str) -> u64 {
        self.input("queue", text)
    }

    pub(crate) fn guide(&self, text: &str) -> u64 {
        self.input("guide", text)
    }

    pub(crate) fn close(&self) {
        let row = &mut *locked(&self.row);
        let transition = requests::close(&row.head, self.now(), &[]).expect("it is open");
        row.write(transition).expect("no keys");
    }

    /// A client asks for a compaction.
    pub(crate) fn ask_compaction(&self) {
        let row = &mut *locked(&self.row);
        let transition =
            requests::ask_compaction(&row.head, self.now()).expect("native and open").expect("not asked yet");
        row.write(transition).expect("no keys");
    }

    /// Nudges the run.
    pub(crate) fn nudge(&self) {
        let row = &mut *locked(&self.row);
        if let Some(transition) = waiting::nudge(&row.head, self.now()) {
            row.write(transition).expect("no keys");
        }
    }

    /// Sets the state of a tool's calls, and nudges the run.
    pub(crate) fn set_call_state(&self, tool: &str, call_state: CallState) {
        locked(&self.outside).call_states.insert(tool.to_owned(), call_state);
        self.nudge();
    }

    /// Does this right before the next park is decided.
    pub(crate) fn before_park(&self, hook: impl FnOnce(&Ledger) + Send + 'static) {
        locked(&self.before_park).push_back(Box::new(hook));
    }

    /// Does this right before the next settle is decided.
    pub(crate) fn before_settle(&self, hook: impl FnOnce(&Ledger) + Send + 'static) {
        locked(&self.before_settle).push_back(Box::new(hook));
    }

    /// Claims the run for an owner, which must succeed.
    pub(crate) fn claim(self: &Arc<Self>, name: &str) -> Owner {
        let owner = OwnerId::parse(name).expect("visible ASCII");
        let request = ClaimRequest { owner: owner.clone(), id: self.commit_id(), lease_ms: LEASE_MS };
        let row = &mut *locked(&self.row);
        let transition = run::claim(&row.head, self.now(), &request).expect("the run is claimable");
        row.write(transition).expect("no keys");
        let token = LeaseToken { owner, epoch: row.head.epoch };
        let context = RunContext {
            watermark: row.head.run.watermark,
            attempt: row.head.run.attempts,
            max_attempts: row.head.max_attempts,
            max_turns: 10,
            model: None,
            system: None,
            backoff_ms: BACKOFF_MS,
            window: Window::default(),
            compact: row.head.compact,
        };
        Owner {
            session_port: MemorySessionPort { ledger: self.clone(), token: token.clone() },
            waits: MemoryWaits::new(self.clone(), token),
            context,
            signals: watch::Sender::default(),
            provider: Recording::default(),
            slow_ms: 0,
            tools: Arc::new(Counting::new(Builtin::new(|| "noon".to_owned()))),
        }
    }

    pub(crate) fn head(&self) -> Head {
        locked(&self.row).head.clone()
    }

    pub(crate) fn partials(&self) -> Vec<Partial> {
        locked(&self.row).partials.clone()
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        locked(&self.row).events.clone()
    }

    /// The kinds of all events, in order.
    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        self.events().iter().map(|event| event.kind.as_str()).collect()
    }

    /// The payloads of one kind, in order.
    pub(crate) fn payloads(&self, kind: Kind) -> Vec<Value> {
        let events = self.events();
        let wanted = events.iter().filter(|event| event.kind == kind);
        wanted.map(|event| event.payload.value().clone()).collect()
    }

    pub(crate) fn answers(&self) -> Vec<Value> {
        self.payloads(Kind::AssistantMessage)
    }

    /// The inputSeqs of every assistant message.
    pub(crate) fn input_seqs(&self) -> Vec<Value> {
        self.answers().iter().map(|answer| answer["inputSeqs"].clone()).collect()
    }

    /// The `status` of every run.finished.
    pub(crate) fn summaries(&self) -> Vec<Value> {
        self.payloads(Kind::RunFinished).iter().map(|summary| summary["status"].clone()).collect()
    }

    /// What must hold of any ledger, whatever its owners did.
    fn check(&self) {
        let row = locked(&self.row);
        assert_eq!(LedgerState::fold(&row.events).expect("it reads back"), row.head.ledger, "L5");
        let summaries = row.events.iter().filter(|event| event.kind == Kind::RunFinished);
        let mut epochs = BTreeSet::new();
        assert!(summaries.into_iter().all(|event| epochs.insert(event.epoch)), "S1: one per attempt");
        assert!(epochs.iter().all(Option::is_some), "S1: under the lease");
        check_partials(&row.partials, &row.events, *locked(&self.lost));
    }
}

/// R3a: joined, the partials of a generation are a prefix of its text; one that died says so.
pub(crate) fn check_partials(partials: &[Partial], events: &[Event], lost: bool) {
    let mut generations: BTreeMap<&str, Vec<&Partial>> = BTreeMap::new();
    for partial in partials {
        generations.entry(&partial.generation_id).or_default().push(partial);
    }
    for (generation, chunks) in generations {
        let joined: String = chunks.iter().map(|chunk| chunk.text.as_str()).collect();
        assert!(chunks.iter().zip(0..).all(|(chunk, index)| chunk.index == index), "R3a: in order");
        let (last, before) = chunks.split_last().expect("at least one");
        assert!(before.iter().all(|chunk| chunk.dead.is_none()), "R3a: nothing follows a death");
        let id =
            |event: &&Event| event.payload.get("generationId").and_then(Value::as_str) == Some(generation);
        match events.iter().find(id) {
            None => assert!(lost || last.dead.is_some(), "R3a: {generation} died and does not say so"),
            Some(event) => {
                let text = text_of(event.payload.value());
                let failed =
                    matches!(event.payload.value()["stopReason"].as_str(), Some("error" | "aborted"));
                assert_eq!(last.dead.is_some(), failed, "R3a: {generation}: dead is who failed");
                let forgotten = failed && text.is_empty(); // a failed message need not keep what was said
                assert!(forgotten || text.starts_with(&joined), "R3a: {joined:?} is no prefix of {text:?}");
            }
        }
    }
}

impl Row {
    /// I3, I5: those of the events that the ledger does not hold.
    fn unknown(&self, events: Vec<NewEvent>) -> Result<Vec<NewEvent>, Refusal> {
        let mut unknown = Vec::new();
        for new in events {
            match new.key.as_ref().and_then(|key| self.keys.get(key)) {
                Some(row) if row.digest == new.sent()?.1 => {}
                Some(_) => {
                    let (name, key) = new.key.expect("it was found by its key");
                    return Err(Refusal::IdempotencyConflict { name, key: key.into(), seq: Seq::ZERO });
                }
                None => unknown.push(new),
            }
        }
        Ok(unknown)
    }

    /// Carries out a transition that was decided on the head as it is.
    fn write(&mut self, transition: Transition) -> Result<(), Refusal> {
        let before = self.head.clone();
        match self.memory.write(&before, &transition) {
            Ok(()) => Ok(()),
            Err(Obstacles { call: Some(call), .. }) => Err(Refusal::CallIdReused(call.to_string())),
            Err(obstacles) => panic!("I2: what a transition needs is looked up first: {obstacles:?}"),
        }
    }
}

/// The session as one owner sees it.
pub(crate) struct MemorySessionPort {
    ledger: Arc<Ledger>,
    token: LeaseToken,
}

fn refused(refusal: Refusal) -> SessionPortError {
    match refusal {
        Refusal::Fenced { .. } | Refusal::SessionClosed => SessionPortError::Lost,
        refusal => SessionPortError::Refused(refusal),
    }
}

#[async_trait]
impl SessionPort for MemorySessionPort {
    async fn history(&self) -> Result<History, SessionPortError> {
        let row = locked(&self.ledger.row);
        let state = row.head.ledger.clone();
        let (waiting, from) = state.shown();
        let shown = |event: &&Event| event.seq >= from || waiting.contains(&event.seq);
        let events = row.events.iter().filter(shown).cloned().collect();
        History::resume(state.clone(), events).map_err(SessionPortError::Refused)
    }

    async fn events_after(&self, after: Seq) -> Result<Vec<Event>, SessionPortError> {
        let row = locked(&self.ledger.row);
        Ok(row.events.iter().filter(|event| event.seq > after).cloned().collect())
    }

    async fn commit(&self, events: Vec<NewEvent>) -> Result<(), SessionPortError> {
        self.ledger.commit(Some(&self.token), events).map_err(refused)?;
        if std::mem::take(&mut *locked(&self.ledger.lose_answer)) {
            return Err(SessionPortError::Store("the answer was lost".into()));
        }
        Ok(())
    }

    async fn settle(
        &self,
        outcome: Outcome,
        events: Vec<NewEvent>,
        only_at: Option<Seq>,
    ) -> Result<SettleResult, SessionPortError> {
        let hook = locked(&self.ledger.before_settle).pop_front();
        if let Some(hook) = hook {
            hook(&self.ledger);
        }
        let summary = events.iter().any(|event| event.kind == Kind::RunFinished);
        if summary && *locked(&self.ledger.refuse_summaries) {
            return Err(SessionPortError::Refused(Refusal::LimitReached { what: "summaries", limit: 0 }));
        }
        let row = &mut *locked(&self.ledger.row);
        let events = row.unknown(events).map_err(refused)?;
        let id = self.ledger.commit_id();
        let settle = Settle { id: &id, token: &self.token, outcome, events: &events };
        match run::settle(&row.head, self.ledger.now(), &settle).map_err(refused)? {
            Settled::Before(status) => Ok(SettleResult::Settled(status)),
            Settled::Now(_) if only_at.is_some_and(|seq| seq != row.head.ledger.seq) => {
                Ok(SettleResult::Moved)
            }
            Settled::Now(transition) => {
                row.write(transition).map_err(refused)?;
                Ok(SettleResult::Settled(row.head.run.status))
            }
        }
    }

    async fn release(&self) -> Result<(), SessionPortError> {
        let row = &mut *locked(&self.ledger.row);
        match run::release(&row.head, self.ledger.now(), &self.token).map_err(refused)? {
            Some(transition) => row.write(transition).map_err(refused),
            None => Ok(()),
        }
    }

    async fn partial(&self, partial: Partial) -> Result<(), SessionPortError> {
        if locked(&self.ledger.partials_fail_from).is_some_and(|from| partial.index >= from) {
            return Err(SessionPortError::Store("it is busy".into()));
        }
        locked(&self.ledger.row).partials.push(partial);
        Ok(())
    }
}
