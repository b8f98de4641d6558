//! I6: whatever happens to a request or its answer, a command leads to one event in the ledger, and sending it again finds
//! that event.

mod exhausted;
mod reasons;
mod wire;

use std::sync::Arc;

use keel_kernel::budget::Budget;
use keel_kernel::run::{NotClaimable, Outcome};
use keel_kernel::{Head, LeaseToken, NewEvent, RunStatus, StateOwner};
use keel_ledger::Appended;
use keel_ledger::dynamo::{Dynamo, Tables};

use crate::support::{
    Rig, Rows, TestEnv, World, answer, compaction, create, described, embedded, finished, key, owner, result,
    rows, session, text,
};
use Fault::{Conflict, InProgress, InternalAfter, InternalBefore, LostAnswer, LostRequest, Throttled};
use wire::{Fault, Wire};

const SLOW: Fault = Throttled("ProvisionedThroughputExceededException");
const THROTTLED: Fault = Throttled("ThrottlingException");

/// The faults of the writes of one command.
const SCRIPTS: [&[Fault]; 15] = [
    &[LostRequest],
    &[LostAnswer],
    &[SLOW],
    &[THROTTLED],
    &[Conflict],
    &[InProgress],
    &[InternalBefore],
    &[InternalAfter],
    &[LostAnswer, LostAnswer, LostAnswer],
    &[LostRequest, LostRequest, LostAnswer],
    &[LostAnswer, SLOW, Conflict, InProgress, LostRequest],
    &[InternalAfter, THROTTLED, InternalBefore],
    &[Conflict, Conflict, LostAnswer, Conflict],
    &[SLOW, LostAnswer, InProgress],
    &[Conflict, InternalBefore, InternalAfter, SLOW],
];

/// A world behind a wire.
async fn world() -> (World, Wire) {
    let (client, wire) = Wire::over(&embedded().await);
    let store = Arc::new(Dynamo::new(client.clone(), Tables::with_prefix("")));
    let at = session("s");
    create(&*store, &at, StateOwner::Native).await;
    (World { at, client, rig: Rig::over(store.clone(), TestEnv::new(11)), store }, wire)
}

/// For every script, with tokens remembered and forgotten: makes a session, runs `before`, then `verb` under the script,
/// then `check`.
macro_rules! under_every_script {
    (before $before:expr, verb $verb:expr, check $check:expr) => {
        for script in SCRIPTS {
            for forgets in [false, true] {
                let (w, wire) = world().await;
                let case = format!("{script:?}, tokens forgotten: {forgets}");
                let start = $before(&w).await;
                if forgets {
                    wire.forget_tokens();
                }
                let untouched = rows(&w.client, &w.at).await;
                wire.writes_meet(script);
                let told = $verb(&w, &start).await;
                assert_eq!(wire.heal(), 0, "{case}: the script was played to its end");
                $check(&w, &start, told, untouched, case).await;
            }
        }
    };
}

/// The new events are exactly these, in this order and without a gap, each with its key.
async fn holds_once(w: &World, before: &Rows, told: &Appended, sent: &[NewEvent], case: &str) {
    let now = rows(&w.client, &w.at).await;
    let first = before.head.ledger.seq.0 + 1;
    let seqs: Vec<u64> = now.events.iter().map(|event| event.seq.0).collect();
    assert_eq!(seqs, (1..first + sent.len() as u64).collect::<Vec<_>>(), "L2: {case}");
    let new: Vec<_> = now.events.iter().filter(|event| event.seq.0 >= first).cloned().collect();
    assert_eq!(told.events, new, "what was answered is what is there: {case}");
    assert_eq!(told.head, now.head, "{case}");
    let kinds: Vec<_> = new.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, sent.iter().map(|event| event.kind).collect::<Vec<_>>(), "{case}");
    let keys = sent.iter().filter(|event| event.key.is_some()).count();
    assert_eq!(now.keys.len(), before.keys.len() + keys, "{case}");
    assert!(told.created, "{case}");
}

async fn commit(w: &World, start: &(LeaseToken, Head), events: &[NewEvent]) -> Appended {
    let known = Some(start.1.clone());
    let told = w.ledger().commit(&w.at, known, Some(start.0.clone()), events.to_vec()).await;
    told.expect("faults end")
}

