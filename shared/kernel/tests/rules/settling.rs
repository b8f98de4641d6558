//! S: claims, hand-overs, and what the run becomes when an attempt ends.

use keel_kernel::head::FailReason;
use keel_kernel::run::{self, NotClaimable, Outcome, Settle, Settled, Sweep};
use keel_kernel::{Epoch, Kind, LeaseToken, NewEvent, Refusal, RunStatus, Seq, caps};

use crate::support::{ATTEMPTS, LEASE_MS, Session, answer, failed, finished, guide, message, queue, result};

const FAILED: Outcome = Outcome::Failed { backoff_ms: 1_000 };

fn running() -> (Session, LeaseToken) {
    let mut session = Session::native();
    session.input(queue("r1"));
    let token = session.claim("a");
    (session, token)
}

/// The answer to input 1, which a settle carries.
fn done() -> Vec<NewEvent> {
    vec![answer("g1", &[1], &[]), finished("done")]
}

#[test]
fn s_success_without_newer_input_is_done() {
    let (mut session, token) = running();
    assert_eq!(session.try_settle(&token, Outcome::Succeeded, done()), Ok((RunStatus::Done, true)));
    assert_eq!((session.head.lease.clone(), session.head.due), (None, None));
    assert_eq!(session.try_claim("b"), Err(NotClaimable::NothingPending));
}

#[test]
fn s4_success_with_newer_input_is_pending_as_a_fresh_run() {
    let (mut session, token) = running();
    session.input(queue("r2"));
    assert_eq!(session.try_settle(&token, Outcome::Succeeded, done()), Ok((RunStatus::Pending, true)));
    assert_eq!((session.head.run.attempts, session.head.run.watermark), (0, None), "its budget is its own");
    session.claim("b");
    assert_eq!((session.head.run.attempts, session.head.run.watermark), (1, Some(Seq(4))));
}

#[test]
fn s4_input_answered_within_the_run_is_not_newer() {
    let (mut session, token) = running();
    session.input(guide("r2"));
    session.own(&token, vec![answer("g1", &[1], &[]), answer("g2", &[2], &[])]);
    assert_eq!(session.settle(&token, Outcome::Succeeded), RunStatus::Done);
}

#[test]
fn s4_input_during_settle_is_not_stranded() {
    // The input comes first: the settle was decided for an older seq, so its guard fails and it is decided again.
    let (mut session, token) = running();
    let (id, events) = (session.commit_id(), done());
    let settle = Settle { id: &id, token: &token, outcome: Outcome::Succeeded, events: &events };
    let Settled::Now(transition) = run::settle(&session.head, session.now, &settle).unwrap() else {
        panic!("settled before")
    };
    session.input(queue("r2"));
    assert!(!transition.guards.iter().all(|guard| guard.holds(&session.head)), "it must not be written");
    assert_eq!(session.try_settle(&token, Outcome::Succeeded, done()), Ok((RunStatus::Pending, true)));
    // The settle comes first: the input starts a run.
    let (mut session, token) = running();
    session.try_settle(&token, Outcome::Succeeded, done()).unwrap();
    session.input(queue("r2"));
    assert_eq!(session.head.run.status, RunStatus::Pending);
}

#[test]
fn s4_a_bare_settle_is_guarded_by_the_last_seq_too() {
    let (mut session, token) = running();
    session.own(&token, done());
    let id = session.commit_id();
    let settle = Settle { id: &id, token: &token, outcome: Outcome::Succeeded, events: &[] };
    let Settled::Now(transition) = run::settle(&session.head, session.now, &settle).unwrap() else {
        panic!("settled before")
    };
    session.input(queue("r2"));
    assert!(!transition.guards.iter().all(|guard| guard.holds(&session.head)));
}

