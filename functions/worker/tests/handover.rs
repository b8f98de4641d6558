//! S5: a run longer than any invocation is handed from one to the next, and none of it costs an attempt.

use std::sync::Arc;
use std::time::Duration;

use keel_agent::Ended;
use keel_agent::provider::fake::Fake;
use keel_agent::tool::builtin::Builtin;
use keel_embedded::{Dispatch, Embedded, tables};
use keel_env::{Env as _, SystemEnv};
use keel_fn_worker::{Answered, FixedResources, NoMessage, Worker, WorkerConfig};
use keel_kernel::budget::Budget;
use keel_kernel::{
    DedupeKey, KeyName, Kind, NewEvent, OwnerId, Payload, RunStatus, Seq, SessionDescription, SessionId,
    TenantId,
};
use keel_ledger::dynamo::{Dynamo, Tables};
use keel_ledger::hints::LocalHints;
use keel_ledger::notifier::CommitNotifier;
use keel_ledger::{Ledger, LedgerConfig, SessionKey, TenantStore};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long an invocation may take, as the function's configuration would say.
const INVOCATION: Duration = Duration::from_secs(3);

/// A worker over an empty store, and a session.
async fn world() -> (Worker, SessionKey, watch::Sender<bool>) {
    let embedded = Embedded::memory().expect("a store in memory").with_dispatch(Dispatch::Inline);
    tables::create_missing(&embedded.client(), "").await.expect("an empty store takes the tables");
    let tables = Dynamo::new(embedded.client(), Tables::with_prefix(""));
    let at = SessionKey {
        tenant: TenantId::parse("acme").expect("a name"),
        session: SessionId::parse("long").expect("a name"),
    };
    let description: SessionDescription = serde_json::from_value(json!({
        "sessionId": "long", "stateOwner": "native", "maxAttempts": 3, "createdMs": SystemEnv.now().0,
        "revision": 1, "digest": "d",
    }))
    .expect("a description");
    let (hints, _) = LocalHints::channel();
    let ledger = Ledger::new(
        Arc::new(tables.clone()),
        Arc::new(hints),
        CommitNotifier::in_process(),
        Arc::new(SystemEnv),
        LedgerConfig::default(),
    );
    let config = WorkerConfig {
        no_new_request: Duration::from_millis(300),
        stop: Duration::from_millis(100),
        ..WorkerConfig::default()
    };
    let (stop, drain) = watch::channel(false);
    let tools = Arc::new(Builtin::new(|| "noon".to_owned()));
    let resources = Arc::new(FixedResources { provider: Arc::new(Fake), tools });
    ledger.create(&at, &description, Budget::default()).await.expect("it is new");
    let tenants = TenantStore::new(tables);
    (Worker { ledger, tenants, resources, config, drain }, at, stop)
}

async fn say(worker: &Worker, at: &SessionKey, text: &str) {
    let payload = Payload::from_value(&json!({ "text": text })).expect("strict JSON");
    worker.ledger.input(at, payload, None).await.expect("an input commits");
}

/// Invocations until the run is settled; how each ended.
async fn invoke(worker: &Worker, at: &SessionKey) -> Vec<Ended> {
    let mut ends = Vec::new();
    while ends.len() < 100 {
        let started = Instant::now();
        let deadline = Some(started + INVOCATION);
        let answered = worker.answer_run(at, deadline, &NoMessage).await.expect("the store does not fail");
        assert!(started.elapsed() < INVOCATION, "it ended in its time: {:?}", started.elapsed());
        let Answered::Ended(ended) = answered else { panic!("a pending run is claimed: {answered:?}") };
        ends.push(ended);
        if ended != Ended::HandedOver {
            return ends;
        }
    }
    panic!("it never settles");
}

