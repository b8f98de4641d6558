//! V: a committed payload is permanent, so a bad one is refused before the commit.

use keel_tests::{Keel, assistant_calls, assistant_message, result};
use serde_json::{Value, json};

/// Commits each bad event as an owner; each is refused for the rule, at the place, and nothing is written.
async fn owner_is_refused(keel: &Keel, session: &str, lease: &Value, rule: &str, bad: &[(Value, &str)]) {
    let before = keel.ledger(session).await;
    for (event, pointer) in bad {
        let problem =
            keel.commit(session, lease, event.clone()).await.refused(400, "invalid_payload", pointer);
        assert_eq!(problem["rule"], rule, "{event}");
        // All or nothing: a good event beside it is not written either.
        let batch = json!({ "lease": lease, "events": [assistant_message("beside", "x", &[]), event] });
        let problem = keel.post(&format!("{session}/commits"), batch).await;
        problem.refused(400, "invalid_payload", pointer);
    }
    assert_eq!(keel.ledger(session).await, before, "nothing was written");
}

#[tokio::test]
async fn v1_each_member_of_an_input_has_its_type_and_unknown_ones_are_kept() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "before").await;
    let before = keel.ledger(&session).await;
    for (member, bad) in [
        ("text", json!(1)),
        ("text", json!(null)),
        ("text", json!(["x"])),
        ("requestId", json!(7)),
        ("requestId", json!(null)),
        ("requestId", json!("")),
        ("requestId", json!("two words")),
        ("requestId", json!("é")),
        ("requestId", json!("x".repeat(129))),
        ("delivery", json!("Guide")),
        ("delivery", json!(null)),
        ("selection", json!([])),
        ("selection", json!("all")),
        ("retryOf", json!(-1)),
        ("retryOf", json!(1.5)),
        ("retryOf", json!("1")),
    ] {
        let mut payload = json!({ "text": "x" });
        payload[member] = bad;
        let pointer = format!("/{member}");
        let input = keel.post(&format!("{session}/input"), payload.clone()).await;
        input.refused(400, "invalid_payload", &pointer);
        let event = json!({ "kind": "user.message", "payload": payload });
        keel.post(&format!("{session}/events"), event).await.refused(400, "invalid_payload", &pointer);
    }
    keel.post(&format!("{session}/input"), json!({})).await.refused(400, "invalid_payload", "/text");
    assert_eq!(keel.ledger(&session).await, before, "nothing was written");
    let good = json!({
        "text": "hi", "requestId": "r", "delivery": "queue", "selection": { "from": 1 }, "retryOf": 2.0,
        "mood": ["calm", { "deep": null }], "": "a nameless member",
    });
    keel.post(&format!("{session}/input"), good.clone()).await.ok(201);
    assert_eq!(keel.events(&session).await[1]["payload"], good);
}

#[tokio::test]
async fn v2_calls_have_ids_and_names_and_no_id_is_used_twice() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "x").await;
    let lease = keel.claim(&session, "me").await;
    keel.commit(&session, &lease, assistant_calls("g1", &["open", "closed"], &[1])).await.ok(200);
    keel.commit(&session, &lease, result("closed")).await.ok(200);
    let with = |content: Value| {
        let mut message = assistant_message("g2", "x", &[]);
        message["payload"]["content"] = content;
        message
    };
    let call =
        |id: Value, name: Value| json!({ "type": "toolCall", "id": id, "name": name, "arguments": {} });
    let mut stopped = assistant_message("g2", "x", &[]);
    stopped["payload"]["stopReason"] = json!(1);
    let bad = [
        (with(json!([{ "type": "toolCall", "name": "t" }])), "/content/0/id"),
        (with(json!([call(json!(""), json!("t"))])), "/content/0/id"),
        (with(json!([call(json!(1), json!("t"))])), "/content/0/id"),
        (with(json!([{ "type": "toolCall", "id": "c" }])), "/content/0/name"),
        (with(json!([{ "type": "text", "text": "x" }, call(json!("c"), json!(""))])), "/content/1/name"),
        (with(json!([call(json!("c"), json!("t")), call(json!("c"), json!("t"))])), "/content/1/id"),
        (with(json!([call(json!("open"), json!("t"))])), "/content"),
        (with(json!([call(json!("closed"), json!("t"))])), "/content"),
        (with(json!(7)), "/content"),
        (with(json!(["x"])), "/content/0"),
        (stopped, "/stopReason"),
    ];
    owner_is_refused(&keel, &session, &lease, "V2", &bad).await;
    let mut named = assistant_message("g2", "x", &[]);
    for (seqs, pointer) in [
        (json!("1"), "/inputSeqs"),
        (json!([0]), "/inputSeqs/0"),
        (json!([1, 1]), "/inputSeqs/1"),
        (json!([-1]), "/inputSeqs/0"),
    ] {
        named["payload"]["inputSeqs"] = seqs;
        owner_is_refused(&keel, &session, &lease, "A1", &[(named.clone(), pointer)]).await;
    }
}

