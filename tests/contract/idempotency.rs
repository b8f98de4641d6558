//! I: idempotency.

use keel_tests::{Keel, assistant_message};
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn i1_a_kind_takes_its_own_key_and_no_other() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    for key in ["generationId", "toolCallId"] {
        let event = json!({ "kind": "user.message", "payload": { "text": "x" }, key: "k" });
        keel.post(&format!("{session}/events"), event).await.refused(
            400,
            "key_not_allowed",
            &format!("/{key}"),
        );
    }
    keel.say(&session, "x").await;
    let lease = keel.claim(&session, "me").await;
    for kind in ["compaction", "run.finished", "run.started", "run.failed"] {
        for key in ["requestId", "generationId", "toolCallId"] {
            let event = json!({ "kind": kind, "payload": { "status": "done" }, key: "k" });
            keel.commit(&session, &lease, event).await.refused(400, "key_not_allowed", &format!("/{key}"));
        }
    }
    let two = json!({ "kind": "assistant.message", "payload": {}, "generationId": "g", "requestId": "r" });
    keel.commit(&session, &lease, two).await.refused(400, "key_not_allowed", "/requestId");
    assert_eq!(keel.events(&session).await.len(), 1);
}

#[tokio::test]
async fn i2_a_key_is_unique_per_session_and_name() {
    let keel = Keel::without_worker().await;
    let (one, two) = (keel.session().await, keel.session().await);
    let body = json!({ "requestId": "same", "text": "x" });
    for session in [&one, &two] {
        let submitted = keel.post(&format!("{session}/input"), body.clone()).await.ok(201);
        assert_eq!((&submitted["created"], &submitted["seq"]), (&json!(true), &json!(1)));
    }
    // A client's requestId does not collide with a model's generationId or toolCallId.
    let lease = keel.claim(&one, "me").await;
    let mut asks = assistant_message("same", "x", &[1]);
    asks["payload"]["content"] = json!([{ "type": "toolCall", "id": "same", "name": "t", "arguments": {} }]);
    keel.commit(&one, &lease, asks).await.ok(200);
    let result = json!({ "kind": "tool.result", "toolCallId": "same", "payload": { "toolCallId": "same" } });
    keel.commit(&one, &lease, result).await.ok(200);
    assert_eq!(keel.events(&one).await.len(), 3);
}

