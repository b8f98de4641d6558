//! When all tries are used up, the error says truly whether anything may be written, and sending the command again is safe.

use std::sync::Arc;

use keel_kernel::run::Outcome;
use keel_kernel::{RunStatus, StateOwner};
use keel_ledger::dynamo::{Dynamo, Tables};
use keel_ledger::{LedgerError, StoreError};

use super::wire::Fault::{
    self, Conflict, InProgress, InternalAfter, InternalBefore, LostAnswer, LostRequest,
};
use super::{SLOW, THROTTLED, world};
use crate::support::{
    Rig, TestEnv, World, answer, compaction, create, embedded, finished, key, owner, result, session, text,
};

const FOREVER: [Fault; 8] =
    [LostRequest, LostAnswer, SLOW, THROTTLED, Conflict, InProgress, InternalBefore, InternalAfter];

/// The error is Busy or a failure of the store, and says "nothing was written" only where nothing was.
#[track_caller]
fn is_true<T: std::fmt::Debug>(ended: Result<T, LedgerError>, written: bool, case: &str) {
    match ended {
        Err(LedgerError::Store(StoreError::Unknown(..))) => {}
        Err(LedgerError::Busy) => {}
        Err(LedgerError::Store(StoreError::NotWritten(..))) if !written => {}
        other => panic!("{case}, written: {written}: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn i6_an_input_that_gave_up_is_safe_to_send_again() {
    for fault in FOREVER {
        let (w, wire) = world().await;
        wire.then_forever(fault);
        let ended = w.ledger().input(&w.at, text("hi"), Some(key("r"))).await;
        wire.heal();
        let written = !w.events().await.is_empty();
        is_true(ended, written, &format!("{fault:?}"));
        let again = w.ledger().input(&w.at, text("hi"), Some(key("r"))).await.unwrap();
        assert_eq!(again.created, !written, "{fault:?}");
        assert_eq!(w.events().await.len(), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn i6_an_owners_batch_that_gave_up_is_safe_to_send_again() {
    for fault in FOREVER {
        let (w, wire) = world().await;
        let claimed = w.running().await;
        let sent = || vec![answer("g1", &[1], &["c1"]), compaction("s"), result("c1", "1")];
        wire.then_forever(fault);
        let ended = w.commit(&claimed.token, sent()).await;
        wire.heal();
        let written = w.events().await.len() > 1;
        is_true(ended, written, &format!("{fault:?}"));
        let again = w.commit(&claimed.token, sent()).await.unwrap();
        assert_eq!(again.created, !written, "{fault:?}");
        assert_eq!(w.events().await.len(), 4, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn s3_a_claim_a_settle_and_a_release_that_gave_up_are_safe_to_send_again() {
    for fault in FOREVER {
        let (w, wire) = world().await;
        let case = format!("{fault:?}");
        w.input("first").await;
        wire.then_forever(fault);
        let ended = w.ledger().claim(&w.at, &owner("w1")).await;
        wire.heal();
        if w.head().await.epoch.0 == 0 {
            is_true(ended, false, &case);
            w.claim().await;
        } else {
            // A claim whose answer is lost recognises itself in the head that its second sending meets.
            assert!(matches!(ended, Ok(Ok(_)) | Err(_)), "{case}: {ended:?}");
        }
        let token = keel_kernel::LeaseToken { owner: owner("w1"), epoch: w.head().await.epoch };
        assert_eq!(token.epoch.0, 1, "{case}");

        wire.then_forever(fault);
        let _ = w.ledger().release(&w.at, None, &token).await;
        wire.heal();
        let head = w.ledger().release(&w.at, None, &token).await.unwrap();
        assert_eq!((head.run.status, head.run.handovers), (RunStatus::Pending, 1), "{case}");

        let token = w.claim().await.token;
        wire.then_forever(fault);
        let last = || vec![answer("g1", &[1], &[]), finished("done")];
        let _ = w.ledger().settle(&w.at, None, &token, Outcome::Succeeded, last(), None).await;
        wire.heal();
        let settled = w.ledger().settle(&w.at, None, &token, Outcome::Succeeded, last(), None).await;
        assert_eq!(settled.unwrap().unwrap().status, RunStatus::Done, "{case}");
        assert_eq!(w.events().await.len(), 3, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn i6_a_doubt_is_not_forgotten_when_later_tries_are_refused_at_the_door() {
    for fault in [SLOW, THROTTLED, Conflict, InProgress] {
        let (w, wire) = world().await;
        wire.writes_meet(&[LostAnswer]);
        wire.then_forever(fault);
        let ended = w.ledger().input(&w.at, text("hi"), Some(key("r"))).await;
        wire.heal();
        assert_eq!(w.events().await.len(), 1, "the first try wrote it");
        is_true(ended, true, &format!("{fault:?} after a lost answer"));
    }
}

#[tokio::test(start_paused = true)]
async fn i6_a_read_that_is_refused_or_lost_is_tried_again() {
    for fault in [SLOW, THROTTLED, LostRequest, LostAnswer, InternalBefore] {
        let (w, wire) = world().await;
        wire.requests_meet(&[fault]);
        let first = w.ledger().input(&w.at, text("hi"), Some(key("r"))).await;
        wire.heal();
        assert!(first.as_ref().is_ok_and(|first| first.created), "{fault:?}: {first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn i6_a_token_names_one_commit_however_alike_the_ids_are() {
    let store = Arc::new(Dynamo::new(embedded().await.client(), Tables::with_prefix("")));
    let at = session("s");
    create(&*store, &at, StateOwner::Native).await;
    let rig = Rig::over(store, TestEnv::at_one_moment(7));
    for request in ["a", "b", "c"] {
        let told = rig.ledger.input(&at, text(request), Some(key(request))).await;
        assert!(told.as_ref().is_ok_and(|told| told.created), "{request}: {told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn l2_a_busy_session_says_so_and_nothing_is_written() {
    let (w, wire) = world().await;
    wire.requests();
    wire.then_forever(Conflict);
    let ended = w.ledger().input(&w.at, text("hi"), Some(key("r"))).await;
    wire.heal();
    assert!(matches!(ended, Err(LedgerError::Busy)), "{ended:?}");
    let writes = wire.requests().iter().filter(|operation| *operation == "TransactWriteItems").count();
    assert_eq!(writes, 12, "the budget of tries");
    let head = w.head().await;
    assert_eq!((head.ledger.seq.0, head.run.status), (0, RunStatus::Idle));
}

#[tokio::test(start_paused = true)]
async fn c2_a_renewal_that_changes_nothing_is_still_checked() {
    // The clock stands still, so the renewed lease would end when the claimed one does.
    let w = World::new().await;
    let first = w.running().await;
    w.ledger().release(&w.at, Some(first.head.clone()), &first.token).await.unwrap();
    w.ledger().claim(&w.at, &owner("w2")).await.unwrap().unwrap();
    let ended = w.ledger().renew(&w.at, Some(first.head), &first.token).await;
    let refusal = crate::support::refused(ended);
    assert_eq!(refusal, keel_kernel::Refusal::Fenced { current_epoch: keel_kernel::Epoch(2) });
}
