//! The random commands: what is drawn, how it is fitted to the session, and what is compared.

use keel_kernel::budget::Budget;
use keel_kernel::decision::{Decision, DecisionAnswer, Verdict};
use keel_kernel::event::ToolCall;
use keel_kernel::run::{NotClaimable, Outcome};
use keel_kernel::session::SessionPatch;
use keel_kernel::testing::MemorySession;
use keel_kernel::{
    DedupeKey, Epoch, Head, LeaseToken, Millis, NewEvent, Payload, Refusal, RunStatus, Seq, Session,
    SessionDescription, WaitReason,
};
use keel_ledger::port::{Consistency, EventPage};
use keel_ledger::{Appended, Claimed, LedgerError, SessionKey, SettledRun};
use proptest::prelude::*;

use crate::support::{Rig, answer, compaction, finished, keeping, key, owner, payload, result};

/// A command as drawn: small numbers that [`Driver::resolve`] gives a meaning.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) external: bool,
    act: Act,
}

#[derive(Clone, Debug)]
enum Act {
    Input { key: Option<u8>, body: u8, guide: bool },
    External { key: u8, body: u8 },
    Commit { token: Whose, known: Option<u8>, events: Vec<New> },
    Claim { owner: u8 },
    Renew { token: Whose, known: Option<u8> },
    Release { token: Whose, known: Option<u8> },
    Settle { token: Whose, known: Option<u8>, outcome: u8, events: Vec<New>, only_at: Option<bool> },
    Park { token: Whose, behind: bool, until: Option<u16> },
    Nudge,
    Budget(u8),
    AskCompaction,
    QueueRun,
    Cancel,
    Close,
    Events { back: u8, limit: usize },
    Wait(u64),
    Create { other: bool },
    Patch { title: bool, budget: Option<u8>, only_at: Option<u8> },
    Open { token: Whose, call: u8 },
    Decide { call: u8, verdict: u8, right: bool },
    Withdraw { call: u8 },
    BeginChild { call: u8 },
    Children,
}

#[derive(Clone, Copy, Debug)]
enum Whose {
    Current,
    Stale,
    OtherName,
    Nobody,
}

#[derive(Clone, Debug)]
enum New {
    Answer { generation: u8, inputs: u8, calls: Vec<u8> },
    Result { call: u8, output: u8 },
    Compaction(u8),
    Finished(u8),
}

pub(super) fn command() -> impl Strategy<Value = Command> {
    (proptest::bool::weighted(0.12), act()).prop_map(|(external, act)| Command { external, act })
}

fn act() -> impl Strategy<Value = Act> {
    let known = || proptest::option::of(prop_oneof![3 => Just(0u8), 2 => 1..6u8]);
    prop_oneof![
        6 => (proptest::option::weighted(0.85, 0..8u8), 0..4u8, any::<bool>())
            .prop_map(|(key, body, guide)| Act::Input { key, body, guide }),
        2 => (0..4u8, 0..3u8).prop_map(|(key, body)| Act::External { key, body }),
        11 => (whose(), known(), proptest::collection::vec(new(), 1..4))
            .prop_map(|(token, known, events)| Act::Commit { token, known, events }),
        6 => (0..3u8).prop_map(|owner| Act::Claim { owner }),
        2 => (whose(), known()).prop_map(|(token, known)| Act::Renew { token, known }),
        1 => (whose(), known()).prop_map(|(token, known)| Act::Release { token, known }),
        4 => (whose(), known(), 0..5u8, proptest::collection::vec(new(), 0..3), proptest::option::of(any::<bool>()))
            .prop_map(|(token, known, outcome, events, only_at)| {
                Act::Settle { token, known, outcome, events, only_at }
            }),
        2 => (whose(), proptest::bool::weighted(0.2), proptest::option::of(any::<u16>()))
            .prop_map(|(token, behind, until)| Act::Park { token, behind, until }),
        2 => Just(Act::Nudge),
        1 => any::<u8>().prop_map(Act::Budget),
        1 => Just(Act::AskCompaction),
        1 => Just(Act::QueueRun),
        1 => Just(Act::Cancel),
        1 => proptest::bool::weighted(0.12).prop_map(|close| if close { Act::Close } else { Act::QueueRun }),
        2 => (0..6u8, 1..5usize).prop_map(|(back, limit)| Act::Events { back, limit }),
        3 => prop_oneof![Just(1), Just(700), Just(30_000), Just(61_000), Just(61_000)].prop_map(Act::Wait),
        1 => any::<bool>().prop_map(|other| Act::Create { other }),
        2 => (any::<bool>(), proptest::option::of(any::<u8>()), proptest::option::of(0..3u8))
            .prop_map(|(title, budget, only_at)| Act::Patch { title, budget, only_at }),
        7 => (whose(), 0..6u8).prop_map(|(token, call)| Act::Open { token, call }),
        7 => (0..6u8, 0..3u8, proptest::bool::weighted(0.85))
            .prop_map(|(call, verdict, right)| Act::Decide { call, verdict, right }),
        1 => (0..6u8).prop_map(|call| Act::Withdraw { call }),
        1 => (0..6u8).prop_map(|call| Act::BeginChild { call }),
        1 => Just(Act::Children),
    ]
}

