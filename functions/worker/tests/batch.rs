//! A batch of the queue's messages: what fails comes again, and only that.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use keel_agent::provider::fake::Fake;
use keel_agent::tool::builtin::Builtin;
use keel_env::{Env as _, SystemEnv};
use keel_fn_worker::batch::{MessageQueue, Received, answer_batch};
use keel_fn_worker::{FixedResources, Worker, WorkerConfig};
use keel_kernel::budget::Budget;
use keel_kernel::{Payload, RunStatus, SessionDescription, SessionId, TenantId};
use keel_ledger::dynamo::{Dynamo, Tables};
use keel_ledger::hints::LocalHints;
use keel_ledger::notifier::CommitNotifier;
use keel_ledger::{Ledger, LedgerConfig, SessionKey, TenantStore};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

/// What was asked of the queue: deliveries, and for how many seconds.
#[derive(Default)]
struct Kept(Mutex<Vec<(String, u64)>>);

#[async_trait]
impl MessageQueue for Kept {
    async fn keep(&self, receipt: &str, seconds: u64) {
        self.0.lock().push((receipt.to_owned(), seconds));
    }
}

fn at(session: &str) -> SessionKey {
    SessionKey {
        tenant: TenantId::parse("acme").expect("a name"),
        session: SessionId::parse(session).expect("a name"),
    }
}

fn message(id: &str, body: impl ToString) -> Received {
    Received { id: id.to_owned(), receipt: format!("receipt of {id}"), body: body.to_string() }
}

#[tokio::test]
async fn s5_what_cannot_be_read_or_answered_comes_again_and_the_rest_is_done() {
    let embedded = keel_embedded::Embedded::memory().expect("a store in memory");
    keel_embedded::tables::create_missing(&embedded.client(), "").await.expect("an empty store");
    let tables = Dynamo::new(embedded.client(), Tables::with_prefix(""));
    let (hints, _hinted) = LocalHints::channel();
    let (notifier, env) = (CommitNotifier::none(), Arc::new(SystemEnv));
    let config = LedgerConfig { lease_ms: 9_500, ..LedgerConfig::default() };
    let ledger = Ledger::new(Arc::new(tables.clone()), Arc::new(hints), notifier, env, config);
    let tools = Arc::new(Builtin::new(|| "noon".to_owned()));
    let worker = Worker {
        ledger: ledger.clone(),
        tenants: TenantStore::new(tables),
        resources: Arc::new(FixedResources { provider: Arc::new(Fake), tools }),
        config: WorkerConfig::default(),
        drain: tokio::sync::watch::channel(false).1,
    };
    for session in ["first", "second"] {
        let at = at(session);
        let description = SessionDescription::native(at.session.clone(), SystemEnv.now());
        ledger.create(&at, &description, Budget::default()).await.expect("it is new");
        let payload = Payload::from_value(&json!({ "text": "hello" })).expect("strict JSON");
        ledger.input(&at, payload, None).await.expect("an input commits");
    }
    let hint = |session: &str| json!({ "tenant": "acme", "session": session });
    let kept = Arc::new(Kept::default());
    let queue: Arc<dyn MessageQueue> = kept.clone();
    let batch = vec![
        message("good", hint("first")),
        message("not JSON", "{"),
        message("not a hint", json!({ "tenant": "a#b", "session": 7 })),
        message("of nobody", hint("nowhere")),
        message("behind them", hint("second")),
        message("twice", hint("first")),
    ];
    let deadline = Instant::now() + Duration::from_secs(600);
    let failed = answer_batch(&worker, &queue, batch, deadline).await;
    assert_eq!(failed, ["not JSON", "not a hint", "of nobody"]);
    for session in ["first", "second"] {
        assert_eq!(ledger.head(&at(session)).await.expect("it is there").run.status, RunStatus::Done);
    }
    let kept = kept.0.lock().clone();
    let of = |id: &str| -> Vec<u64> {
        let receipt = format!("receipt of {id}");
        kept.iter().filter(|(kept, _)| *kept == receipt).map(|(_, seconds)| *seconds).collect()
    };
    // A lease's length, in whole seconds; and a second for what will read no better later.
    assert!(!of("good").is_empty() && of("good").iter().all(|seconds| *seconds == 10), "{kept:?}");
    assert_eq!(of("not JSON"), [1]);
}
