//! S: what a run becomes.

use keel_tests::{Keel, assistant_message, input_seqs, kinds, of_kind, text};
use serde_json::{Value, json};

/// A session with one input, whose run is claimed; its path and the lease.
async fn claimed(keel: &Keel, max_attempts: u64) -> (String, Value) {
    let session = keel.session_with(json!({ "maxAttempts": max_attempts })).await;
    keel.say(&session, "x").await;
    let lease = keel.claim(&session, "me").await;
    (session, lease)
}

async fn run(keel: &Keel, session: &str) -> Value {
    keel.get(session).await.ok(200)["run"].clone()
}

#[tokio::test]
async fn s_cancelled_is_failed_and_later_input_answers_what_was_left() {
    let keel = Keel::without_worker().await;
    let (session, lease) = claimed(&keel, 3).await;
    keel.post(&format!("{session}/cancel"), json!({})).await.ok(200);
    let renewed = keel.post(&format!("{session}/lease/renew"), json!({ "lease": lease })).await.ok(200);
    assert_eq!(renewed["head"]["run"]["cancelRequested"], true, "the owner sees it");
    assert_eq!(keel.settle(&session, &lease, "cancelled").await.ok(200)["run"]["status"], "failed");
    let row = keel.get(&session).await.ok(200);
    assert_eq!((&row["run"]["reason"], &row["unanswered"]), (&json!("cancelled"), &json!([1])));
    assert_eq!(keel.ask(&session, "me").await.status, 204, "terminal");
    keel.say(&session, "y").await;
    let head = keel.ask(&session, "me").await.ok(200)["head"].clone();
    assert_eq!((&head["unanswered"], &head["run"]["readWatermark"]), (&json!([1, 3]), &json!(3)));
}

#[tokio::test]
async fn s_failed_with_budget_left_is_pending_and_tried_again() {
    let keel = Keel::without_worker().await;
    let (session, lease) = claimed(&keel, 2).await;
    assert_eq!(keel.settle(&session, &lease, "failed").await.ok(200)["run"]["status"], "pending");
    assert_eq!(run(&keel, &session).await["attempts"], 1);
    let lease = keel.claim(&session, "me").await;
    assert_eq!(run(&keel, &session).await["attempts"], 2);
    // After the last attempt: failed.
    assert_eq!(keel.settle(&session, &lease, "failed").await.ok(200)["run"]["status"], "failed");
    let row = keel.get(&session).await.ok(200);
    assert_eq!((&row["run"]["reason"], &row["unanswered"]), (&json!("attempts_spent"), &json!([1])));
    assert_eq!(keel.ask(&session, "me").await.status, 204);
}

#[tokio::test]
async fn s_a_retry_waits_for_its_backoff() {
    let keel = Keel::without_worker().await;
    let (session, lease) = claimed(&keel, 3).await;
    let settle = json!({ "lease": lease, "outcome": "failed", "backoffMs": 3_600_000 });
    assert_eq!(keel.post(&format!("{session}/settle"), settle).await.ok(200)["run"]["status"], "pending");
    assert!(run(&keel, &session).await["notBefore"].is_string());
    assert_eq!(keel.ask(&session, "me").await.status, 204);
}

#[tokio::test]
async fn s_success_with_newer_input_is_pending() {
    let keel = Keel::without_worker().await;
    let (session, lease) = claimed(&keel, 1).await;
    keel.say(&session, "y").await;
    keel.commit(&session, &lease, assistant_message("g", "x", &[1])).await.ok(200);
    assert_eq!(keel.settle(&session, &lease, "succeeded").await.ok(200)["run"]["status"], "pending");
    let head = keel.ask(&session, "me").await.ok(200)["head"].clone();
    assert_eq!((&head["unanswered"], &head["run"]["attempts"]), (&json!([2]), &json!(1)), "a run of its own");
}

