//! L2, C6, R2: an eventual read of the head may show an earlier head, and an eventual page may lack the newest events.
//! Even so a command answers what it would on a strong read, and a reader misses nothing.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use keel_kernel::run::NotClaimable;
use keel_kernel::{Head, RunStatus, Seq, StateOwner};
use keel_ledger::Store;
use keel_ledger::memory::Memory;
use keel_ledger::port::{Consistency, EventPage, SessionKey, StoreError};
use keel_ledger::store_layer::StoreLayer;

use crate::support::{Rig, TestEnv, compaction, create, key, owner, session, text};

/// A store whose eventual reads are those of an earlier moment.
#[derive(Default)]
struct Behind {
    now: Memory,
    past: Mutex<Option<Head>>,
}

impl Behind {
    fn head_now(&self, at: &SessionKey) -> Head {
        self.now.copy(at).unwrap().head
    }

    /// From now on eventual reads show this moment.
    fn stop(&self, at: &SessionKey) {
        *self.past.lock().unwrap() = Some(self.head_now(at));
    }
}

#[async_trait]
impl StoreLayer for Behind {
    fn below(&self) -> &dyn Store {
        &self.now
    }

    async fn head(&self, at: &SessionKey, consistency: Consistency) -> Result<Option<Head>, StoreError> {
        match consistency {
            Consistency::Strong => self.now.head(at, consistency).await,
            Consistency::Eventual => Ok(self.past.lock().unwrap().clone()),
        }
    }

    async fn events(
        &self,
        at: &SessionKey,
        after: Seq,
        limit: usize,
        consistency: Consistency,
    ) -> Result<EventPage, StoreError> {
        let mut page = self.now.events(at, after, limit, consistency).await?;
        if consistency == Consistency::Eventual {
            let seen = self.past.lock().unwrap().as_ref().map_or(Seq::ZERO, |head| head.ledger.seq);
            let all = page.events.len();
            page.events.retain(|event| event.seq <= seen);
            page.has_more &= page.events.len() == all;
        }
        Ok(page)
    }
}

struct Stale {
    store: Arc<Behind>,
    rig: Rig,
    at: SessionKey,
}

impl Stale {
    async fn new() -> Self {
        let (store, at) = (Arc::new(Behind::default()), session("s"));
        create(&store.now, &at, StateOwner::Native).await;
        let rig = Rig::over(store.clone(), TestEnv::new(7));
        Self { store, rig, at }
    }

    async fn input(&self, request: &str) -> keel_ledger::Appended {
        self.rig.ledger.input(&self.at, text(request), Some(key(request))).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn l2_i3_an_input_that_sees_an_old_head_or_none_gets_the_next_seq_and_its_retry_is_known() {
    let w = Stale::new().await;
    let first = w.input("one").await; // eventual reads show no session at all
    assert_eq!((first.created, first.events[0].seq), (true, Seq(1)));
    w.store.stop(&w.at);
    for (n, request) in ["two", "three", "four"].into_iter().enumerate() {
        assert_eq!(w.input(request).await.events[0].seq, Seq(n as u64 + 2));
    }
    let again = w.input("three").await;
    assert_eq!((again.created, again.events[0].seq), (false, Seq(3)));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_sees_an_old_head_is_told_what_is_so_now() {
    let w = Stale::new().await;
    w.store.stop(&w.at); // nothing pending
    w.input("one").await;
    w.rig.ledger.claim(&w.at, &owner("w1")).await.unwrap().expect("the input made it pending");
    let held = w.rig.ledger.claim(&w.at, &owner("w2")).await.unwrap().unwrap_err();
    assert!(matches!(held, NotClaimable::Held(_)), "{held:?}");
}

#[tokio::test(start_paused = true)]
async fn c6_a_command_that_sees_a_session_still_open_is_refused_and_closing_again_says_closed() {
    let w = Stale::new().await;
    w.input("one").await;
    w.store.stop(&w.at);
    w.rig.ledger.close(&w.at).await.unwrap();
    let refused = w.rig.ledger.input(&w.at, text("two"), Some(key("two"))).await.unwrap_err();
    assert_eq!(refused.to_string(), keel_kernel::Refusal::SessionClosed.to_string());
    let closed = w.rig.ledger.close(&w.at).await.unwrap();
    assert!(closed.closed && closed.run.status == RunStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn r2_all_of_a_long_ledger_is_read_however_far_behind_eventual_reads_are() {
    let w = Stale::new().await;
    w.input("one").await;
    let claimed = w.rig.ledger.claim(&w.at, &owner("w1")).await.unwrap().unwrap();
    let mut head = claimed.head;
    for seq in 2..=260 {
        let events = vec![compaction("s")];
        head =
            w.rig.ledger.commit(&w.at, Some(head), Some(claimed.token.clone()), events).await.unwrap().head;
        if seq == 50 || seq == 180 {
            w.store.stop(&w.at);
        }
        if seq % 65 == 0 {
            let read = w.rig.ledger.all_events(&w.at, Seq::ZERO).await.unwrap();
            let seqs: Vec<u64> = read.iter().map(|event| event.seq.0).collect();
            assert_eq!(seqs, (1..=seq).collect::<Vec<_>>());
        }
    }
}
