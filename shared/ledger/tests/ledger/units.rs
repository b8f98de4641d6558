//! What each command costs, in the capacity units that the store reports. Where a figure here changes, a bill changes.

use keel_kernel::run::Outcome;
use keel_kernel::{Head, Seq};
use keel_ledger::Ledger;
use keel_ledger::meter::Units;
use keel_ledger::port::Consistency;

use crate::support::{World, answer, compaction, finished, key, result, text};

/// One line of the table.
struct Line {
    verb: &'static str,
    told: Units,
    write: f64,
    read: f64,
    calls: u64,
}

/// The lines. They are checked all together, so that one run shows every figure.
#[derive(Default)]
struct Bill(Vec<Line>);

impl Bill {
    fn line(&mut self, world: &World, verb: &'static str, write: f64, read: f64, calls: u64) {
        self.0.push(Line { verb, told: world.store.meter().take(), write, read, calls });
    }

    /// Prints the table, then checks it.
    fn check(self) {
        println!("| verb | WRU | RRU | calls |\n|---|---|---|---|");
        for Line { verb, told, .. } in &self.0 {
            println!("| {verb} | {} | {} | {} |", told.write, told.read, told.calls);
        }
        for Line { verb, told, write, read, calls } in &self.0 {
            assert_eq!((told.write, told.read, told.calls), (*write, *read, *calls), "{verb}");
        }
    }
}

async fn known(ledger: &Ledger, world: &World) -> Option<Head> {
    let head = ledger.head(&world.at).await.unwrap();
    world.store.meter().take();
    Some(head)
}

#[tokio::test(start_paused = true)]
async fn what_each_verb_costs_for_events_under_a_kilobyte() {
    let w = World::new().await;
    let mut bill = Bill::default();
    let ledger = w.ledger();
    let commit = |known, token, events| ledger.commit(&w.at, known, Some(token), events);

    w.input("one").await;
    bill.line(&w, "input that starts a run", 7.0, 0.5, 2);
    w.input("two").await;
    bill.line(&w, "input into a pending run", 6.0, 0.5, 2);
    let claimed = w.claim().await;
    bill.line(&w, "claim", 1.0, 0.5, 2);
    let token = claimed.token;
    w.input("three").await;
    bill.line(&w, "input into a running run", 6.0, 0.5, 2);
    w.input("three").await;
    bill.line(&w, "input sent again (the refused write shows no units)", 0.0, 3.5, 5);

    w.rig.env.advance(1_000);
    let head = known(ledger, &w).await;
    let head = commit(head, token.clone(), vec![answer("g1", &[1], &["c1", "c2"])]).await.unwrap().head;
    bill.line(&w, "owner: message with 2 new call ids, head known", 10.0, 0.0, 1);
    let head = commit(Some(head), token.clone(), vec![result("c1", "1")]).await.unwrap().head;
    bill.line(&w, "owner: commit with a key, head known", 6.0, 0.0, 1);
    let head = commit(Some(head), token.clone(), vec![compaction("s")]).await.unwrap().head;
    bill.line(&w, "owner: commit without a key, head known", 4.0, 0.0, 1);
    commit(None, token.clone(), vec![compaction("t")]).await.unwrap();
    bill.line(&w, "owner: commit without a key, head unknown", 4.0, 0.5, 2);
    commit(Some(head), token.clone(), vec![compaction("u")]).await.unwrap();
    bill.line(&w, "owner: commit without a key, head stale (lost race told free)", 4.0, 0.0, 2);
    let head = known(ledger, &w).await;
    let batch = vec![result("c2", "2"), answer("g2", &[], &[])];
    let head = commit(head, token.clone(), batch).await.unwrap().head;
    bill.line(&w, "owner: batch of two with keys, head known", 10.0, 0.0, 1);

    w.rig.env.advance(1_000);
    let head = ledger.renew(&w.at, Some(head), &token).await.unwrap();
    bill.line(&w, "renew, head known", 1.0, 0.0, 1);
    ledger.cancel(&w.at).await.unwrap();
    bill.line(&w, "cancel of a running run", 1.0, 0.5, 2);
    ledger.release(&w.at, Some(head), &token).await.unwrap();
    bill.line(
        &w,
        "release, head known (+2: it moves in the due index; lost a race to the cancel)",
        3.0,
        0.0,
        2,
    );

    ledger.claim(&w.at, &crate::support::owner("w2")).await.unwrap().unwrap();
    w.store.meter().take();
    let head = known(ledger, &w).await.unwrap();
    let token = keel_kernel::LeaseToken { owner: crate::support::owner("w2"), epoch: head.epoch };
    let last = vec![answer("g3", &[2, 3], &[]), finished("done")];
    ledger.settle(&w.at, Some(head), &token, Outcome::Succeeded, last, None).await.unwrap();
    bill.line(
        &w,
        "settle with the answer and run.finished, head known (+1: it leaves the due index)",
        9.0,
        0.0,
        1,
    );
    w.input("four").await;
    let token = w.claim().await.token;
    let head = known(ledger, &w).await;
    let outcome = Outcome::Failed { backoff_ms: 500 };
    ledger.settle(&w.at, head, &token, outcome, vec![], None).await.unwrap();
    bill.line(&w, "settle without events, to be retried (+2: it moves in the due index)", 3.0, 0.0, 1);
    let _ = ledger.claim(&w.at, &crate::support::owner("w3")).await.unwrap().unwrap_err();
    bill.line(&w, "claim that is too early (looked at again before it is said)", 0.0, 1.5, 2);

    let last = w.head().await.ledger.seq;
    w.store.meter().take();
    ledger.events(&w.at, last, 100, Consistency::Eventual).await.unwrap();
    bill.line(&w, "idle poll", 0.0, 0.5, 1);
    ledger.events(&w.at, Seq::ZERO, 100, Consistency::Eventual).await.unwrap();
    bill.line(&w, "poll that finds less than 4 KB", 0.0, 0.5, 1);
    ledger.events(&w.at, Seq::ZERO, 100, Consistency::Strong).await.unwrap();
    bill.line(&w, "the same, strongly", 0.0, 1.0, 1);
    bill.check();
}

#[tokio::test(start_paused = true)]
async fn an_event_over_a_kilobyte_costs_two_more_and_its_key_no_more() {
    let w = World::new().await;
    let mut bill = Bill::default();
    w.input("one").await;
    w.store.meter().take();
    let long = text(&"x".repeat(1_100));
    w.ledger().input(&w.at, long, Some(key("two"))).await.unwrap();
    bill.line(&w, "input of 1.1 KB into a pending run", 8.0, 0.5, 2);
    bill.check();
}