#[test]
fn s_a_failed_attempt_is_retried_with_backoff_while_budget_is_left() {
    let (mut session, mut token) = running();
    for attempt in 1..=ATTEMPTS {
        assert_eq!(session.head.run.attempts, attempt);
        let last = vec![failed(&format!("g{attempt}"), &[1]), finished("failed")];
        let status = session.try_settle(&token, FAILED, last).unwrap().0;
        if attempt == ATTEMPTS {
            assert_eq!(status, RunStatus::Failed);
            break;
        }
        assert_eq!(status, RunStatus::Pending);
        let due = session.now.plus(1_000);
        assert_eq!(session.try_claim("b"), Err(NotClaimable::TooEarly(due)));
        assert_eq!(run::sweep(&session.head, session.now), Sweep::Later(due));
        session.pass(1_000);
        assert_eq!(session.head.run.watermark, Some(Seq(1)), "it is the same run");
        token = session.claim("b");
    }
    assert_eq!(session.head.run.reason, Some(FailReason::AttemptsSpent));
    assert_eq!(session.unanswered(), [1]);
    // Later input starts a run with attempts of its own, which answers both.
    session.input(queue("r2"));
    session.claim("c");
    assert_eq!(session.head.run.attempts, 1);
    let watermark = session.head.run.watermark;
    let presented = session.history().transcript(watermark).presented.len();
    assert_eq!(presented, 2);
}

#[test]
fn a3_a_success_that_leaves_its_input_or_turn_open_spends_the_budget() {
    for last in [vec![], vec![answer("g1", &[1], &["c"]), result("c")]] {
        let (mut session, token) = running();
        assert_eq!(session.try_settle(&token, Outcome::Succeeded, last), Ok((RunStatus::Pending, true)));
        assert_eq!((session.head.run.attempts, session.head.run.watermark), (1, Some(Seq(1))));
        for _ in 1..ATTEMPTS {
            let token = session.claim("b");
            session.try_settle(&token, Outcome::Succeeded, Vec::new()).unwrap();
        }
        assert_eq!(session.head.run.status, RunStatus::Failed, "a loop that answers nothing must end");
    }
}

#[test]
fn s_a_cancelled_run_is_failed_and_later_input_answers_what_it_left() {
    let (mut session, token) = running();
    assert_eq!(session.cancel(), Ok(true));
    assert_eq!(session.cancel(), Ok(false), "once is enough");
    assert_eq!(session.head.run.status, RunStatus::Running, "it is the attempt that stops");
    assert_eq!(session.settle(&token, Outcome::Cancelled), RunStatus::Failed);
    assert_eq!(session.head.run.reason, Some(FailReason::Cancelled));
    assert_eq!(session.unanswered(), [1]);
    assert_eq!(session.try_claim("b"), Err(NotClaimable::NothingPending), "terminal");
    session.input(queue("r2"));
    let token = session.claim("b");
    assert_eq!(session.head.run.cancel, None, "the cancel was the old run's");
    let last = vec![answer("g1", &[1, 3], &[]), finished("done")];
    assert_eq!(session.try_settle(&token, Outcome::Succeeded, last), Ok((RunStatus::Done, true)));
}

#[test]
fn s4_input_after_the_cancel_starts_the_next_run_and_input_before_it_does_not() {
    let (mut session, token) = running();
    session.input(queue("before")); // 2: the client that cancels has seen it, or could have
    session.cancel().unwrap();
    assert_eq!(session.settle(&token, Outcome::Cancelled), RunStatus::Failed);
    let (mut session, token) = running();
    session.cancel().unwrap();
    session.input(queue("after"));
    assert_eq!(session.settle(&token, Outcome::Cancelled), RunStatus::Pending);
    session.claim("b");
    assert_eq!((session.head.run.attempts, session.head.run.cancel), (1, None));
}

#[test]
fn s_a_failure_that_was_asked_to_stop_is_not_retried_and_a_success_stands() {
    let (mut session, token) = running();
    session.cancel().unwrap();
    assert_eq!(session.settle(&token, FAILED), RunStatus::Failed);
    assert_eq!(session.head.run.reason, Some(FailReason::Cancelled));
    let (mut session, token) = running();
    session.cancel().unwrap();
    session.own(&token, vec![answer("g1", &[1], &[])]);
    assert_eq!(session.settle(&token, Outcome::Succeeded), RunStatus::Done, "the cancel came too late");
    assert_eq!(session.head.run.cancel, None);
}