#[tokio::test(start_paused = true)]
async fn s5_a_run_of_twenty_invocations_is_one_attempt() {
    let (worker, at, _stop) = world().await;
    let turns = 48;
    say(&worker, &at, &vec!["!tool sleep {\"ms\":1200}"; turns].join("\n!then\n")).await;
    let ends = invoke(&worker, &at).await;
    println!("{} invocations of {INVOCATION:?}", ends.len());
    assert!(ends.len() >= 20, "{}", ends.len());
    assert_eq!(ends.last(), Some(&Ended::Settled(RunStatus::Done)));

    let head = worker.ledger.head(&at).await.expect("it is there");
    assert_eq!((head.run.attempts, head.run.handovers as usize), (1, ends.len() - 1));
    let events = worker.ledger.all_events(&at, Seq::ZERO).await.expect("it reads");
    let count = |kind: Kind| events.iter().filter(|event| event.kind == kind).count();
    assert_eq!(count(Kind::RunFinished), 1, "S1: a hand-over finishes nothing");
    assert_eq!(count(Kind::ToolResult), turns, "each call has its one result");
    assert_eq!(count(Kind::AssistantMessage), turns + 1, "no turn is asked for twice");
    assert!(events.iter().zip(1..).all(|(event, seq)| event.seq.0 == seq), "L2");
}

#[tokio::test(start_paused = true)]
async fn r3a_s5_a_generation_that_is_cut_by_the_time_says_so_and_the_next_owner_begins_it_again() {
    let (worker, at, _stop) = world().await;
    say(&worker, &at, "!stream 20 100\n!then\n!say end").await;
    // Two seconds fit into an invocation, but not behind one that was used up by half.
    let late = Some(Instant::now() + Duration::from_millis(1_500));
    let cut = worker.answer_run(&at, late, &NoMessage).await.expect("the store does not fail");
    assert_eq!(cut, Answered::Ended(Ended::HandedOver));
    let told = worker.ledger.partials(&at, "").await.expect("they read");
    assert_eq!(told.last().and_then(|(_, chunk)| chunk.dead.as_deref()), Some("handed_over"));
    assert_eq!(
        worker.ledger.head(&at).await.expect("it is there").ledger.seq,
        Seq(1),
        "nothing is committed of it"
    );

    assert_eq!(invoke(&worker, &at).await, [Ended::Settled(RunStatus::Done)]);
    let head = worker.ledger.head(&at).await.expect("it is there");
    assert_eq!((head.run.attempts, head.run.handovers), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn s5_a_drain_hands_over_at_once() {
    let (worker, at, stop) = world().await;
    say(&worker, &at, "!hang").await;
    let drain = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        stop.send_replace(true);
        Instant::now()
    };
    let (answered, told) = tokio::join!(worker.answer_run(&at, None, &NoMessage), drain);
    assert_eq!(answered.expect("the store does not fail"), Answered::Ended(Ended::HandedOver));
    assert!(told.elapsed() < Duration::from_millis(10), "{:?}", told.elapsed());
    assert_eq!(worker.ledger.head(&at).await.expect("it is there").run.status, RunStatus::Pending);
}

#[tokio::test]
async fn s_a_cancel_that_came_before_the_claim_is_seen_before_a_tool_runs() {
    let (worker, at, _stop) = world().await;
    say(&worker, &at, "hello").await;
    let owner = OwnerId::parse("before").expect("visible ASCII");
    let claimed = worker.ledger.claim(&at, &owner).await.expect("the store works").expect("it is pending");
    let call = json!({
        "content": [{ "type": "toolCall", "id": "c1", "name": "echo", "arguments": { "ran": true } }],
        "stopReason": "tool_use", "inputSeqs": [1],
    });
    let payload = Payload::from_value(&call).expect("strict JSON");
    let key = Some((KeyName::GenerationId, DedupeKey::parse("g1").expect("visible ASCII")));
    let asks = vec![NewEvent { kind: Kind::AssistantMessage, payload, key }];
    let (head, token) = (Some(claimed.head), claimed.token);
    worker.ledger.commit(&at, head, Some(token.clone()), asks).await.expect("the owner commits");
    worker.ledger.release(&at, None, &token).await.expect("it hands over");
    worker.ledger.cancel(&at).await.expect("it is asked to stop");
    let answered = worker.answer_run(&at, None, &NoMessage).await.expect("the store does not fail");
    assert_eq!(answered, Answered::Ended(Ended::Settled(RunStatus::Failed)));
    let events = worker.ledger.all_events(&at, Seq::ZERO).await.expect("it reads");
    let result = events.iter().find(|event| event.kind == Kind::ToolResult).expect("the call was answered");
    assert_eq!(result.payload.get("isError"), Some(&json!(true)), "{}", result.payload.text());
}
