//! H: runs that wait for something outside.

use keel_kernel::budget::Budget;
use keel_kernel::requests;
use keel_kernel::run::{self, NotClaimable, Outcome, Sweep};
use keel_kernel::waiting;
use keel_kernel::{Head, Kind, LeaseToken, Millis, RunStatus, SessionId, StateOwner, WaitReason};
use serde_json::json;

use crate::support::{LEASE_MS, Session, answer, event, finished, queue};

fn running() -> (Session, LeaseToken) {
    let mut session = Session::native();
    session.input(queue("r1"));
    let token = session.claim("a");
    (session, token)
}

/// A run that has parked.
fn waiting() -> Session {
    let (mut session, token) = running();
    session.own(&token, vec![answer("g1", &[1], &["c"])]);
    assert_eq!(session.park(&token, session.head.run.nudges), Ok(true));
    session
}

#[test]
fn h1_a_waiting_run_has_no_lease_spends_no_attempt_and_is_nobodys_to_claim() {
    let mut session = waiting();
    let head = &session.head;
    assert_eq!((head.run.status, head.run.waits), (RunStatus::Waiting, Some(WaitReason::Decision)));
    assert_eq!((head.run.attempts, head.due, &head.lease), (0, None, &None));
    session.pass(LEASE_MS * 1_000);
    assert_eq!(session.try_claim("b"), Err(NotClaimable::Waits));
    assert_eq!(run::sweep(&session.head, session.now), Sweep::Leave);
    assert!(session.nudge());
    assert_eq!(session.head.run.status, RunStatus::Pending);
    session.claim("b");
    assert_eq!((session.head.run.attempts, session.head.run.waits), (1, None));
}

#[test]
fn h1_nothing_that_happens_while_a_run_parks_is_missed() {
    let (mut session, token) = running();
    let seen = session.head.run.nudges;
    assert!(session.nudge(), "an owner at work is told too");
    assert_eq!(session.park(&token, seen), Ok(false), "it has to look again");
    assert_eq!(session.park(&token, seen + 1), Ok(true));
    let (mut session, token) = running();
    session.cancel().unwrap();
    assert_eq!(session.park(&token, 0), Ok(false), "a cancel is no time to wait");
}

#[test]
fn h1_an_answer_that_was_decided_on_a_pending_run_is_refused_once_an_owner_has_claimed_it() {
    let mut session = waiting();
    session.nudge();
    let late = waiting::nudge(&session.head, session.now).expect("a pending run is told too");
    let token = session.claim("b");
    let seen = session.head.run.nudges;
    assert!(!late.guards.iter().all(|guard| guard.holds(&session.head)), "it is decided again");
    assert!(session.nudge());
    assert_eq!(session.park(&token, seen), Ok(false));
}

#[test]
fn h1_a_wait_with_an_end_is_looked_at_then() {
    let (mut session, token) = running();
    let until = session.now.plus(5_000);
    let transition =
        waiting::park(&session.head, &token, 0, WaitReason::Decision, Some(until)).unwrap().unwrap();
    session.carry_out(transition).unwrap();
    assert_eq!(run::sweep(&session.head, session.now), Sweep::Later(until));
    assert_eq!(session.try_claim("b"), Err(NotClaimable::TooEarly(until)));
    session.pass(5_000);
    assert_eq!(run::sweep(&session.head, session.now), Sweep::Hint);
    session.claim("b");
}

#[test]
fn h1_input_joins_a_waiting_run_and_is_answered_by_the_next_one() {
    let mut session = waiting();
    session.input(queue("r2"));
    assert_eq!(session.head.run.status, RunStatus::Waiting, "D2: it waits for its turn");
    session.nudge();
    let token = session.claim("b");
    session.own(&token, vec![crate::support::result("c"), answer("g2", &[], &[])]);
    assert_eq!(session.settle(&token, Outcome::Succeeded), RunStatus::Pending, "S4");
}

#[test]
fn h4_a_cancel_of_a_waiting_run_wakes_an_owner_that_sees_to_its_calls() {
    let mut session = waiting();
    assert_eq!(session.cancel(), Ok(true));
    assert_eq!(session.head.run.status, RunStatus::Pending);
    assert_eq!(session.cancel(), Ok(false), "it was asked");
    session.claim("b");
    assert!(session.head.run.cancel.is_some());
}

fn child() -> Session {
    let mut session = Session::native();
    session.head.parent = Some(SessionId::parse("p").expect("a name"));
    session
}

/// How a run ends.
type Brings = fn(&mut Session);

