//! K2: a long session that was compacted answers its next input reading only what it needs.

use std::sync::Arc;

use keel_agent::Ended;
use keel_agent::provider::fake::Fake;
use keel_agent::tool::builtin::Builtin;
use keel_embedded::{Dispatch, Embedded, tables};
use keel_env::{Env as _, SystemEnv};
use keel_fn_worker::{Answered, FixedResources, NoMessage, Worker, WorkerConfig};
use keel_kernel::budget::Budget;
use keel_kernel::{
    DedupeKey, KeyName, Kind, NewEvent, OwnerId, Payload, RunStatus, SessionDescription, SessionId, TenantId,
};
use keel_ledger::dynamo::{Dynamo, Tables};
use keel_ledger::hints::LocalHints;
use keel_ledger::notifier::CommitNotifier;
use keel_ledger::{Ledger, LedgerConfig, SessionKey, TenantStore};
use serde_json::{Value, json};

/// Events of the session, and after how many of them it is compacted.
const EVENTS: u64 = 2_000;
const EACH: u64 = 500;
/// Events that a compaction keeps.
const KEPT: u64 = 60;

fn event(kind: Kind, value: &Value, key: Option<&str>) -> NewEvent {
    let payload = Payload::from_value(value).expect("strict JSON");
    let key = key.map(|key| (KeyName::GenerationId, DedupeKey::parse(key).expect("visible ASCII")));
    NewEvent { kind, payload, key }
}

#[tokio::test]
async fn k2_two_thousand_events_and_four_compactions_cost_what_is_kept() {
    let embedded = Embedded::memory().expect("a store in memory").with_dispatch(Dispatch::Inline);
    tables::create_missing(&embedded.client(), "").await.expect("an empty store takes the tables");
    let tables = Dynamo::new(embedded.client(), Tables::with_prefix(""));
    let (hints, _out) = LocalHints::channel();
    let store = Arc::new(tables.clone());
    let ledger = Ledger::new(
        store,
        Arc::new(hints),
        CommitNotifier::in_process(),
        Arc::new(SystemEnv),
        LedgerConfig::default(),
    );
    let session = SessionId::parse("long").expect("a name");
    let at = SessionKey { tenant: TenantId::parse("acme").expect("a name"), session: session.clone() };
    let description = SessionDescription::native(session, SystemEnv.now());
    ledger.create(&at, &description, Budget::default()).await.expect("it is new");
    let say = async |text: &str| {
        let payload = Payload::from_value(&json!({ "text": text })).expect("strict JSON");
        ledger.input(&at, payload, None).await.expect("an input commits");
    };

    say("hello").await;
    let owner = OwnerId::parse("before").expect("visible ASCII");
    let claimed = ledger.claim(&at, &owner).await.expect("the store works").expect("it is pending");
    let (token, mut head) = (claimed.token, claimed.head);
    let words = "The quick brown fox jumps over the lazy dog. ".repeat(6);
    while head.ledger.seq.0 < EVENTS {
        let n = head.ledger.seq.0;
        let events = if n % EACH == EACH - 1 {
            let summary = json!({ "summary": "what came before", "firstKeptSeq": n - KEPT });
            vec![event(Kind::Compaction, &summary, None)]
        } else {
            let answer = json!({
                "content": [{ "type": "text", "text": words }], "stopReason": "end_turn",
                "inputSeqs": if n == 1 { json!([1]) } else { json!([]) },
            });
            vec![event(Kind::AssistantMessage, &answer, Some(&format!("g{n}")))]
        };
        head = ledger
            .commit(&at, Some(head), Some(token.clone()), events)
            .await
            .expect("the owner commits")
            .head;
    }
    let done = vec![event(Kind::RunFinished, &json!({ "status": "done" }), None)];
    let outcome = keel_kernel::run::Outcome::Succeeded;
    ledger.settle(&at, Some(head), &token, outcome, done, None).await.expect("it settles");
    let events = ledger.all_events(&at, keel_kernel::Seq::ZERO).await.expect("it reads");
    let bytes = |from: u64| {
        let kept = events.iter().filter(|event| event.seq.0 >= from);
        kept.map(|event| event.payload.text().len()).sum::<usize>()
    };
    let compactions = events.iter().filter(|event| event.kind == Kind::Compaction).count();
    assert!(
        events.len() as u64 > EVENTS && compactions == 4,
        "{} events, {compactions} compactions",
        events.len()
    );

    say("and now?").await;
    let (_stop, drain) = tokio::sync::watch::channel(false);
    let tools = Arc::new(Builtin::new(|| "noon".to_owned()));
    let resources = Arc::new(FixedResources { provider: Arc::new(Fake), tools });
    let worker = Worker {
        ledger: ledger.clone(),
        tenants: TenantStore::new(tables.clone()),
        resources,
        config: WorkerConfig::default(),
        drain,
    };
    tables.meter().take();
    let answered = worker.answer_run(&at, None, &NoMessage).await.expect("the store does not fail");
    let units = tables.meter().take();
    assert!(matches!(answered, Answered::Ended(Ended::Settled(RunStatus::Done))), "{answered:?}");
    let head = ledger.head(&at).await.expect("it is there");
    let (_, first) = head.ledger.shown();
    println!(
        "{} events, {compactions} compactions: answered with {} RRU, {} WRU, {} calls; {} of {} bytes of payloads read",
        events.len(),
        units.read,
        units.write,
        units.calls,
        bytes(first.0),
        bytes(1),
    );
    // The kept events are some 20 KB; the head, the description and two looks for news are what remains.
    assert!(units.read <= 25.0, "{} RRU", units.read);
    assert!(bytes(1) > 10 * bytes(first.0));
}