#[tokio::test]
async fn v3_a_result_names_a_committed_call() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "x").await;
    let lease = keel.claim(&session, "me").await;
    keel.commit(&session, &lease, assistant_calls("g1", &["c1"], &[1])).await.ok(200);
    let with =
        |key: &str, payload: Value| json!({ "kind": "tool.result", "toolCallId": key, "payload": payload });
    let bad = [
        (with("c1", json!({})), "/toolCallId"),
        (with("c1", json!({ "toolCallId": "" })), "/toolCallId"),
        (with("c1", json!({ "toolCallId": 1 })), "/toolCallId"),
        (with("c1", json!({ "toolCallId": "c2" })), "/toolCallId"),
        (result("c2"), "/toolCallId"),
    ];
    owner_is_refused(&keel, &session, &lease, "V3", &bad).await;
    let keyless = json!({ "kind": "tool.result", "payload": { "toolCallId": "c1" } });
    owner_is_refused(&keel, &session, &lease, "I1", &[(keyless, "/toolCallId")]).await;
    keel.commit(&session, &lease, result("c1")).await.ok(200);
}

#[tokio::test]
async fn v4_a_summary_has_a_status_and_counts_that_count() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "x").await;
    let lease = keel.claim(&session, "me").await;
    let bad = [
        (json!({}), "/status"),
        (json!({ "status": "ok" }), "/status"),
        (json!({ "status": null }), "/status"),
        (json!({ "status": "done", "turns": -1 }), "/turns"),
        (json!({ "status": "done", "turns": "1" }), "/turns"),
        (json!({ "status": "done", "durationMs": 1.5 }), "/durationMs"),
        (json!({ "status": "done", "inputTokens": null }), "/inputTokens"),
        (json!({ "status": "done", "tokens": { "input": -1 } }), "/tokens/input"),
        (json!({ "status": "done", "toolTimings": null }), "/toolTimings"),
        (json!({ "status": "done", "toolTimings": {} }), "/toolTimings"),
        (json!({ "status": "done", "toolTimings": [{}, 1] }), "/toolTimings/1"),
    ];
    let bad = bad.map(|(payload, pointer)| (json!({ "kind": "run.finished", "payload": payload }), pointer));
    owner_is_refused(&keel, &session, &lease, "V4", &bad).await;
    for (event, pointer) in bad {
        let settle = json!({ "lease": lease, "outcome": "failed", "summary": event["payload"] });
        let settled = keel.post(&format!("{session}/settle"), settle).await;
        settled.refused(400, "invalid_payload", pointer);
    }
    let good =
        json!({ "status": "done", "turns": 1.0, "tokens": { "input": 3 }, "toolTimings": [{ "ms": 1 }] });
    keel.commit(&session, &lease, json!({ "kind": "run.finished", "payload": good })).await.ok(200);
}

#[tokio::test]
async fn v5_an_external_event_names_its_backend_and_reference() {
    let keel = Keel::without_worker().await;
    let description = json!({ "stateOwner": "external", "backend": "b", "externalRef": "r" });
    let session = keel.session_with(description).await;
    let before = keel.ledger(&session).await;
    let external = format!("{session}/external-events");
    for (payload, pointer) in [
        (json!({ "externalRef": "r" }), "/backend"),
        (json!({ "backend": "b" }), "/externalRef"),
        (json!({ "backend": "", "externalRef": "r" }), "/backend"),
        (json!({ "backend": 1, "externalRef": "r" }), "/backend"),
        (json!({ "backend": "b", "externalRef": "r", "stateOwner": "native" }), "/stateOwner"),
        (json!({ "backend": "b", "externalRef": "r", "stateOwner": null }), "/stateOwner"),
        (json!({ "backend": "b", "externalRef": "r", "requestId": 1 }), "/requestId"),
    ] {
        let mut payload = payload;
        if payload.get("requestId").is_none() {
            payload["requestId"] = json!("e");
        }
        keel.post(&external, payload).await.refused(400, "invalid_payload", pointer);
    }
    assert_eq!(keel.ledger(&session).await, before, "nothing was written");
    let good =
        json!({ "backend": "b", "externalRef": "r", "stateOwner": "external", "requestId": "e", "more": 1 });
    keel.post(&external, good.clone()).await.ok(201);
    assert_eq!(keel.events(&session).await[0]["payload"], good);
}