#[tokio::test]
async fn s_success_without_newer_input_is_done() {
    let keel = Keel::without_worker().await;
    let (session, lease) = claimed(&keel, 1).await;
    keel.commit(&session, &lease, assistant_message("g", "x", &[1])).await.ok(200);
    assert_eq!(keel.settle(&session, &lease, "succeeded").await.ok(200)["run"]["status"], "done");
    assert_eq!(keel.ask(&session, "me").await.status, 204, "nothing is pending");
    assert_eq!(keel.post(&format!("{session}/run"), json!({})).await.ok(200)["queued"], false);
}

#[tokio::test]
async fn s_the_worker_retries_fails_and_cancels_as_the_table_says() {
    let keel = Keel::start().await;
    let session = keel.session_with(json!({ "maxAttempts": 2 })).await;
    for (script, status, attempts, summaries) in [
        ("!fail 1\n!say ok", "done", 2, vec!["failed", "done"]),
        ("!error no", "failed", 2, vec!["failed", "failed"]),
    ] {
        let seq = keel.say(&session, script).await["seq"].as_u64().unwrap();
        let row = keel.settled(&session).await;
        assert_eq!((&row["run"]["status"], &row["run"]["attempts"]), (&json!(status), &json!(attempts)));
        let events = keel.events(&session).await.split_off(usize::try_from(seq).unwrap());
        let written: Vec<&Value> =
            of_kind(&events, "run.finished").iter().map(|event| &event["payload"]["status"]).collect();
        assert_eq!(written, summaries, "one for each attempt (S1)");
    }
    let seq = keel.say(&session, "!say so far\n!hang").await["seq"].as_u64().unwrap();
    keel.until(&session, |row| row["run"]["status"] == "running").await;
    keel.post(&format!("{session}/cancel"), json!({})).await.ok(200);
    let row = keel.settled(&session).await;
    assert_eq!((&row["run"]["status"], &row["run"]["reason"]), (&json!("failed"), &json!("cancelled")));
    let events = keel.events(&session).await.split_off(usize::try_from(seq).unwrap());
    assert_eq!(kinds(&events), ["assistant.message", "run.finished"]);
    assert_eq!(events[0]["payload"]["stopReason"], "aborted");
    assert_eq!(events[1]["payload"]["status"], "cancelled");
    assert!(row["unanswered"].as_array().unwrap().contains(&json!(seq)), "its input stays unanswered");
}

#[tokio::test]
async fn s1_one_run_finished_for_each_settled_attempt() {
    let keel = Keel::without_worker().await;
    let (session, lease) = claimed(&keel, 3).await;
    // With the settle, without a summary from the owner.
    keel.settle(&session, &lease, "failed").await.ok(200);
    let events = keel.events(&session).await;
    assert_eq!(kinds(&events), ["user.message", "run.finished"]);
    assert_eq!(events[1]["payload"], json!({ "status": "failed" }));
    // Before the settle, under the same lease; the settle writes no second one.
    let lease = keel.claim(&session, "me").await;
    let summary = json!({ "kind": "run.finished", "payload": { "status": "failed", "turns": 1 } });
    keel.commit(&session, &lease, summary.clone()).await.ok(200);
    let other = json!({ "kind": "run.finished", "payload": { "status": "failed", "turns": 2 } });
    keel.commit(&session, &lease, other).await.refused(409, "already_finished", "");
    keel.settle(&session, &lease, "failed").await.ok(200);
    // With a summary from the owner.
    let lease = keel.claim(&session, "me").await;
    let summary = json!({ "status": "failed", "turns": 7, "mine": true });
    let settle = json!({ "lease": lease, "outcome": "failed", "summary": summary });
    keel.post(&format!("{session}/settle"), settle).await.ok(200);
    let events = keel.events(&session).await;
    assert_eq!(of_kind(&events, "run.finished").len(), 3);
    assert_eq!(events.last().unwrap()["payload"], summary);
}

#[tokio::test]
async fn s2_a_summary_that_is_refused_does_not_change_the_outcome() {
    let keel = Keel::without_worker().await;
    let (session, lease) = claimed(&keel, 3).await;
    keel.commit(&session, &lease, assistant_message("g", "x", &[1])).await.ok(200);
    let settle = json!({ "lease": lease, "outcome": "succeeded", "summary": { "status": "splendid" } });
    keel.post(&format!("{session}/settle"), settle).await.refused(400, "invalid_payload", "/status");
    assert_eq!(run(&keel, &session).await["status"], "running", "still its own to settle");
    assert_eq!(keel.settle(&session, &lease, "succeeded").await.ok(200)["run"]["status"], "done");
    assert_eq!(run(&keel, &session).await["attempts"], 1);
}

