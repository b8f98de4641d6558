//! The sweep finds every due run, whatever stands before it in the index, in bounded steps.

use std::collections::BTreeSet;
use std::sync::Arc;

use keel_embedded::{Dispatch, Embedded, tables};
use keel_env::{Env, SystemEnv};
use keel_fn_kernel::sweep::{Sweeper, Swept};
use keel_kernel::budget::Budget;
use keel_kernel::{Millis, OwnerId, Payload, SessionDescription, SessionId, TenantId, caps};
use keel_ledger::dynamo::{Dynamo, Tables};
use keel_ledger::hints::{Hint, LocalHints};
use keel_ledger::notifier::CommitNotifier;
use keel_ledger::{Ledger, LedgerConfig, SessionKey};
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;

/// The system's, some time later.
struct Later(u64);

impl Env for Later {
    fn now(&self) -> Millis {
        SystemEnv.now().plus(self.0)
    }

    fn unique(&self) -> String {
        SystemEnv.unique()
    }

    fn pick(&self, range: std::ops::RangeInclusive<u64>) -> u64 {
        *range.start()
    }
}

struct World {
    tables: Dynamo,
    hints: LocalHints,
    hinted: UnboundedReceiver<Hint>,
}

impl World {
    async fn new() -> Self {
        let embedded = Embedded::memory().expect("a store in memory").with_dispatch(Dispatch::Inline);
        tables::create_missing(&embedded.client(), "").await.expect("an empty store takes the tables");
        let tables = Dynamo::new(embedded.client(), Tables::with_prefix(""));
        let (hints, hinted) = LocalHints::channel();
        Self { tables, hints, hinted }
    }

    fn ledger(&self, later_ms: u64) -> Ledger {
        let config = LedgerConfig { lease_ms: 10_000, ..LedgerConfig::default() };
        let (store, hints) = (Arc::new(self.tables.clone()), Arc::new(self.hints.clone()));
        Ledger::new(store, hints, CommitNotifier::none(), Arc::new(Later(later_ms)), config)
    }

    /// A session with a pending run, whose hint is lost.
    async fn pending(&mut self, name: &str) -> SessionKey {
        let at = SessionKey {
            tenant: TenantId::parse("acme").expect("a name"),
            session: SessionId::parse(name).expect("a name"),
        };
        let description: SessionDescription = serde_json::from_value(json!({
            "sessionId": name, "stateOwner": "native", "maxAttempts": 3, "createdMs": 1, "revision": 1, "digest": "d",
        }))
        .expect("a description");
        self.ledger(0).create(&at, &description, Budget::default()).await.expect("it is new");
        let payload = Payload::from_value(&json!({ "text": "hello" })).expect("strict JSON");
        self.ledger(0).input(&at, payload, None).await.expect("an input commits");
        self.lost();
        at
    }

    /// Hints so far, which nobody gets.
    fn lost(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.hinted.try_recv().ok()).map(|hint| hint.session.to_string()).collect()
    }
}

fn owner() -> OwnerId {
    OwnerId::parse("me").expect("visible ASCII")
}

#[tokio::test(start_paused = true)]
async fn r6_a_pending_run_whose_hint_was_lost_is_hinted_after_its_grace() {
    let mut world = World::new().await;
    world.pending("one").await;
    let early = Sweeper::new(world.ledger(caps::PENDING_GRACE_MS - 1_000));
    assert_eq!(early.sweep().await.expect("it reads"), Swept::default());
    let late = Sweeper::new(world.ledger(caps::PENDING_GRACE_MS + 1_000));
    assert_eq!(late.sweep().await.expect("it reads"), Swept { looked_at: 1, hinted: 1, more: false });
    assert_eq!(world.lost(), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn s5_a_run_whose_owner_died_is_hinted_when_its_lease_ends_and_not_before() {
    let mut world = World::new().await;
    let at = world.pending("one").await;
    world.ledger(0).claim(&at, &owner()).await.expect("it writes").expect("it is pending");
    for (later, hinted) in [(9_000, 0), (11_000, 1)] {
        let swept = Sweeper::new(world.ledger(later)).sweep().await.expect("it reads");
        assert_eq!(swept.hinted, hinted, "{later} ms later");
    }
}

#[tokio::test(start_paused = true)]
async fn r6_a_sweep_goes_on_where_it_stopped() {
    let mut world = World::new().await;
    let mut all = BTreeSet::new();
    for n in 0..40 {
        let name = format!("s{n}");
        world.pending(&name).await;
        all.insert(name);
    }
    let ledger = world.ledger(caps::PENDING_GRACE_MS + 1_000);
    let sweeper = Sweeper::new(ledger).with_pages(3);
    let mut hinted = BTreeSet::new();
    let mut calls = 0;
    // Sixteen partitions, three pages a call: six calls see every one.
    while calls < 6 {
        let swept = sweeper.sweep().await.expect("it reads");
        calls += 1;
        assert!(swept.more, "three of sixteen are not all");
        hinted.extend(world.lost());
    }
    assert_eq!(hinted, all);
}

#[tokio::test(start_paused = true)]
async fn r6_recovery_hints_at_once_what_waits_and_later_what_is_leased() {
    let mut world = World::new().await;
    world.pending("waits").await;
    let leased = world.pending("leased").await;
    world.ledger(0).claim(&leased, &owner()).await.expect("it writes").expect("it is pending");
    let swept = Sweeper::new(world.ledger(0)).recover().await.expect("it reads");
    assert_eq!((swept.looked_at, swept.hinted), (2, 2));
    assert_eq!(world.lost(), ["waits"]);
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    assert_eq!(world.lost(), ["leased"]);
}