fn whose() -> impl Strategy<Value = Whose> {
    prop_oneof![
        12 => Just(Whose::Current), 2 => Just(Whose::Stale), 1 => Just(Whose::OtherName), 1 => Just(Whose::Nobody)
    ]
}

fn new() -> impl Strategy<Value = New> {
    prop_oneof![
        4 => (0..8u8, 0..5u8, proptest::collection::vec(0..6u8, 0..3))
            .prop_map(|(generation, inputs, calls)| New::Answer { generation, inputs, calls }),
        4 => (0..6u8, 0..2u8).prop_map(|(call, output)| New::Result { call, output }),
        1 => (0..3u8).prop_map(New::Compaction),
        2 => (0..3u8).prop_map(New::Finished),
    ]
}

/// A command that both ledgers get.
#[derive(Debug)]
pub(super) enum Verb {
    Input(Payload, Option<DedupeKey>),
    External(Payload, Option<DedupeKey>),
    Commit(Option<Head>, Option<LeaseToken>, Vec<NewEvent>),
    Claim(u8),
    Renew(Option<Head>, LeaseToken),
    Release(Option<Head>, LeaseToken),
    Settle(Option<Head>, LeaseToken, Outcome, Vec<NewEvent>, Option<Seq>),
    Park(LeaseToken, u64, Option<Millis>),
    Nudge,
    Budget(Budget),
    AskCompaction,
    QueueRun,
    Cancel,
    Close,
    Events(Seq, usize),
    Wait(u64),
    Create(SessionDescription),
    Patch(SessionPatch),
    Open(Head, LeaseToken, ToolCall),
    Decide(String, String, DecisionAnswer),
    Withdraw(Head, String),
    BeginChild(Head, ToolCall),
    Children,
}

/// The answer of a command.
#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    Appended(Result<Appended, Refusal>, usize),
    Claimed(Result<Result<Claimed, NotClaimable>, Refusal>),
    Head(Result<Head, Refusal>),
    Parked(Result<bool, Refusal>),
    Settled(Result<Option<SettledRun>, Refusal>),
    Page(Result<EventPage, Refusal>, usize),
    Session(Result<(Session, bool), Refusal>),
    Decided(Result<(Decision, bool), Refusal>),
    Done(Result<(), Refusal>),
    Children(Vec<Session>),
    Nothing,
}

/// Every head of the native session that an answer showed, the newest last. An owner may remember any of them.
#[derive(Default)]
pub(super) struct Driver(Vec<Head>);

impl Driver {
    fn known(&self, back: Option<u8>) -> Option<Head> {
        self.0.iter().rev().nth(usize::from(back?)).cloned()
    }