#[tokio::test]
async fn s3_a_fenced_owner_settles_nothing() {
    let keel = Keel::without_worker().await;
    let (session, first) = claimed(&keel, 3).await;
    keel.release(&session, &first).await.ok(200);
    let second = keel.claim(&session, "second").await;
    let before = (keel.ledger(&session).await, run(&keel, &session).await);
    for outcome in ["succeeded", "failed", "cancelled"] {
        let problem = keel.settle(&session, &first, outcome).await.refused(409, "fenced", "");
        assert_eq!(problem["currentEpoch"], second["epoch"]);
    }
    keel.release(&session, &first).await.refused(409, "fenced", "");
    assert_eq!((keel.ledger(&session).await, run(&keel, &session).await), before);
}

#[tokio::test]
async fn s4_input_right_before_or_at_the_settle_is_not_stranded() {
    let keel = Keel::without_worker().await;
    for _ in 0..10 {
        let (session, lease) = claimed(&keel, 1).await;
        keel.commit(&session, &lease, assistant_message("g", "x", &[1])).await.ok(200);
        let (settled, input) =
            tokio::join!(keel.settle(&session, &lease, "succeeded"), keel.say(&session, "y"));
        settled.ok(200);
        assert_eq!(run(&keel, &session).await["status"], "pending", "seen by the settle, or a new run");
        let head = keel.ask(&session, "me").await.ok(200)["head"].clone();
        assert_eq!(head["unanswered"], json!([input["seq"]]));
    }
}

#[tokio::test]
async fn s4_every_input_to_a_working_session_is_answered() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    for n in 0..20 {
        keel.say(&session, &format!("input {n}")).await;
    }
    let row = keel.settled(&session).await;
    assert_eq!((&row["run"]["status"], &row["unanswered"]), (&json!("done"), &json!([])));
    let events = keel.events(&session).await;
    let mut named: Vec<u64> = input_seqs(&events)
        .iter()
        .flat_map(|seqs| seqs.as_array().unwrap().iter().map(|seq| seq.as_u64().unwrap()))
        .collect();
    named.sort_unstable();
    let inputs: Vec<u64> =
        of_kind(&events, "user.message").iter().map(|input| input["seq"].as_u64().unwrap()).collect();
    assert_eq!(named, inputs, "each by exactly one answer");
}

#[tokio::test]
async fn s4a_calls_of_a_message_that_met_the_token_limit_are_not_run() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    keel.say(&session, "!tool echo {\"x\":\"was run\"}\n!tool clock\n!limit\n!then\n!say ok").await;
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    assert_eq!(events[1]["payload"]["stopReason"], "max_tokens");
    let results = of_kind(&events, "tool.result");
    assert_eq!(results.len(), 2, "each gets its result");
    for result in results {
        assert_eq!(result["payload"]["isError"], true);
        assert!(text(result).contains("token limit"), "{result}");
    }
    assert_eq!(text(of_kind(&events, "assistant.message")[1]), "ok");
}

#[tokio::test]
async fn s5_a_hand_over_is_not_an_attempt() {
    let keel = Keel::without_worker().await;
    let (session, mut lease) = claimed(&keel, 1).await;
    for epoch in 1..=3 {
        assert_eq!(lease["epoch"], epoch);
        assert_eq!(run(&keel, &session).await["attempts"], 1);
        let released = keel.release(&session, &lease).await.ok(200);
        assert_eq!(released["run"]["status"], "pending");
        keel.release(&session, &lease).await.ok(200); // its answer may have been lost (I6)
        assert_eq!(run(&keel, &session).await["attempts"], 0, "the budget is untouched");
        lease = keel.claim(&session, "me").await;
    }
    assert_eq!(kinds(&keel.events(&session).await), ["user.message"], "and leaves no summary");
}