#[tokio::test]
async fn i3_i4_the_same_request_again_returns_the_first_submission() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    let input = format!("{session}/input");
    let first = r#"{"requestId":"r1","text":"A","n":1.0,"deep":{"a":[1,2],"b":null}}"#;
    let again =
        "{ \"deep\": {\"b\":null, \"a\":[1.00,2e0]},\n \"n\":1, \"text\":\"\\u0041\", \"requestId\":\"r1\"}";
    let created = keel.send(Method::POST, &input, &[], first.into()).await.ok(201);
    assert_eq!(
        (&created["created"], &created["seq"], &created["requestId"]),
        (&json!(true), &json!(1), &json!("r1"))
    );
    keel.settled(&session).await;
    let before = keel.get(&format!("{session}/events")).await.text;
    let replayed = keel.send(Method::POST, &input, &[], again.into()).await.ok(200);
    assert_eq!((&replayed["created"], &replayed["seq"]), (&json!(false), &json!(1)));
    assert_eq!(replayed["run"]["status"], "done", "a replay starts nothing");
    assert_eq!(keel.get(&format!("{session}/events")).await.text, before);
    assert!(before.contains(r#""n":1.0,"deep":{"a":[1,2],"b":null}"#), "numbers and order as they went in");
}

#[tokio::test]
async fn i3_the_header_is_an_alias_of_the_request_id() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    let input = format!("{session}/input");
    let send = |header: &'static str, body: &'static str| {
        let (keel, input) = (keel.clone(), input.clone());
        async move { keel.send(Method::POST, &input, &[("idempotency-key", header)], body.into()).await }
    };
    assert_eq!(send("h1", r#"{"text":"x"}"#).await.ok(201)["requestId"], "h1");
    assert_eq!(send("\"h1\"", r#"{"text":"x"}"#).await.ok(200)["created"], false);
    assert_eq!(send("h1", r#"{"text":"x","requestId":"h1"}"#).await.ok(200)["created"], false);
    send("h1", r#"{"text":"x","requestId":"h2"}"#).await.refused(400, "invalid_payload", "/requestId");
    // Without a key one is made and returned; it may be used for a retry.
    let made = keel.say(&session, "y").await;
    let again = json!({ "text": "y", "requestId": made["requestId"] });
    assert_eq!(keel.post(&input, again).await.ok(200)["seq"], made["seq"]);
}

#[tokio::test]
async fn i5_the_same_key_with_another_payload_is_a_conflict_that_names_its_holder() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    let input = format!("{session}/input");
    keel.say(&session, "first").await;
    keel.post(&input, json!({ "requestId": "r", "text": "a" })).await.ok(201);
    let other = keel.post(&input, json!({ "requestId": "r", "text": "b" })).await;
    assert_eq!(other.refused(422, "idempotency_conflict", "/requestId")["seq"], 2);
    // A guide that was degraded matches its retry as a guide, and not one as `queue`.
    let guide = json!({ "requestId": "g", "text": "a", "delivery": "guide" });
    assert_eq!(keel.post(&input, guide.clone()).await.ok(201)["delivery"], "queue");
    let again = keel.post(&input, guide).await.ok(200);
    assert_eq!(
        (&again["created"], &again["delivery"], &again["seq"]),
        (&json!(false), &json!("queue"), &json!(3))
    );
    let queue = json!({ "requestId": "g", "text": "a", "delivery": "queue" });
    keel.post(&input, queue).await.refused(422, "idempotency_conflict", "/requestId");
    assert_eq!(keel.events(&session).await.len(), 3);
}

#[tokio::test]
async fn i6_an_owner_may_send_every_commit_again() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "x").await;
    let lease = keel.claim(&session, "me").await;
    let mut asks = assistant_message("g1", "x", &[1]);
    asks["payload"]["content"] = json!([{ "type": "toolCall", "id": "c1", "name": "t", "arguments": {} }]);
    let result = json!({ "kind": "tool.result", "toolCallId": "c1", "payload": { "toolCallId": "c1", "isError": false } });
    let batch = json!({ "lease": lease, "events": [asks, result, { "kind": "compaction", "payload": { "summary": "s" } }] });
    let commits = format!("{session}/commits");
    let first = keel.post(&commits, batch.clone()).await.ok(200);
    assert_eq!((&first["created"], &first["seqs"]), (&json!(true), &json!([2, 3, 4])));
    // The whole batch is committed already, the event without a key included.
    let again = keel.post(&commits, batch).await.ok(200);
    assert_eq!((&again["created"], &again["seqs"]), (&json!(false), &json!([2, 3, 4])));
    let settle = json!({ "lease": lease, "outcome": "failed", "backoffMs": 0 });
    let settled = keel.post(&format!("{session}/settle"), settle.clone()).await.ok(200);
    let settled_again = keel.post(&format!("{session}/settle"), settle).await.ok(200);
    assert_eq!((&settled["created"], &settled_again["created"]), (&json!(true), &json!(false)));
    assert_eq!(settled["run"], settled_again["run"]);
    // Even without its lease an owner learns that its commit was written.
    assert_eq!(keel.commit(&session, &lease, assistant_message("g1", "other", &[1])).await.status, 422);
    assert_eq!(keel.events(&session).await.len(), 5);
}

#[tokio::test]
async fn i7_one_result_per_call() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "x").await;
    let lease = keel.claim(&session, "me").await;
    let mut asks = assistant_message("g1", "x", &[1]);
    asks["payload"]["content"] = json!([{ "type": "toolCall", "id": "c1", "name": "t", "arguments": {} }]);
    keel.commit(&session, &lease, asks).await.ok(200);
    let result = |text: &str| json!({ "kind": "tool.result", "toolCallId": "c1", "payload": { "toolCallId": "c1", "content": text } });
    assert_eq!(keel.commit(&session, &lease, result("1")).await.ok(200)["created"], true);
    assert_eq!(keel.commit(&session, &lease, result("1")).await.ok(200)["created"], false);
    // A tool that ran twice, with another result the second time.
    keel.commit(&session, &lease, result("2")).await.refused(422, "idempotency_conflict", "/toolCallId");
    assert_eq!(keel.events(&session).await.len(), 3);
}
