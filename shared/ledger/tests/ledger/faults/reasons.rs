//! A cancelled transaction need not name every reason. Whichever one it names, the command's answer is the same.

use keel_kernel::Refusal;

use super::wire::Fault::OneReason;
use super::world;
use crate::support::{answer, compaction, finished, key, refused, result, text};

/// More than any transaction here has failing reasons.
const REASONS: usize = 8;

#[tokio::test(start_paused = true)]
async fn i3_a_retry_is_told_by_any_reason() {
    for told in 0..REASONS {
        let (w, wire) = world().await;
        let claimed = w.running().await;
        let known = || Some(claimed.head.clone());
        let commit = |events| w.ledger().commit(&w.at, known(), Some(claimed.token.clone()), events);
        // The head has changed, another event is in the new one's place, and both keys and the call id are taken.
        let sent = vec![answer("g1", &[], &["c1"]), compaction("s"), answer("g2", &[], &[])];
        let first = commit(sent.clone()).await.unwrap();
        commit(vec![result("c1", "1")]).await.unwrap();
        wire.writes_meet(&[]);
        wire.then_forever(OneReason(told));
        wire.forget_tokens();
        let again = commit(sent).await.unwrap();
        assert_eq!((again.created, again.events), (false, first.events), "reason {told}");
        assert!(wire.failing_reasons() >= 4, "the case has several reasons: {}", wire.failing_reasons());
        wire.heal();
        assert_eq!(w.events().await.len(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn i6_a_lost_race_is_run_again_whichever_reason_is_told() {
    for told in 0..REASONS {
        let (w, wire) = world().await;
        let claimed = w.running().await;
        w.input("a-guest").await;
        w.input("another").await;
        wire.then_forever(OneReason(told));
        let sent = vec![answer("g1", &[1], &["c1"]), result("c1", "1")];
        let known = Some(claimed.head.clone());
        let first = w.ledger().commit(&w.at, known, Some(claimed.token), sent).await.unwrap();
        assert!(first.created);
        assert!(wire.failing_reasons() >= 2);
        wire.heal();
        let seqs: Vec<u64> = w.events().await.iter().map(|event| event.seq.0).collect();
        assert_eq!(seqs, [1, 2, 3, 4, 5], "reason {told}");
    }
}

#[tokio::test(start_paused = true)]
async fn v2_a_reused_call_id_is_refused_whichever_reason_is_told() {
    for told in 0..REASONS {
        let (w, wire) = world().await;
        let claimed = w.running().await;
        let known = || Some(claimed.head.clone());
        let commit = |events| w.ledger().commit(&w.at, known(), Some(claimed.token.clone()), events);
        commit(vec![answer("g1", &[1], &["c1"])]).await.unwrap();
        commit(vec![result("c1", "1")]).await.unwrap();
        wire.then_forever(OneReason(told));
        let refusal = refused(commit(vec![answer("g2", &[], &["c1"])]).await);
        assert_eq!(refusal, Refusal::CallIdReused("c1".to_owned()), "reason {told}");
        wire.heal();
        assert_eq!(w.events().await.len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn s4_a_settle_that_lost_a_race_is_decided_again_whichever_reason_is_told() {
    for told in 0..REASONS {
        let (w, wire) = world().await;
        let claimed = w.running().await;
        w.input("meanwhile").await;
        wire.then_forever(OneReason(told));
        let last = vec![answer("g1", &[1], &[]), finished("done")];
        let (known, outcome) = (Some(claimed.head.clone()), keel_kernel::run::Outcome::Succeeded);
        let settled =
            w.ledger().settle(&w.at, known, &claimed.token, outcome, last, None).await.unwrap().unwrap();
        assert_eq!(settled.status, keel_kernel::RunStatus::Pending, "the newer input starts the next run");
        assert!(wire.failing_reasons() >= 2);
        wire.heal();
        assert_eq!(w.events().await.len(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn i5_a_conflict_is_told_by_any_reason() {
    for told in 0..REASONS {
        let (w, wire) = world().await;
        w.input("r").await;
        wire.then_forever(OneReason(told));
        let refusal = refused(w.ledger().input(&w.at, text("other"), Some(key("r"))).await);
        assert!(
            matches!(refusal, Refusal::IdempotencyConflict { seq: keel_kernel::Seq(1), .. }),
            "{refusal:?}"
        );
    }
}