#[test]
fn s_a_pending_run_is_cancelled_at_once() {
    let mut session = Session::native();
    assert_eq!(session.cancel(), Ok(false), "nothing to cancel");
    session.input(queue("r1"));
    assert_eq!(session.cancel(), Ok(true));
    assert_eq!((session.head.run.status, session.head.due), (RunStatus::Failed, None));
    assert_eq!(session.try_claim("a"), Err(NotClaimable::NothingPending));
    assert_eq!(session.queue(), Ok(true), "what it left may be queued again");
    assert_eq!(session.queue(), Ok(false), "one run at a time");
    let token = session.claim("a");
    session.try_settle(&token, Outcome::Succeeded, done()).unwrap();
    assert_eq!(session.queue(), Ok(false), "nothing is owed");
}

#[test]
fn s_a_cancel_is_kept_over_hand_over_and_takeover() {
    let (mut session, token) = running();
    session.cancel().unwrap();
    session.release(&token).unwrap();
    session.claim("b");
    assert_eq!(session.head.run.cancel, Some(Seq(1)));
    session.pass(LEASE_MS);
    let token = session.claim("c");
    assert_eq!(session.head.run.cancel, Some(Seq(1)));
    assert_eq!(session.settle(&token, Outcome::Cancelled), RunStatus::Failed);
}

#[test]
fn s1_one_run_finished_per_epoch() {
    let (mut session, token) = running();
    session.own(&token, vec![answer("g1", &[1], &[]), finished("done")]);
    let again = session.commit(Some(&token), vec![finished("failed")]);
    assert_eq!(again, Err(Refusal::AlreadyFinished));
    // The settle brings it once more, as an owner does whose first answer was lost. It is left out, and the rest is
    // settled.
    assert_eq!(session.settle(&token, Outcome::Succeeded), RunStatus::Done);
    let count = |session: &Session| session.events.iter().filter(|e| e.kind == Kind::RunFinished).count();
    assert_eq!(count(&session), 1);
    let mut twice = Session::native();
    twice.input(queue("r1"));
    let token = twice.claim("a");
    let both = vec![finished("done"), finished("done")];
    assert_eq!(twice.commit(Some(&token), both), Err(Refusal::AlreadyFinished));
    // The next attempt has its own.
    session.input(queue("r2"));
    let token = session.claim("b");
    session.own(&token, vec![finished("done")]);
    assert_eq!(count(&session), 2);
}

#[test]
fn s2_a_settle_without_its_summary_has_the_same_outcome() {
    for (outcome, expected) in [
        (Outcome::Succeeded, RunStatus::Done),
        (FAILED, RunStatus::Pending),
        (Outcome::Cancelled, RunStatus::Failed),
    ] {
        for with_summary in [true, false] {
            let (mut session, token) = running();
            session.own(&token, vec![answer("g1", &[1], &[])]);
            let last = if with_summary { vec![finished("done")] } else { Vec::new() };
            assert_eq!(session.try_settle(&token, outcome, last), Ok((expected, true)), "{outcome:?}");
        }
    }
}

#[test]
fn s3_a_fenced_worker_settles_and_releases_nothing() {
    let (mut session, stale) = running();
    session.pass(LEASE_MS);
    let current = session.claim("b");
    let before = session.head.clone();
    let fenced = Refusal::Fenced { current_epoch: Epoch(2) };
    for outcome in [Outcome::Succeeded, FAILED, Outcome::Cancelled] {
        assert_eq!(session.try_settle(&stale, outcome, Vec::new()), Err(fenced.clone()));
    }
    assert_eq!(session.release(&stale), Err(fenced.clone()));
    assert_eq!(run::renew(&session.head, session.now, &stale, LEASE_MS), Err(fenced));
    assert_eq!(session.head, before);
    assert_eq!(session.try_settle(&current, Outcome::Succeeded, done()), Ok((RunStatus::Done, true)));
}

#[test]
fn s3_i6_settling_twice_with_one_token_gives_the_first_answer() {
    let (mut session, token) = running();
    session.input(queue("r2"));
    session.try_settle(&token, Outcome::Succeeded, done()).unwrap();
    let before = session.head.clone();
    assert_eq!(session.try_settle(&token, FAILED, done()), Ok((RunStatus::Pending, false)));
    assert_eq!(session.head, before);
    session.input(queue("r3"));
    session.claim("b");
    assert_eq!(session.try_settle(&token, Outcome::Succeeded, done()), Ok((RunStatus::Pending, false)));
    session.close();
    assert_eq!(session.try_settle(&token, Outcome::Succeeded, done()), Ok((RunStatus::Pending, false)));
}

