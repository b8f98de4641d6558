//! Random commands of several clients and owners. The kernel decides them, and they are written as a store must write them:
//! the guards are checked at the moment of writing, only what a transition changes is set, and where a key or call id is
//! taken, nothing is written. After every step the whole contract is checked.

mod checks;
mod commands;
mod events;

use std::collections::BTreeMap;

use keel_kernel::commit::decide;
use keel_kernel::requests;
use keel_kernel::run::{self, ClaimRequest, Outcome, Settle, Settled};
use keel_kernel::transition::Obstacles;
use keel_kernel::waiting;
use keel_kernel::{
    Commit, CommitId, Epoch, Head, LeaseToken, NewEvent, OwnerId, Refusal, RunStatus, Seq, StateOwner,
    Transition, WaitReason,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use self::commands::{Command, Step, Token};
use crate::support::{LEASE_MS, Session, answer};

/// What a command decided on some head led to.
enum Verdict {
    Write(Transition),
    Nothing,
    Refused(Refusal),
}

/// A session, and what the model knows of it beside the ledger.
struct Model {
    session: Session,
    /// The heads so far, for commands that are decided on an old one.
    heads: Vec<Head>,
    tokens: Vec<LeaseToken>,
    /// The newest epoch, counted by the model.
    epoch: Epoch,
    /// The epoch at each event, and the run's watermark.
    epochs: BTreeMap<Seq, Epoch>,
    watermarks: BTreeMap<Seq, Option<Seq>>,
    watermark: Option<Seq>,
    /// Claims of the current run, and how many of them ended with a wait.
    claims: u32,
    parks: u32,
    /// The newest input that may stay unanswered because of a cancel, a failure or a close.
    explained: Option<Seq>,
    /// The last seq when the running attempt was asked to stop.
    cancel: Option<Seq>,
    /// What has happened, so that a test can check that the histories reach it.
    seen: BTreeMap<String, u32>,
}

impl Model {
    fn new(state_owner: StateOwner) -> Self {
        Self {
            session: Session::new(state_owner),
            heads: Vec::new(),
            tokens: Vec::new(),
            epoch: Epoch(0),
            epochs: BTreeMap::new(),
            watermarks: BTreeMap::new(),
            watermark: None,
            claims: 0,
            parks: 0,
            explained: None,
            cancel: None,
            seen: BTreeMap::new(),
        }
    }

    fn saw(&mut self, what: impl Into<String>) {
        *self.seen.entry(what.into()).or_default() += 1;
    }

    fn token(&self, token: Token) -> Option<LeaseToken> {
        let newest = self.tokens.last()?;
        match token {
            Token::Newest => Some(newest.clone()),
            Token::Old(back) => self.tokens.iter().rev().nth(back).cloned(),
            Token::Forged => Some(LeaseToken { owner: OwnerId::parse("mallory").ok()?, epoch: newest.epoch }),
        }
    }

    fn holds_lease(&self, token: &LeaseToken) -> bool {
        let lease = self.session.head.lease.as_ref();
        self.tokens.last() == Some(token) && lease.is_some_and(|lease| lease.owner == token.owner)
    }

    fn decide(&self, head: &Head, command: &Command, id: &CommitId, events: &[NewEvent]) -> Verdict {
        let now = self.session.now;
        let some = |transition: Result<Option<Transition>, Refusal>| match transition {
            Ok(Some(transition)) => Verdict::Write(transition),
            Ok(None) => Verdict::Nothing,
            Err(refusal) => Verdict::Refused(refusal),
        };
        let commit = |lease: Option<LeaseToken>| {
            let commit = Commit { id, lease: lease.as_ref(), lease_ms: LEASE_MS, events };
            some(decide(head, now, &commit).map(Some))
        };
        let token = |token: &Token| self.token(*token);
        match command {
            Command::Input { .. } | Command::External { .. } => commit(None),
            Command::Own { token: shown, .. } => match token(shown) {
                Some(token) => commit(Some(token)),
                None => Verdict::Nothing,
            },
            Command::Claim { owner } => {
                let owner = OwnerId::parse(format!("owner-{owner}")).expect("visible ASCII");
                let request = ClaimRequest { owner, id: id.clone(), lease_ms: LEASE_MS };
                run::claim(head, now, &request).map_or(Verdict::Nothing, Verdict::Write)
            }
            Command::Renew { token: shown } => token(shown)
                .map_or(Verdict::Nothing, |token| some(run::renew(head, now, &token, LEASE_MS).map(Some))),
            Command::Release { token: shown } => {
                token(shown).map_or(Verdict::Nothing, |token| some(run::release(head, now, &token)))
            }
            Command::Settle { token: shown, outcome, .. } => {
                let Some(token) = token(shown) else { return Verdict::Nothing };
                let settle = Settle { id, token: &token, outcome: *outcome, events };
                some(run::settle(head, now, &settle).map(|settled| match settled {
                    Settled::Now(transition) => Some(transition),
                    Settled::Before(_) => None,
                }))
            }
            Command::Queue => some(requests::queue(head, now)),
            Command::Park { token: shown, behind, until } => {
                let Some(token) = token(shown) else { return Verdict::Nothing };
                let seen = head.run.nudges - u64::from(*behind && head.run.nudges > 0);
                let until = until.map(|ms| now.plus(ms));
                some(waiting::park(head, &token, seen, WaitReason::Decision, until))
            }
            Command::Nudge => waiting::nudge(head, now).map_or(Verdict::Nothing, Verdict::Write),
            Command::Cancel => some(requests::cancel(head, now)),
            Command::Close => requests::close(head, now, &[]).map_or(Verdict::Nothing, Verdict::Write),
            Command::Pass { .. } => Verdict::Nothing,
        }
    }

    fn step(&mut self, step: &Step) {
        let Step { command, lag } = step;
        if let Command::Pass { ms } = command {
            self.session.pass(*ms);
        }
        let id = self.session.commit_id();
        let events = self.events_of(command);
        let current = self.session.head.clone();
        self.heads.push(current.clone());
        let mut from = self.heads[self.heads.len().saturating_sub(1 + lag)].clone();
        let mut verdict = self.decide(&from, command, &id, &events);
        if let Verdict::Write(transition) = &verdict
            && !transition.guards.iter().all(|guard| guard.holds(&current))
        {
            assert_ne!(*lag, 0, "guards hold of the head that they were made from");
            self.saw("lost race");
            from = current;
            verdict = self.decide(&from, command, &id, &events);
        }
        match verdict {
            Verdict::Write(transition) => {
                checks::transition(&from, &transition);
                self.write(command, &from, transition);
            }
            Verdict::Nothing => {}
            Verdict::Refused(refusal) => {
                self.saw("refused");
                if let (Refusal::Fenced { .. }, 0, Some(token)) = (&refusal, *lag, self.shown(command)) {
                    assert!(!self.holds_lease(&token), "C2: the owner itself is never fenced");
                    self.saw("fenced");
                }
            }
        }
        checks::ledger(self);
        checks::head(self);
        checks::transcript(self);
    }

    /// The token that a command carries.
    fn shown(&self, command: &Command) -> Option<LeaseToken> {
        match command {
            Command::Own { token, .. }
            | Command::Renew { token }
            | Command::Release { token }
            | Command::Park { token, .. }
            | Command::Settle { token, .. } => self.token(*token),
            Command::Input { .. }
            | Command::External { .. }
            | Command::Claim { .. }
            | Command::Nudge
            | Command::Queue
            | Command::Cancel
            | Command::Close
            | Command::Pass { .. } => None,
        }
    }

    /// Writes a transition as a store must, and updates what the model knows.
    fn write(&mut self, command: &Command, from: &Head, transition: Transition) {
        if let Some(token) = self.shown(command) {
            assert!(self.holds_lease(&token), "C2, S3: {token:?} writes");
        }
        let was_live = self.session.head.run.status.is_live();
        let was = self.session.head.run.status;
        let was_running = was == RunStatus::Running;
        let calls_open = !self.session.head.ledger.open_calls.is_empty();
        match self.session.memory.write(from, &transition) {
            Ok(()) => {}
            Err(Obstacles { keys, .. }) if !keys.is_empty() => return self.saw("key taken"), // I3, I5
            Err(Obstacles { call: Some(_), .. }) => return self.saw("call id taken"),        // V2
            Err(obstacles) => panic!("the guards hold: {obstacles:?}"),
        }
        for event in &transition.events {
            self.epochs.insert(event.seq, self.epoch);
            self.watermarks.insert(event.seq, self.watermark);
            self.saw(event.kind.as_str());
        }
        let end = Some(self.session.head.ledger.seq);
        match command {
            Command::Input { .. } | Command::Queue if !was_live => self.fresh_run(),
            Command::Claim { .. } => {
                let lease = self.session.head.lease.as_ref().expect("a claim makes a lease");
                self.epoch = self.epoch.next();
                self.tokens.push(LeaseToken { owner: lease.owner.clone(), epoch: self.epoch });
                self.claims += 1;
                self.watermark = self.watermark.or(end);
                self.saw(if was_running { "takeover" } else { "claim" });
            }
            Command::Settle { outcome, .. } => self.settled(*outcome),
            Command::Cancel if was_running || was == RunStatus::Waiting || calls_open => self.cancel = end,
            Command::Park { behind, .. } => {
                assert!(!behind || self.session.head.run.nudges == 0, "H1: it had not seen all");
                self.parks += 1;
                self.saw("park");
            }
            Command::Nudge if was == RunStatus::Waiting => self.saw("woken"),
            Command::Cancel | Command::Close if was_live => self.explained = end,
            Command::Release { .. } => self.saw("hand-over"),
            Command::Input { .. }
            | Command::External { .. }
            | Command::Own { .. }
            | Command::Renew { .. }
            | Command::Nudge
            | Command::Queue
            | Command::Cancel
            | Command::Close
            | Command::Pass { .. } => {}
        }
    }

    fn fresh_run(&mut self) {
        (self.claims, self.parks, self.watermark, self.cancel) = (0, 0, None, None);
    }

    /// S: the settling table once more, worked out from what the model knows.
    fn settled(&mut self, outcome: Outcome) {
        let head = &self.session.head;
        let newest = head.ledger.unanswered.last().copied();
        let given = head.ledger.unanswered.first().is_some_and(|first| Some(*first) <= self.watermark);
        let complete = outcome == Outcome::Succeeded && !given && !head.ledger.owed_turn;
        let asked_to_stop = outcome == Outcome::Cancelled || self.cancel.is_some();
        let budget_left = self.claims - self.parks - head.run.handovers < head.max_attempts;
        let end = head.ledger.seq;
        let status = head.run.status;
        let (expected, fresh, explained) = match (complete, asked_to_stop) {
            (true, _) if newest > self.watermark => (RunStatus::Pending, true, None),
            (true, _) => (RunStatus::Done, false, None),
            (false, true) if newest > self.cancel.or(self.watermark) => (RunStatus::Pending, true, None),
            (false, true) => (RunStatus::Failed, false, self.cancel.or(self.watermark)),
            (false, false) if budget_left => (RunStatus::Pending, false, None),
            (false, false) => (RunStatus::Failed, false, Some(end)),
        };
        assert_eq!(status, expected, "S: {outcome:?}, cancel {:?}, newest {newest:?}", self.cancel);
        if fresh {
            self.fresh_run();
        }
        (self.cancel, self.explained) = (None, explained.or(self.explained));
        self.saw(format!("{outcome:?} to {status:?}").replace(char::is_numeric, ""));
    }

    /// An owner that makes no mistake ends the run, with nothing left open.
    fn end(&mut self) {
        for n in 0..20 {
            if !self.session.head.run.status.is_live() {
                return;
            }
            self.session.pass(LEASE_MS * 4);
            self.session.nudge();
            let token = self.session.claim("last");
            while self.session.head.is_owed() {
                let history = self.session.history();
                let presented = history.transcript(self.session.head.run.watermark).presented;
                if presented.is_empty() && !self.session.head.ledger.owed_turn {
                    break; // what is left waits for the next run (D2)
                }
                let seqs: Vec<u64> = presented.iter().map(|seq| seq.0).collect();
                let said = self.session.events.len();
                self.session.own(&token, vec![answer(&format!("end-{n}-{said}"), &seqs, &[])]);
            }
            self.session.settle(&token, Outcome::Succeeded);
        }
        panic!("an owner that answers everything never ends: {:?}", self.session.head.run);
    }
}

fn play(external: bool, steps: &[Step]) -> Model {
    let mut model = Model::new(if external { StateOwner::External } else { StateOwner::Native });
    for step in steps {
        model.step(step);
    }
    model
}

fn cases() -> impl Strategy<Value = (bool, Vec<Step>)> {
    (prop_oneof![9 => Just(false), 1 => Just(true)], commands::steps())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn l2_l5_i2_a2_c2_s1_s4_h1_k1_k2_hold_after_every_step_of_any_history((external, steps) in cases()) {
        let mut model = play(external, &steps);
        if !external && !model.session.head.closed {
            model.end();
            let head = &model.session.head;
            prop_assert!(head.run.status != RunStatus::Done || !head.is_owed());
        }
    }
}

/// The random histories prove nothing if they never reach the cases that the rules are about.
#[test]
fn the_model_comes_to_every_situation_of_the_table() {
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..400 {
        let (external, steps) = cases().new_tree(&mut runner).expect("a case").current();
        for (what, times) in play(external, &steps).seen {
            *seen.entry(what).or_default() += times;
        }
    }
    for what in [
        "user.message",
        "assistant.message",
        "tool.result",
        "compaction",
        "run.finished",
        "external.event",
        "lost race",
        "key taken",
        "call id taken",
        "fenced",
        "claim",
        "takeover",
        "hand-over",
        "park",
        "woken",
        "Succeeded to Done",
        "Succeeded to Pending",
        "Succeeded to Failed",
        "Failed { backoff_ms:  } to Pending",
        "Failed { backoff_ms:  } to Failed",
        "Cancelled to Failed",
        "Cancelled to Pending",
    ] {
        assert!(seen.get(what).is_some_and(|times| *times >= 3), "{what} is too rare: {seen:#?}");
    }
}