async fn running(w: &World) -> (LeaseToken, Head) {
    let claimed = w.running().await;
    (claimed.token, claimed.head)
}

/// A running run with one open call, `c0`.
async fn calling(w: &World) -> (LeaseToken, Head) {
    let claimed = w.running().await;
    let told = w.commit(&claimed.token, vec![answer("g0", &[1], &["c0"])]).await.expect("no fault yet");
    (claimed.token, told.head)
}

#[tokio::test(start_paused = true)]
async fn i6_an_input_is_written_once_and_safe_to_send_again() {
    under_every_script!(
        before async |_: &World| (),
        verb async |w: &World, (): &()| w.ledger().input(&w.at, text("hi"), Some(key("r"))).await.expect("faults end"),
        check async |w: &World, (): &(), told: Appended, before: Rows, case: String| {
            let sent = NewEvent {
                kind: keel_kernel::Kind::UserMessage,
                payload: text("hi"),
                key: Some((keel_kernel::KeyName::RequestId, key("r"))),
            };
            holds_once(w, &before, &told, &[sent], &case).await;
            assert_eq!(told.head.run.status, RunStatus::Pending, "{case}");
            let again = w.ledger().input(&w.at, text("hi"), Some(key("r"))).await.expect("no fault");
            assert_eq!((again.created, again.events), (false, told.events), "I3: {case}");
            assert_eq!(w.events().await.len(), 1, "{case}");
        }
    );
}

/// Sends a commit, then sends it again as another commit.
async fn owner_commit(sent: Vec<NewEvent>) {
    under_every_script!(
        before calling,
        verb async |w: &World, start: &(LeaseToken, Head)| commit(w, start, &sent).await,
        check async |w: &World, start: &(LeaseToken, Head), told: Appended, before: Rows, case: String| {
            holds_once(w, &before, &told, &sent, &case).await;
            let again = commit(w, start, &sent).await;
            assert_eq!((again.created, &again.events), (false, &told.events), "I3: {case}");
            assert_eq!(w.events().await.len(), 2 + sent.len(), "{case}");
        }
    );
}

#[tokio::test(start_paused = true)]
async fn i6_a_keyed_commit_is_written_once_and_safe_to_send_again() {
    owner_commit(vec![result("c0", "1")]).await;
}

#[tokio::test(start_paused = true)]
async fn i6_a_batch_is_written_once_and_safe_to_send_again() {
    owner_commit(vec![result("c0", "1"), compaction("s"), answer("g1", &[], &["c1"])]).await;
}

#[tokio::test(start_paused = true)]
async fn i6_a_commit_without_a_key_is_written_once_by_its_commit_id() {
    let sent = vec![compaction("s")];
    under_every_script!(
        before running,
        verb async |w: &World, start: &(LeaseToken, Head)| commit(w, start, &sent).await,
        check async |w: &World, _: &(LeaseToken, Head), told: Appended, before: Rows, case: String| {
            holds_once(w, &before, &told, &sent, &case).await;
        }
    );
}

#[tokio::test(start_paused = true)]
async fn i6_a_claim_wins_once_and_finds_itself() {
    under_every_script!(
        before async |w: &World| drop(w.input("first").await),
        verb async |w: &World, (): &()| w.claim().await,
        check async |w: &World, (): &(), told: keel_ledger::Claimed, before: Rows, case: String| {
            let now = rows(&w.client, &w.at).await;
            assert_eq!(told.head, now.head, "{case}");
            assert_eq!((now.head.epoch.0, now.head.run.attempts), (1, 1), "one attempt is spent: {case}");
            assert_eq!((told.token.owner, told.token.epoch), (owner("w1"), now.head.epoch), "{case}");
            assert_eq!(now.events, before.events, "{case}");
            let other = w.ledger().claim(&w.at, &owner("w2")).await.expect("no fault");
            assert!(matches!(other, Err(NotClaimable::Held(_))), "{case}: {other:?}");
        }
    );
}

