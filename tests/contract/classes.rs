//! C: commit classes and fences.

use keel_tests::{Keel, assistant_message, kinds};
use serde_json::json;

#[tokio::test]
async fn c1_a_token_on_an_edge_or_external_commit_is_an_error() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    let lease = json!({ "owner": "me", "epoch": 1 });
    let event = json!({ "kind": "user.message", "payload": { "text": "x" }, "lease": lease });
    keel.post(&format!("{session}/events"), event).await.refused(400, "token_not_allowed", "/lease");
    let input = json!({ "text": "x", "lease": lease });
    keel.post(&format!("{session}/input"), input).await.refused(400, "token_not_allowed", "/lease");
    keel.say(&session, "x").await;
    let lease = keel.claim(&session, "me").await;
    for kind in ["user.message", "external.event"] {
        let event =
            json!({ "kind": kind, "payload": { "backend": "b", "externalRef": "r" }, "requestId": "r" });
        keel.commit(&session, &lease, event).await.refused(400, "token_not_allowed", "/lease");
    }
    let bare = json!({ "events": [assistant_message("g", "x", &[1])] });
    keel.post(&format!("{session}/commits"), bare).await.refused(400, "token_required", "/lease");
    assert_eq!(keel.events(&session).await.len(), 1);
}

#[tokio::test]
async fn c2_a_stale_epoch_or_another_owner_writes_nothing() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "x").await;
    let first = keel.claim(&session, "first").await;
    keel.post(&format!("{session}/lease/release"), json!({ "lease": first, "reason": "drain" }))
        .await
        .ok(200);
    let second = keel.claim(&session, "second").await;
    assert_eq!(second["epoch"], 2);
    let impostor = json!({ "owner": "first", "epoch": 2 });
    let future = json!({ "owner": "second", "epoch": 3 });
    for stale in [&first, &impostor, &future] {
        let problem =
            keel.commit(&session, stale, assistant_message("g", "x", &[1])).await.refused(409, "fenced", "");
        assert_eq!(problem["currentEpoch"], 2);
        for (path, body) in [
            ("lease/renew", json!({ "lease": stale })),
            ("settle", json!({ "lease": stale, "outcome": "succeeded" })),
            ("partials", json!({ "lease": stale, "generationId": "g", "index": 0, "delta": "x" })),
        ] {
            keel.post(&format!("{session}/{path}"), body).await.refused(409, "fenced", "");
        }
    }
    assert_eq!(keel.events(&session).await.len(), 1, "nothing was written");
    keel.commit(&session, &second, assistant_message("g", "x", &[1])).await.ok(200);
}

#[tokio::test]
async fn c3_the_edge_takes_user_messages_only_and_hides_other_tenants_sessions() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    for kind in
        ["assistant.message", "tool.result", "compaction", "run.finished", "external.event", "run.started"]
    {
        let event = json!({ "kind": kind, "payload": {} });
        keel.post(&format!("{session}/events"), event).await.refused(400, "kind_not_accepted", "/kind");
    }
    // A missing session and another tenant's: the same bytes.
    let other = keel.as_caller(&Keel::other_key());
    let id = [("x-request-id", "same")];
    for (method, path, body) in [
        ("POST", "/input", r#"{"text":"x"}"#),
        ("POST", "/events", r#"{"kind":"user.message","payload":{"text":"x"}}"#),
        ("POST", "/run", "{}"),
        ("POST", "/cancel", "{}"),
        ("POST", "/close", "{}"),
        ("PATCH", "", r#"{"title":"x"}"#),
        ("GET", "", ""),
        ("GET", "/events", ""),
        ("GET", "/events/stream", ""),
        ("GET", "/inputs", ""),
    ] {
        let method: reqwest::Method = method.parse().unwrap();
        let body = body.as_bytes().to_vec();
        let theirs = other.send(method.clone(), &format!("{session}{path}"), &id, body.clone()).await;
        let missing = other.send(method, &format!("/v1/sessions/no-such{path}"), &id, body).await;
        theirs.refused(404, "not_found", "");
        assert_eq!(theirs.text, missing.text, "{path}");
    }
    assert!(keel.events(&session).await.is_empty());
}

#[tokio::test]
async fn c4_an_external_session_takes_external_events_and_is_never_claimed() {
    let keel = Keel::without_worker().await;
    let description = json!({ "stateOwner": "external", "backend": "theirs", "externalRef": "42" });
    let session = keel.session_with(description).await;
    keel.post(&format!("{session}/input"), json!({ "text": "x" })).await.refused(409, "external_session", "");
    keel.post(&format!("{session}/run"), json!({})).await.refused(409, "external_session", "");
    let fact = json!({ "backend": "theirs", "externalRef": "42", "requestId": "e1", "text": "happened" });
    let first = keel.post(&format!("{session}/external-events"), fact.clone()).await.ok(201);
    assert_eq!(first["seq"], 1);
    let again = keel.post(&format!("{session}/external-events"), fact.clone()).await.ok(200);
    assert_eq!((&again["seq"], &again["created"]), (&json!(1), &json!(false)));
    let id = session.rsplit('/').next().unwrap();
    let claim = keel.post("/v1/runs/claim", json!({ "owner": "me", "sessionId": id })).await;
    assert_eq!(claim.status, 204);
    assert_eq!(kinds(&keel.events(&session).await), ["external.event"]);
    // And the other way round.
    let native = keel.session().await;
    keel.post(&format!("{native}/external-events"), fact).await.refused(409, "native_session", "");
    // C6 holds for it too.
    keel.post(&format!("{session}/close"), json!({})).await.ok(200);
    let late = json!({ "backend": "theirs", "externalRef": "42", "requestId": "e2" });
    keel.post(&format!("{session}/external-events"), late).await.refused(409, "session_closed", "");
}

#[tokio::test]
async fn c5_input_commits_while_an_owner_hands_over() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "one").await;
    let first = keel.claim(&session, "first").await;
    keel.say(&session, "two").await;
    keel.post(&format!("{session}/lease/release"), json!({ "lease": first })).await.ok(200);
    keel.say(&session, "three").await;
    let second = keel.claim(&session, "second").await;
    keel.commit(&session, &second, assistant_message("g", "all", &[1, 2, 3])).await.ok(200);
    let row = keel.get(&session).await.ok(200);
    assert_eq!(row["unanswered"], json!([]));
}

#[tokio::test]
async fn c6_a_closed_session_refuses_every_commit() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "x").await;
    let lease = keel.claim(&session, "me").await;
    let row = keel.post(&format!("{session}/close"), json!({})).await.ok(200);
    assert_eq!(row["status"], "closed");
    keel.post(&format!("{session}/close"), json!({})).await.ok(200); // idempotent
    keel.post(&format!("{session}/input"), json!({ "text": "y" })).await.refused(409, "session_closed", "");
    keel.commit(&session, &lease, assistant_message("g", "x", &[1])).await.refused(409, "session_closed", "");
    let settle = json!({ "lease": lease, "outcome": "succeeded" });
    keel.post(&format!("{session}/settle"), settle).await.refused(409, "session_closed", "");
    keel.post(&format!("{session}/run"), json!({})).await.refused(409, "session_closed", "");
    assert_eq!(keel.events(&session).await.len(), 1);
}