/// V6: calls that do not write to the ledger also say which field and why.
#[tokio::test]
async fn v6_every_refusal_names_the_field() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "x").await;
    let lease = keel.claim(&session, "me").await;
    let before = keel.ledger(&session).await;
    let (commits, settle) = (format!("{session}/commits"), format!("{session}/settle"));
    let (partials, events) = (format!("{session}/partials"), format!("{session}/events"));
    for (path, body, pointer) in [
        (commits.as_str(), json!({ "lease": lease }), "/events"),
        (&commits, json!({ "lease": lease, "events": {} }), "/events"),
        (&commits, json!({ "lease": lease, "events": [] }), "/events"),
        (&commits, json!({ "lease": lease, "events": [7] }), "/events/0"),
        (&commits, json!({ "lease": lease, "events": [{ "kind": 7 }] }), "/events/0/kind"),
        (&commits, json!({ "lease": lease, "events": [{ "kind": "compaction" }] }), "/events/0/payload"),
        (
            &commits,
            json!({ "lease": lease, "events": [{ "kind": "compaction", "payload": {}, "x": 1 }] }),
            "/events/0/x",
        ),
        (&commits, json!({ "lease": "mine", "events": [] }), "/lease"),
        (&commits, json!({ "lease": { "epoch": 1 }, "events": [] }), "/lease/owner"),
        (&commits, json!({ "lease": { "owner": "me", "epoch": -1 }, "events": [] }), "/lease/epoch"),
        (&commits, json!({ "lease": lease, "events": [], "evnets": [] }), "/evnets"),
        (&settle, json!({ "lease": lease }), "/outcome"),
        (&settle, json!({ "lease": lease, "outcome": "won" }), "/outcome"),
        (&settle, json!({ "lease": lease, "outcome": "failed", "backoffMs": -1 }), "/backoffMs"),
        (&settle, json!({ "lease": lease, "outcome": "failed", "summary": [] }), "/summary"),
        (&settle, json!({ "outcome": "failed" }), "/lease"),
        (&partials, json!({ "lease": lease, "index": 0, "delta": "x" }), "/generationId"),
        (&partials, json!({ "lease": lease, "generationId": "g", "delta": "x" }), "/index"),
        (&partials, json!({ "lease": lease, "generationId": "g", "index": 0, "delta": 1 }), "/delta"),
        (&events, json!({ "payload": {} }), "/kind"),
        (&events, json!({ "kind": "user.message" }), "/payload"),
        (&events, json!({ "kind": "user.message", "payload": "x" }), "/payload"),
        (&events, json!({ "kind": "user.message", "payload": {}, "extra": 1 }), "/extra"),
        ("/v1/runs/claim", json!({}), "/owner"),
        ("/v1/runs/claim", json!({ "owner": "two words" }), "/owner"),
        ("/v1/runs/claim", json!({ "owner": "me", "sessionId": "a#b" }), "/sessionId"),
        ("/v1/runs/claim", json!({ "owner": "me", "waitSeconds": 21 }), "/waitSeconds"),
        ("/v1/sessions", json!({ "sessionId": "a b" }), "/sessionId"),
        ("/v1/sessions", json!({ "titel": "x" }), "/titel"),
        ("/v1/sessions", json!({ "title": 1 }), "/title"),
        ("/v1/sessions", json!({ "metadata": [] }), "/metadata"),
        ("/v1/sessions", json!({ "maxAttempts": 0 }), "/maxAttempts"),
        ("/v1/sessions", json!({ "stateOwner": "mine" }), "/stateOwner"),
        ("/v1/sessions", json!({ "stateOwner": "external", "externalRef": "r" }), "/backend"),
        ("/v1/sessions", json!({ "backend": "b" }), "/backend"),
    ] {
        let answer = keel.post(path, body.clone()).await;
        assert_eq!(answer.status, 400, "{path} {body}: {}", answer.text);
        answer.refused(400, "invalid_payload", pointer);
    }
    assert_eq!(keel.ledger(&session).await, before, "nothing was written");
}