#[test]
fn h4_every_end_of_a_childs_run_is_due_until_its_parent_was_told() {
    let ends: [(&str, Brings); 4] = [
        ("done", |session| {
            let token = session.claim("a");
            session.own(&token, vec![answer("g", &[1], &[])]);
            session.settle(&token, Outcome::Succeeded);
        }),
        ("failed", |session| {
            for _ in 0..session.head.max_attempts {
                let token = session.claim("a");
                session.settle(&token, Outcome::Failed { backoff_ms: 0 });
            }
        }),
        ("cancelled before it began", |session| assert_eq!(session.cancel(), Ok(true))),
        ("closed", |session| assert!(session.close())),
    ];
    for (end, bring_about) in ends {
        let mut session = child();
        session.input(queue("r1"));
        bring_about(&mut session);
        assert!(!session.head.run.status.is_live(), "{end}");
        assert!(session.head.due.is_some(), "{end}: the sweep finds it");
        assert_eq!(run::sweep(&session.head, session.now), Sweep::TellParent, "{end}");
        let told = waiting::told_parent(&session.head).unwrap();
        session.carry_out(told).unwrap();
        assert_eq!((session.head.due, waiting::told_parent(&session.head)), (None, None), "{end}");
    }
}

#[test]
fn h4_who_has_no_parent_has_nobody_to_tell() {
    let mut session = Session::native();
    session.input(queue("r1"));
    session.cancel().unwrap();
    assert_eq!((session.head.due, session.head.tells_parent), (None, false));
}

#[test]
fn h5_a_budget_counts_what_the_ledger_says_and_raising_it_goes_on() {
    let (mut session, token) = running();
    let usage = json!({ "stopReason": "error", "usage": { "input": 60, "output": 40, "costUsd": 0.5 } });
    session.own(&token, vec![event(Kind::AssistantMessage, &usage, None)]);
    let spent = session.head.ledger.spent;
    assert_eq!((spent.tokens, spent.micros), (100, 500_000), "a failed answer was paid for too");
    let budget = |tokens| Budget { tokens: Some(tokens), micros: None };
    let set = |session: &mut Session, tokens| {
        let transition = requests::set_budget(&session.head, session.now, budget(tokens)).unwrap();
        transition.is_some_and(|transition| session.carry_out(transition).is_ok())
    };
    assert!(set(&mut session, 100) && session.head.is_spent());
    let nudges = session.head.run.nudges;
    let park = waiting::park(&session.head, &token, nudges, WaitReason::Budget, None).unwrap().unwrap();
    session.carry_out(park).unwrap();
    assert!(set(&mut session, 90));
    assert_eq!(session.head.run.status, RunStatus::Waiting, "less is no reason to go on");
    assert!(set(&mut session, 101));
    assert_eq!((session.head.run.status, session.head.is_spent()), (RunStatus::Pending, false));
    assert!(!set(&mut session, 101), "nothing changes");
    let token = session.claim("b");
    let nudges = session.head.run.nudges;
    let park = waiting::park(&session.head, &token, nudges, WaitReason::Child, None).unwrap().unwrap();
    session.carry_out(park).unwrap();
    assert!(set(&mut session, 200));
    assert_eq!(session.head.run.status, RunStatus::Pending, "a child may have spent its share");
}

#[test]
fn k3_a_compaction_that_is_asked_for_in_mid_attempt_is_made_by_the_next_run() {
    let (mut session, token) = running();
    let ask = |head: &Head| requests::ask_compaction(head, Millis(1_000_000)).unwrap();
    session.own(&token, vec![answer("g1", &[1], &[])]);
    session.carry_out(ask(&session.head).unwrap()).unwrap();
    assert_eq!(session.settle(&token, Outcome::Succeeded), RunStatus::Pending, "it did not know");
    assert!(session.head.compact);
    let token = session.claim("b");
    assert_eq!(
        session.settle(&token, Outcome::Succeeded),
        RunStatus::Done,
        "it knew, and there was nothing to do"
    );
    assert!(!session.head.compact);
    assert!(ask(&session.head).is_some(), "another can be asked for");
}

#[test]
fn k3_a_compaction_that_is_asked_for_starts_a_run_of_its_own_and_is_done_once() {
    let mut session = Session::native();
    let ask = |head: &Head| requests::ask_compaction(head, Millis(1_000_000)).unwrap();
    session.carry_out(ask(&session.head).unwrap()).unwrap();
    assert_eq!((session.head.run.status, session.head.compact), (RunStatus::Pending, true));
    assert_eq!(ask(&session.head), None);
    let token = session.claim("a");
    session.own(&token, vec![event(Kind::Compaction, &json!({ "summary": "s" }), None)]);
    assert!(!session.head.compact);
    let settled = session.try_settle(&token, Outcome::Succeeded, vec![finished("done")]);
    assert_eq!(settled.map(|(status, _)| status), Ok(RunStatus::Done));
    let external = Head::new(StateOwner::External, 3);
    assert!(requests::ask_compaction(&external, Millis(0)).is_err(), "C4");
}