#[test]
fn s5_a_hand_over_is_not_an_attempt() {
    let (mut session, mut token) = running();
    for round in 0..5 {
        assert_eq!((session.head.run.attempts, session.head.run.handovers), (1, round));
        assert_eq!(session.release(&token), Ok(true));
        assert_eq!((session.head.run.status, session.head.run.attempts), (RunStatus::Pending, 0));
        assert_eq!(session.release(&token), Ok(false), "its answer was lost: once more is the same");
        assert_eq!(session.head.run.watermark, Some(Seq(1)));
        token = session.claim("b");
    }
    session.own(&token, vec![answer("g1", &[1], &[])]);
    assert_eq!(session.settle(&token, Outcome::Succeeded), RunStatus::Done);
}

#[test]
fn s5_a_hand_over_keeps_what_failed_attempts_spent() {
    let (mut session, token) = running();
    session.try_settle(&token, FAILED, vec![failed("g1", &[1])]).unwrap();
    session.pass(1_000);
    let token = session.claim("b");
    assert_eq!(session.head.run.attempts, 2);
    session.release(&token).unwrap();
    assert_eq!(session.head.run.attempts, 1);
    session.claim("c");
    assert_eq!(session.head.run.attempts, 2);
}

#[test]
fn s5_a_run_that_only_hands_over_ends() {
    let (mut session, mut token) = running();
    session.head.run.handovers = caps::HANDOVERS;
    session.release(&token).unwrap();
    assert_eq!(session.head.run.attempts, 1, "past the cap a hand-over keeps its attempt");
    for _ in 0..ATTEMPTS {
        token = session.claim("b");
        session.release(&token).unwrap();
    }
    assert!(session.head.run.attempts > ATTEMPTS, "so the next owner finds the budget spent");
}

#[test]
fn s_a_lease_is_held_until_its_end_and_a_renewal_never_shortens_it() {
    let (mut session, token) = running();
    let until = session.head.lease.as_ref().unwrap().until;
    assert_eq!(session.try_claim("b"), Err(NotClaimable::Held(until)));
    let shorter = run::renew(&session.head, session.now, &token, 1).unwrap();
    assert_eq!(shorter.head.lease.as_ref().unwrap().until, until);
    session.pass(LEASE_MS - 1);
    assert_eq!(session.try_claim("b"), Err(NotClaimable::Held(until)));
    assert_eq!(run::sweep(&session.head, session.now), Sweep::Later(until));
    session.pass(1);
    assert_eq!(run::sweep(&session.head, session.now), Sweep::Hint);
    session.claim("b");
    assert_eq!(session.head.run.attempts, 2, "a takeover is an attempt");
}

#[test]
fn c6_closing_ends_a_live_run() {
    let (mut session, token) = running();
    assert!(session.close());
    assert_eq!(
        (session.head.run.status, session.head.run.reason),
        (RunStatus::Failed, Some(FailReason::Closed))
    );
    assert_eq!((session.head.lease.clone(), session.head.due), (None, None));
    assert_eq!(session.try_claim("b"), Err(NotClaimable::NotOurs));
    assert_eq!(run::sweep(&session.head, session.now.plus(LEASE_MS)), Sweep::Leave);
    for refusal in [
        session.try_settle(&token, Outcome::Succeeded, done()).unwrap_err(),
        session.release(&token).unwrap_err(),
        session.cancel().unwrap_err(),
        session.queue().unwrap_err(),
        run::renew(&session.head, session.now, &token, LEASE_MS).unwrap_err(),
    ] {
        assert_eq!(refusal, Refusal::SessionClosed);
    }
}

#[test]
fn s_settling_with_events_that_are_refused_writes_nothing() {
    let (mut session, token) = running();
    let before = session.head.clone();
    let wrong = vec![message("g1", Some(&[7]), &[], "end_turn"), finished("done")];
    let refusal = session.try_settle(&token, Outcome::Succeeded, wrong).unwrap_err();
    assert_eq!(refusal, Refusal::NotUnanswered(Seq(7)));
    assert_eq!(session.head, before);
}
