//! The worker: on SIGTERM it hands its run over, when it dies an attempt is counted, and a message that is not a hint goes back
//! to the queue.

use keel_tests::{assert_gap_free, kinds, of_kind};
use serde_json::{Value, json};

use crate::{QUARTER, World, hint, message, request};

const NOTHING_FAILED: fn() -> Value = || json!({ "batchItemFailures": [] });

#[tokio::test]
async fn s5_a_terminated_environment_hands_its_run_over() {
    let mut world = World::new().await;
    // Only one attempt is allowed: if the hand-over counted, the run would fail.
    let session = world.keel.session_with(json!({ "maxAttempts": 1 })).await;
    world.keel.say(&session, "!stream 5 5\n!tool echo {}\n!then\n!stream 20 100").await;
    let (mut first, mut api) = world.environment("keel-worker", &[]).await;
    let invocation = api.invoke(message("m1", &hint(&session)), QUARTER);
    world.keel.wait_for_seq(&session, 3).await;
    first.terminate().await;
    assert_eq!(invocation.reply().await, NOTHING_FAILED(), "the message is done with: another is on its way");
    assert_eq!(world.queue.hint().await["session"], session.rsplit('/').next().unwrap());
    let row = world.keel.get(&session).await.ok(200);
    assert_eq!((&row["run"]["status"], &row["run"]["attempts"]), (&json!("pending"), &json!(0)));
    assert!(first.ended().await, "it ends well");

    let (mut second, mut api) = world.environment("keel-worker", &[]).await;
    let invocation = api.invoke(message("m2", &hint(&session)), QUARTER);
    assert_eq!(invocation.reply().await, NOTHING_FAILED());
    let events = world.keel.events(&session).await;
    assert_gap_free(&events);
    assert_eq!(
        kinds(&events),
        ["user.message", "assistant.message", "tool.result", "assistant.message", "run.finished"],
        "what the first did is not done again"
    );
    assert_eq!(events[4]["payload"]["attempt"], 1);
    let settled = second.logged(|line| line.get("RunsSettled").is_some()).await;
    assert_eq!((&settled["Stage"], &settled["Status"]), (&json!("test"), &json!("done")));
}

/// A hint for a run that kills every worker. Each death counts as an attempt, and the last hint finds no attempt left.
#[tokio::test]
async fn s_a_run_that_kills_every_worker_is_settled_failed() {
    let world = World::new().await;
    let session = world.keel.session_with(json!({ "maxAttempts": 2 })).await;
    world.keel.say(&session, "!hang").await;
    let short = [("KEEL_LEASE_MS", "400")];
    for attempt in 1..=2 {
        let (worker, mut api) = world.environment("keel-worker", &short).await;
        // A hint that comes while the dead worker's lease still holds is dropped; the queue and the sweep send more.
        loop {
            let invocation = api.invoke(message("m", &hint(&session)), QUARTER);
            tokio::select! {
                dropped = invocation.reply() => assert_eq!(dropped, NOTHING_FAILED()),
                _ = world.keel.until(&session, |row| row["run"]["attempts"] == attempt) => break,
            }
        }
        worker.kill().await;
    }
    let (mut last, mut api) = world.environment("keel-worker", &short).await;
    loop {
        let invocation = api.invoke(message("m", &hint(&session)), QUARTER);
        assert_eq!(invocation.reply().await, NOTHING_FAILED());
        let row = world.keel.get(&session).await.ok(200);
        if row["run"]["status"] == "failed" {
            assert_eq!(row["run"]["reason"], "attempts_spent", "{row}");
            assert_eq!(row["unanswered"], json!([1]), "the input is still there to be answered");
            break;
        }
        assert_eq!(row["run"]["status"], "running", "{row}");
    }
    let events = world.keel.events(&session).await;
    assert_eq!(of_kind(&events, "run.finished").len(), 1);
    last.logged(|line| line.get("Takeovers").is_some()).await;
}

/// A message that is not a hint comes back until the queue gives up on it. It comes back soon, since waiting does not help.
#[tokio::test]
async fn a_message_that_is_no_hint_is_given_back_alone_and_comes_again_soon() {
    let mut world = World::new().await;
    let (_worker, mut api) = world.environment("keel-worker", &[]).await;
    for body in ["not json", "{}", "{\"tenant\":\"dev\",\"session\":\"../no\"}"] {
        let answer = api.invoke(message("poison", body), QUARTER).reply().await;
        assert_eq!(answer, json!({ "batchItemFailures": [{ "itemIdentifier": "poison" }] }), "{body}");
        let changed = world.queue.called("ChangeMessageVisibility").await;
        assert_eq!(
            (&changed["ReceiptHandle"], &changed["VisibilityTimeout"]),
            (&json!("receipt-poison"), &json!(1))
        );
    }
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[tokio::test]
async fn a_trace_goes_from_the_edge_through_the_message_into_the_workers_log() {
    let mut world = World::new().await;
    let session = world.keel.session().await;
    let (mut edge, mut api) = world.environment("keel-edge", &[]).await;
    let sent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let body = json!({ "text": "hello" }).to_string();
    let input = request("POST", &format!("{session}/input"), &[("traceparent", &sent)], Some(&body));
    let answer = api.invoke(input, QUARTER).reply().await;
    assert_eq!(answer["statusCode"], 201, "{answer}");
    let counted = edge.logged(|line| line.get("Inputs").is_some()).await;
    assert_eq!((&counted["Inputs"], &counted["trace"]), (&json!(1), &json!(TRACE)));
    let logged = edge.logged(|line| line["message"] == "a request was answered").await;
    assert_eq!(logged["span"]["trace"], TRACE);

    let hinted = world.queue.hint().await;
    let carried = hinted["traceparent"].as_str().expect("it is carried");
    assert!(carried.starts_with(&format!("00-{TRACE}-")) && *carried != sent, "continued: {carried}");
    let (mut worker, mut api) = world.environment("keel-worker", &[]).await;
    assert_eq!(api.invoke(message("m", &hinted.to_string()), QUARTER).reply().await, NOTHING_FAILED());
    let ended = worker.logged(|line| line["message"] == "an attempt ended").await;
    assert_eq!(ended["span"]["trace"], TRACE);

    // An invalid `traceparent` is not continued, and the request is not refused.
    let input = request("POST", &format!("{session}/input"), &[("traceparent", "00-nonsense")], Some(&body));
    let (_edge, mut api) = world.environment("keel-edge", &[]).await;
    assert_eq!(api.invoke(input, QUARTER).reply().await["statusCode"], 201);
    let hinted = world.queue.hint().await;
    assert!(!hinted["traceparent"].as_str().expect("one of our own").contains(TRACE));
}