#[tokio::test(start_paused = true)]
async fn s1_a_settle_with_events_is_written_once_and_safe_to_send_again() {
    let last = || vec![answer("g1", &[1], &[]), finished("done")];
    let settle = async |w: &World, (token, head): &(LeaseToken, Head)| {
        let only_at = Some(head.ledger.seq);
        let known = Some(head.clone());
        w.ledger().settle(&w.at, known, token, Outcome::Succeeded, last(), only_at).await.expect("faults end")
    };
    under_every_script!(
        before running,
        verb settle,
        check async |w: &World, start: &(LeaseToken, Head), told: Option<keel_ledger::SettledRun>, _: Rows, case: String| {
            let told = told.expect("the ledger did not move");
            let now = rows(&w.client, &w.at).await;
            assert_eq!((told.status, told.created), (RunStatus::Done, true), "{case}");
            assert_eq!((told.head, now.events.len(), now.keys.len()), (now.head, 3, 2), "{case}");
            let again = settle(w, start).await.expect("settled");
            assert_eq!((again.status, again.created), (RunStatus::Done, false), "{case}");
            assert_eq!(w.events().await.len(), 3, "{case}");
        }
    );
}

#[tokio::test(start_paused = true)]
async fn s3_a_settle_without_events_is_carried_out_once() {
    let settle = async |w: &World, (token, head): &(LeaseToken, Head)| {
        let outcome = Outcome::Failed { backoff_ms: 500 };
        let told = w.ledger().settle(&w.at, Some(head.clone()), token, outcome, vec![], None).await;
        told.expect("faults end").expect("it was for any seq")
    };
    under_every_script!(
        before running,
        verb settle,
        check async |w: &World, start: &(LeaseToken, Head), told: keel_ledger::SettledRun, _: Rows, case: String| {
            assert_eq!(told.status, RunStatus::Pending, "{case}");
            assert_eq!(told.head, w.head().await, "{case}");
            assert_eq!((told.head.run.attempts, told.head.lease), (1, None), "{case}");
            assert!(!settle(w, start).await.created, "{case}");
        }
    );
}

#[tokio::test(start_paused = true)]
async fn s5_a_release_hands_over_once() {
    let release = async |w: &World, (token, head): &(LeaseToken, Head)| {
        w.ledger().release(&w.at, Some(head.clone()), token).await.expect("faults end")
    };
    under_every_script!(
        before running,
        verb release,
        check async |w: &World, start: &(LeaseToken, Head), told: Head, _: Rows, case: String| {
            assert_eq!(told, w.head().await, "{case}");
            assert_eq!((told.run.status, told.run.handovers, told.run.attempts), (RunStatus::Pending, 1, 0), "{case}");
            assert_eq!(release(w, start).await, told, "once more is the same hand-over: {case}");
        }
    );
}

/// I8: a creation goes through the same loop as a commit. Whatever happens, the session is there once.
#[tokio::test(start_paused = true)]
async fn i6_a_creation_is_written_once_and_safe_to_send_again() {
    let faults =
        [LostRequest, LostAnswer, InternalBefore, InternalAfter, SLOW, THROTTLED, Conflict, InProgress];
    for fault in faults {
        let (w, wire) = world().await;
        let at = session("new");
        let described = described(&at.session, StateOwner::Native);
        wire.writes_meet(&[fault]);
        let (made, created) =
            w.ledger().create(&at, &described, Budget::default()).await.expect("faults end");
        assert_eq!((wire.heal(), created), (0, true), "{fault:?}");
        assert_eq!((&made.description, &made.head), (&described, &Head::new(StateOwner::Native, 3)));
        let (again, created) = w.ledger().create(&at, &described, Budget::default()).await.expect("no fault");
        assert_eq!((again, created), (made, false), "{fault:?}");
        let page = w.tenants().sessions(&at.tenant, None, 10).await.expect("no fault");
        assert_eq!(page.sessions.len(), 2, "{fault:?}: the list names it once, beside the first session");
    }
}

/// The owner remembers a head that is older than the ledger it has read: it knows of a later input when it settles.
#[tokio::test(start_paused = true)]
async fn s4_a_settle_is_not_told_that_the_ledger_moved_because_its_own_memory_is_old() {
    let w = World::new().await;
    let claimed = w.running().await;
    let input = w.input("later").await.events[0].seq;
    let last = vec![answer("g1", &[1], &[]), finished("done")];
    let told = w
        .ledger()
        .settle(&w.at, Some(claimed.head), &claimed.token, Outcome::Succeeded, last, Some(input))
        .await
        .expect("no fault");
    assert_eq!(told.expect("it is for the last seq there is").status, RunStatus::Pending);
}