    pub(super) fn resolve(&self, command: &Command, there: &MemorySession, clock: Millis) -> Verb {
        let now = &there.head;
        match command.act.clone() {
            // Where nobody holds the lease, mostly somebody claims it first, since refusals alone would prove little.
            Act::Commit { token: Whose::Current, .. }
            | Act::Settle { token: Whose::Current, .. }
            | Act::Open { token: Whose::Current, .. }
                if now.lease.is_none() && !now.closed =>
            {
                match now.run.status {
                    RunStatus::Pending => Verb::Claim(0),
                    RunStatus::Waiting => Verb::Nudge,
                    RunStatus::Idle | RunStatus::Running | RunStatus::Done | RunStatus::Failed => {
                        let fresh = format!("n{}", now.ledger.seq);
                        Verb::Input(payload(&serde_json::json!({ "text": fresh })), Some(key(&fresh)))
                    }
                }
            }
            Act::Input { key: k, body, guide } => {
                // Two spellings of one payload, and two others.
                let spelling = match (body, guide) {
                    (0, false) => r#"{"text":"a","n":1.0}"#.to_owned(),
                    (1, false) => r#"{ "n": 1, "text": "\u0061" }"#.to_owned(),
                    (0 | 1, true) => r#"{"text":"a","delivery":"guide"}"#.to_owned(),
                    (other, _) => format!(r#"{{"text":"{other}"}}"#),
                };
                Verb::Input(Payload::parse(&spelling).expect("JSON"), k.map(|k| key(&format!("r{k}"))))
            }
            Act::External { key: k, body } => {
                let fact = serde_json::json!({ "backend": "b", "externalRef": "x", "n": body / 2 });
                Verb::External(payload(&fact), Some(key(&format!("r{k}"))))
            }
            Act::Commit { token, known, events } => {
                let token = if matches!(token, Whose::Nobody) { None } else { Some(token_of(token, now)) };
                Verb::Commit(self.known(known), token, resolve_events(&events, now))
            }
            Act::Claim { owner } => Verb::Claim(owner),
            Act::Renew { token, known } => Verb::Renew(self.known(known), token_of(token, now)),
            Act::Release { token, known } => Verb::Release(self.known(known), token_of(token, now)),
            Act::Settle { token, known, outcome, events, only_at } => {
                let outcome = match outcome {
                    0 => Outcome::Cancelled,
                    1 | 2 => Outcome::Failed { backoff_ms: 500 },
                    _ => Outcome::Succeeded,
                };
                let seq = now.ledger.seq;
                let only_at = only_at.map(|right| if right { seq } else { Seq(seq.0.saturating_sub(1)) });
                Verb::Settle(
                    self.known(known),
                    token_of(token, now),
                    outcome,
                    resolve_events(&events, now),
                    only_at,
                )
            }
            Act::Park { token, behind, until } => {
                let seen = now.run.nudges - u64::from(behind && now.run.nudges > 0);
                Verb::Park(token_of(token, now), seen, until.map(|ms| Millis(ms.into())))
            }
            Act::Nudge => Verb::Nudge,
            Act::Budget(tokens) => Verb::Budget(Budget { tokens: Some(tokens.into()), micros: None }),
            Act::AskCompaction => Verb::AskCompaction,
            Act::QueueRun => Verb::QueueRun,
            Act::Cancel => Verb::Cancel,
            Act::Close => Verb::Close,
            Act::Events { back, limit } => {
                Verb::Events(Seq(now.ledger.seq.0.saturating_sub(back.into())), limit)
            }
            Act::Wait(ms) => Verb::Wait(ms),
            Act::Create { other } => Verb::Create(SessionDescription {
                digest: if other { "other".to_owned() } else { there.description.digest.clone() },
                ..there.description.clone()
            }),
            Act::Patch { title, budget, only_at } => Verb::Patch(SessionPatch {
                title: title.then(|| Some(format!("t{clock}"))),
                budget: budget.map(|tokens| Budget { tokens: Some(tokens.into()), micros: None }),
                only_at: only_at.map(|ahead| vec![(there.description.revision + u64::from(ahead)) - 1]),
                ..SessionPatch::default()
            }),
            // No call is open, so a message asks for one first.
            Act::Open { token: Whose::Current, call } if now.ledger.open_calls.is_empty() => {
                let fresh = format!("o{}", now.ledger.seq);
                let asks = answer(&fresh, &[], &[&format!("c{}-{call}", now.ledger.seq)]);
                Verb::Commit(None, Some(token_of(Whose::Current, now)), vec![asks])
            }
            Act::Open { token, call } => Verb::Open(now.clone(), token_of(token, now), open_call(call, now)),
            Act::Decide { call, verdict, right } => {
                let arguments = serde_json::json!({ "n": 1 });
                let verdict = match verdict {
                    0 => Verdict::Allow,
                    1 => Verdict::Deny,
                    _ => Verdict::Edit { arguments: arguments.clone() },
                };
                // Mostly a decision that was opened.
                let found = there.decisions.values().nth(usize::from(call) / 3);
                let id = found.map_or_else(
                    || Decision::id_of(&there.description.session_id, &key(&format!("c{call}"))),
                    |decision| decision.id.clone(),
                );
                let digest = found.filter(|_| right).map_or("none".to_owned(), |found| found.digest.clone());
                let by = "somebody".to_owned();
                Verb::Decide(id, digest, DecisionAnswer { verdict, comment: None, by, at_ms: clock.0 })
            }
            Act::Withdraw { call } => match there.decisions.keys().nth(usize::from(call) / 2) {
                Some(id) => Verb::Withdraw(now.clone(), id.clone()),
                None => Verb::Children,
            },
            Act::BeginChild { call } => Verb::BeginChild(now.clone(), open_call(call, now)),
            Act::Children => Verb::Children,
        }
    }

    pub(super) async fn run(&self, rig: &Rig, at: &SessionKey, verb: &Verb) -> Reply {
        let ledger = &rig.ledger;
        match verb {
            Verb::Input(payload, key) => {
                Reply::Appended(told(ledger.input(at, payload.clone(), key.clone()).await), 1)
            }
            Verb::External(payload, key) => {
                Reply::Appended(told(ledger.external_event(at, payload.clone(), key.clone()).await), 1)
            }
            Verb::Commit(known, token, events) => {
                let ended = ledger.commit(at, known.clone(), token.clone(), events.clone()).await;
                Reply::Appended(told(ended), events.len())
            }
            Verb::Claim(n) => Reply::Claimed(told(ledger.claim(at, &owner(&format!("w{n}"))).await)),
            Verb::Renew(known, token) => Reply::Head(told(ledger.renew(at, known.clone(), token).await)),
            Verb::Release(known, token) => Reply::Head(told(ledger.release(at, known.clone(), token).await)),
            Verb::Settle(known, token, outcome, events, only_at) => Reply::Settled(told(
                ledger.settle(at, known.clone(), token, *outcome, events.clone(), *only_at).await,
            )),
            Verb::Park(token, seen, until) => {
                Reply::Parked(told(ledger.park(at, token, *seen, WaitReason::Child, *until).await))
            }
            Verb::Nudge => Reply::Head(told(ledger.nudge(at).await)),
            Verb::Budget(budget) => Reply::Head(told(ledger.set_budget(at, *budget).await)),
            Verb::AskCompaction => Reply::Head(told(ledger.ask_compaction(at).await)),
            Verb::QueueRun => Reply::Head(told(ledger.queue_run(at).await)),
            Verb::Cancel => Reply::Head(told(ledger.cancel(at).await)),
            Verb::Close => Reply::Head(told(ledger.close(at).await)),
            Verb::Events(after, limit) => {
                Reply::Page(told(ledger.events(at, *after, *limit, Consistency::Strong).await), *limit)
            }
            Verb::Wait(ms) => {
                rig.env.advance(*ms);
                Reply::Nothing
            }
            Verb::Create(description) => {
                Reply::Session(told(ledger.create(at, description, Budget::default()).await))
            }
            Verb::Patch(patch) => {
                Reply::Session(told(ledger.patch(at, patch).await).map(|session| (session, true)))
            }
            Verb::Open(head, token, call) => {
                Reply::Done(told(ledger.open_decision(at, head.clone(), token, call, 40_000).await))
            }
            Verb::Decide(id, digest, answer) => {
                Reply::Decided(told(ledger.answer_decision(at, id, digest, answer).await))
            }
            Verb::Withdraw(head, id) => {
                let found = told(ledger.decision(at, id, Consistency::Strong).await);
                let found = found.expect("a read is not refused").expect("it was opened");
                Reply::Done(told(ledger.withdraw_decision(at, head.clone(), &found).await))
            }
            Verb::BeginChild(head, call) => Reply::Done(told(ledger.begin_child(at, head, None, call).await)),
            Verb::Children => {
                let mut children = told(ledger.children(at).await).expect("a read is not refused");
                children.sort_by(|a, b| a.description.session_id.cmp(&b.description.session_id));
                Reply::Children(children)
            }
        }
    }

    pub(super) fn learn(&mut self, answer: &Reply) {
        let head = match answer {
            Reply::Appended(Ok(appended), _) => &appended.head,
            Reply::Claimed(Ok(Ok(claimed))) => &claimed.head,
            Reply::Head(Ok(head)) => head,
            Reply::Settled(Ok(Some(settled))) => &settled.head,
            _ => return,
        };
        self.0.push(head.clone());
    }
}

/// Mostly a call that is open.
fn open_call(n: u8, now: &Head) -> ToolCall {
    let open = now.ledger.open_calls.iter().nth(usize::from(n) / 2).cloned();
    let arguments = serde_json::json!({ "n": 1, "task": "help" });
    let id = open.unwrap_or_else(|| key(&format!("c{n}")));
    ToolCall {
        id,
        name: "add".to_owned(),
        arguments: if n == 5 { serde_json::json!({ "n": 1 }) } else { arguments },
    }
}

fn token_of(whose: Whose, now: &Head) -> LeaseToken {
    let current = now.lease.as_ref().map_or_else(|| owner("w0"), |lease| lease.owner.clone());
    match whose {
        Whose::Current | Whose::Nobody => LeaseToken { owner: current, epoch: now.epoch },
        Whose::Stale => LeaseToken { owner: current, epoch: Epoch(now.epoch.0.saturating_sub(1)) },
        Whose::OtherName => LeaseToken { owner: owner("somebody"), epoch: now.epoch },
    }
}

fn resolve_events(events: &[New], now: &Head) -> Vec<NewEvent> {
    let unanswered: Vec<u64> = now.ledger.unanswered.iter().map(|seq| seq.0).collect();
    let name = |prefix: &str, n: u8| format!("{prefix}{n}");
    let one = |event: &New| match event {
        New::Answer { generation, inputs, calls } => {
            let inputs = match inputs {
                0 => Vec::new(),
                1 => unanswered.first().copied().into_iter().collect(),
                2 => vec![1],
                _ => unanswered.clone(),
            };
            let mut calls: Vec<String> = calls.iter().map(|n| name("c", *n)).collect();
            calls.dedup();
            let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
            answer(&name("g", *generation), &inputs, &calls)
        }
        New::Result { call, output } => {
            // Mostly a call that is open.
            let open =
                now.ledger.open_calls.iter().nth(usize::from(*call) / 2).map(|id| id.as_str().to_owned());
            result(&open.unwrap_or_else(|| name("c", *call)), &output.to_string())
        }
        New::Compaction(0) => compaction("s"),
        New::Compaction(n) => keeping(now.ledger.seq.0.saturating_sub(u64::from(*n) * 2)),
        New::Finished(n) => finished(["done", "failed", "cancelled"][usize::from(*n)]),
    };
    events.iter().map(one).collect()
}

/// A refusal is an answer. Without faults no other error may come.
fn told<T>(ended: Result<T, LedgerError>) -> Result<T, Refusal> {
    match ended {
        Ok(answer) => Ok(answer),
        Err(LedgerError::Refused(refusal)) => Err(refusal),
        Err(error) => panic!("no fault was injected, and yet: {error:?}"),
    }
}

impl Reply {
    /// The name of the answer's sort, for the count of what was reached.
    pub(super) fn labels(&self, mut met: impl FnMut(&'static str)) {
        let refusal = match self {
            Reply::Appended(Ok(appended), size) => {
                met(if appended.created { "created" } else { "replayed" });
                if *size > 1 {
                    met("batch");
                }
                None
            }
            Reply::Claimed(Ok(claimed)) => {
                met(match claimed {
                    Ok(_) => "claimed",
                    Err(NotClaimable::Held(_)) => "held",
                    Err(NotClaimable::TooEarly(_)) => "too early",
                    Err(NotClaimable::NothingPending) => "nothing pending",
                    Err(NotClaimable::NotOurs) => "not ours",
                    Err(NotClaimable::Waits) => "waits",
                });
                None
            }
            Reply::Settled(Ok(settled)) => {
                met(match settled {
                    None => "moved on",
                    Some(settled) if settled.created => "settled",
                    Some(settled) if settled.status == RunStatus::Running => "settled, still running",
                    Some(_) => "settled before",
                });
                None
            }
            Reply::Page(Ok(page), _) => {
                met(if page.has_more { "more pages" } else { "page" });
                None
            }
            Reply::Parked(Ok(parked)) => {
                met(if *parked { "parked" } else { "not parked" });
                None
            }
            Reply::Session(Ok((_, created))) => {
                met(if *created { "made or changed" } else { "made before" });
                None
            }
            Reply::Decided(Ok((_, created))) => {
                met(if *created { "decided" } else { "decided before" });
                None
            }
            Reply::Done(Ok(())) => {
                met("done");
                None
            }
            Reply::Children(children) => {
                met(if children.is_empty() { "no children" } else { "children" });
                None
            }
            Reply::Head(Ok(_)) | Reply::Nothing => None,
            Reply::Appended(Err(refusal), _)
            | Reply::Claimed(Err(refusal))
            | Reply::Head(Err(refusal))
            | Reply::Parked(Err(refusal))
            | Reply::Settled(Err(refusal))
            | Reply::Session(Err(refusal))
            | Reply::Decided(Err(refusal))
            | Reply::Done(Err(refusal))
            | Reply::Page(Err(refusal), _) => Some(refusal),
        };
        met(match refusal {
            None => return,
            Some(Refusal::Fenced { .. }) => "fenced",
            Some(Refusal::IdempotencyConflict { .. }) => "conflict",
            Some(Refusal::SessionClosed) => "closed",
            Some(Refusal::ExternalSession) => "external",
            Some(Refusal::NativeSession) => "native",
            Some(Refusal::UnknownToolCall(_)) => "unknown call",
            Some(Refusal::CallIdReused(_)) => "call id reused",
            Some(Refusal::NotUnanswered(_)) => "not unanswered",
            Some(Refusal::AlreadyFinished) => "already finished",
            Some(Refusal::SessionExists) => "session exists",
            Some(Refusal::RevisionDiffers { .. }) => "revision differs",
            Some(Refusal::DecisionTaken) => "decision taken",
            Some(Refusal::DecisionExpired) => "decision expired",
            Some(Refusal::DecisionDiffers) => "decision differs",
            Some(Refusal::NotFound) => "not found",
            Some(Refusal::TokenRequired(_)) => "token required",
            Some(Refusal::Invalid { .. }) => "invalid",
            Some(_) => "another refusal",
        });
    }
}
