//! Malformed requests: each gets a problem document that names the place, and does not change a byte of the ledger.

use keel_tests::{Keel, Reply};
use reqwest::Method;
use serde_json::json;

/// Asserts a problem that names a place beginning with `pointer` (`""` is the whole body).
#[track_caller]
fn named(answer: &Reply, status: u16, code: &str, pointer: &str) {
    let problem = answer.refused(status, code, "");
    let place = problem["errors"][0]["pointer"].as_str().unwrap_or_else(|| panic!("no place: {problem}"));
    assert!(place.starts_with(pointer) && (!pointer.is_empty() || place.is_empty()), "{place:?}: {problem}");
    assert!(problem["errors"][0]["detail"].is_string());
}

/// A session with an input in it.
async fn session(keel: &Keel) -> String {
    let session = keel.session().await;
    keel.say(&session, "before").await;
    session
}

/// Sends each body as an input and inside an event; both are refused in the same way.
async fn inputs_are_refused(bodies: &[(&str, u16, &str, &str)]) {
    let keel = Keel::without_worker().await;
    let session = session(&keel).await;
    let before = keel.ledger(&session).await;
    for (body, status, code, pointer) in bodies {
        let input = keel.send(Method::POST, &format!("{session}/input"), &[], (*body).into()).await;
        named(&input, *status, code, pointer);
        let event = format!("{{\"kind\":\"user.message\",\"payload\":{body}}}");
        let event = keel.send(Method::POST, &format!("{session}/events"), &[], event.into()).await;
        assert_eq!(event.status, *status, "{}", event.text);
        event.refused(*status, code, "");
        assert!(event.json()["errors"][0]["pointer"].is_string(), "{}", event.text);
    }
    assert_eq!(keel.ledger(&session).await, before);
}

#[tokio::test]
async fn v6_not_json() {
    inputs_are_refused(&[
        ("{\"text\":", 400, "invalid_json", ""),
        ("{\"text\":\"x\",}", 400, "invalid_json", ""),
        ("{'text':'x'}", 400, "invalid_json", ""),
        ("{\"text\":\"x\"} trailing", 400, "invalid_json", ""),
        ("{\"text\":\"a\nb\"}", 400, "invalid_json", ""),
        ("\0", 400, "invalid_json", ""),
    ])
    .await;
    let keel = Keel::without_worker().await;
    let session = session(&keel).await;
    let before = keel.ledger(&session).await;
    for body in [&b""[..], b"text=x", b"{\"text\":\"\xff\xfe\"}", b"\xef\xbb\xbf{\"text\":\"x\"}"] {
        let answer = keel.send(Method::POST, &format!("{session}/input"), &[], body.to_vec()).await;
        named(&answer, 400, "invalid_json", "");
    }
    assert_eq!(keel.ledger(&session).await, before);
}

#[tokio::test]
async fn v6_json_of_the_wrong_shape() {
    inputs_are_refused(&[
        ("[]", 400, "invalid_payload", ""),
        ("\"x\"", 400, "invalid_payload", ""),
        ("7", 400, "invalid_payload", ""),
        ("null", 400, "invalid_payload", ""),
        ("{\"text\":{}}", 400, "invalid_payload", "/text"),
    ])
    .await;
}

#[tokio::test]
async fn i4a_nesting_a_thousand_deep() {
    let deep = format!("{{\"text\":\"x\",\"deep\":{}{}}}", "[".repeat(1_000), "]".repeat(1_000));
    let objects = format!("{{\"text\":\"x\",\"deep\":{}1{}}}", "{\"a\":".repeat(1_000), "}".repeat(1_000));
    inputs_are_refused(&[
        (&deep, 400, "invalid_payload", "/deep/0"),
        (&objects, 400, "invalid_payload", "/deep/a"),
    ])
    .await;
}

#[tokio::test]
async fn i4a_numbers_that_not_every_reader_keeps() {
    let long = format!("{{\"text\":\"x\",\"n\":{}}}", "9".repeat(400));
    inputs_are_refused(&[
        ("{\"text\":\"x\",\"n\":NaN}", 400, "invalid_json", ""),
        ("{\"text\":\"x\",\"n\":-Infinity}", 400, "invalid_json", ""),
        (&long, 400, "invalid_payload", "/n"),
        ("{\"text\":\"x\",\"n\":9007199254740993}", 400, "invalid_payload", "/n"),
        ("{\"text\":\"x\",\"n\":[0,-9007199254740993]}", 400, "invalid_payload", "/n/1"),
        ("{\"text\":\"x\",\"n\":1e400}", 400, "invalid_payload", "/n"),
        ("{\"text\":\"x\",\"n\":0.30000000000000002}", 400, "invalid_payload", "/n"),
    ])
    .await;
}

#[tokio::test]
async fn i4a_duplicate_member_names() {
    inputs_are_refused(&[
        ("{\"text\":\"x\",\"text\":\"x\"}", 400, "invalid_payload", "/text"),
        ("{\"text\":\"x\",\"a\":{\"b\":1,\"\\u0062\":2}}", 400, "invalid_payload", "/a/b"),
    ])
    .await;
}

#[tokio::test]
async fn i4a_lone_surrogates_and_nul() {
    inputs_are_refused(&[
        ("{\"text\":\"\\ud800\"}", 400, "invalid_payload", "/text"),
        ("{\"text\":\"\\udc00\\ud800\"}", 400, "invalid_payload", "/text"),
        ("{\"text\":\"x\",\"a\":{\"\\ud800\":1}}", 400, "invalid_payload", "/a"),
        ("{\"text\":\"a\\u0000b\"}", 400, "invalid_payload", "/text"),
        ("{\"text\":\"x\",\"a\":{\"\\u0000\":1}}", 400, "invalid_payload", "/a"),
    ])
    .await;
}

#[tokio::test]
async fn v6_ids_that_could_break_a_key() {
    let keel = Keel::without_worker().await;
    let session = session(&keel).await;
    let before = keel.ledger(&session).await;
    let long = "x".repeat(65);
    for id in ["a#b", "..", "../x", "a/b", "a b", "", "é", "a\u{7f}", &long] {
        let created = keel.post("/v1/sessions", json!({ "sessionId": id })).await;
        named(&created, 400, "invalid_payload", "/sessionId");
    }
    // In a path it is like the id of a missing session.
    for path in ["a%23b", "a..b", "..%2fx", "%00", "%ff", "a%20b"] {
        keel.get(&format!("/v1/sessions/{path}")).await.refused(404, "not_found", "");
        keel.get(&format!("/v1/sessions/{path}/events")).await.refused(404, "not_found", "");
    }
    // A generation's id is in the middle of a sort key.
    let lease = keel.claim(&session, "me").await;
    let partial = json!({ "lease": lease, "generationId": "a#b", "index": 0, "delta": "x" });
    named(&keel.post(&format!("{session}/partials"), partial).await, 400, "invalid_payload", "/generationId");
    assert_eq!(keel.ledger(&session).await, before);
    // A request id is at the end of its sort key, so it may be any visible ASCII.
    for id in ["a#b", "..", "a", "a#", "#"] {
        let body = json!({ "requestId": id, "text": "x" });
        assert_eq!(keel.post(&format!("{session}/input"), body).await.ok(201)["requestId"], id);
    }
}

#[tokio::test]
async fn v6_a_text_of_300_kib_and_a_body_of_2_mib() {
    let keel = Keel::without_worker().await;
    let session = session(&keel).await;
    let before = keel.ledger(&session).await;
    for (size, limit) in [(300 * 1024, 256 * 1024), (2 * 1024 * 1024, 1024 * 1024)] {
        let input = json!({ "text": "x".repeat(size) });
        let answer = keel.post(&format!("{session}/input"), input.clone()).await;
        named(&answer, 413, "too_large", "");
        assert_eq!(answer.json()["limit"], limit);
        let event = json!({ "kind": "user.message", "payload": input });
        named(&keel.post(&format!("{session}/events"), event).await, 413, "too_large", "");
    }
    assert_eq!(keel.ledger(&session).await, before);
    // A payload just below the limit is accepted.
    let most = json!({ "text": "x".repeat(256 * 1024 - 64) });
    keel.post(&format!("{session}/input"), most).await.ok(201);
}

#[tokio::test]
async fn l3_c1_i1_unknown_kinds_tokens_and_keys() {
    let keel = Keel::without_worker().await;
    let session = session(&keel).await;
    let lease = keel.claim(&session, "me").await;
    let before = keel.ledger(&session).await;
    let events = format!("{session}/events");
    let payload = json!({ "text": "x" });
    for kind in ["user.massage", "", "USER.MESSAGE", "user.message "] {
        let event = json!({ "kind": kind, "payload": payload });
        named(&keel.post(&events, event).await, 400, "unknown_kind", "/kind");
    }
    let with_token = json!({ "kind": "user.message", "payload": payload, "lease": lease });
    named(&keel.post(&events, with_token).await, 400, "token_not_allowed", "/lease");
    let with_token = json!({ "text": "x", "lease": lease });
    named(&keel.post(&format!("{session}/input"), with_token).await, 400, "token_not_allowed", "/lease");
    for key in ["requestId", "generationId", "toolCallId"] {
        let keyed = json!({ "kind": "compaction", "payload": {}, key: "k" });
        named(&keel.commit(&session, &lease, keyed).await, 400, "key_not_allowed", &format!("/{key}"));
    }
    assert_eq!(keel.ledger(&session).await, before);
}

#[tokio::test]
async fn r1_r2_cursors_that_are_none() {
    let keel = Keel::without_worker().await;
    let session = session(&keel).await;
    let before = keel.ledger(&session).await;
    let huge = "9".repeat(400);
    for after in
        ["-1", "1.5", "1e3", "%2B1", "x", "", "NaN", "9007199254740992", "18446744073709551616", &huge, "2"]
    {
        for path in ["events", "events/stream"] {
            let answer = keel.get(&format!("{session}/{path}?after={after}")).await;
            named(&answer, 400, "invalid_request", "/after");
        }
    }
    for id in ["-1", "1.5", "x", "0x1", "9007199254740992", &huge, "2"] {
        let path = format!("{session}/events/stream");
        let answer = keel.send(Method::GET, &path, &[("last-event-id", id)], Vec::new()).await;
        named(&answer, 400, "invalid_request", "/Last-Event-ID");
    }
    for (query, name) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("wait=21", "wait"),
        ("wait=-1", "wait"),
        ("kinds=user.massage", "kinds"),
        ("kinds=", "kinds"),
        ("after=0&after=1", "after"),
        ("befor=1", "befor"),
    ] {
        named(
            &keel.get(&format!("{session}/events?{query}")).await,
            400,
            "invalid_request",
            &format!("/{name}"),
        );
    }
    for (query, name) in [("partials=yes", "partials"), ("until=done", "until"), ("limit=1", "limit")] {
        let answer = keel.get(&format!("{session}/events/stream?{query}")).await;
        named(&answer, 400, "invalid_request", &format!("/{name}"));
    }
    assert_eq!(keel.ledger(&session).await, before);
}

#[tokio::test]
async fn v6_a_cursor_of_another_tenant() {
    let keel = Keel::without_worker().await;
    let other = keel.as_caller(&Keel::other_key());
    for _ in 0..2 {
        other.session().await;
    }
    let theirs = other.get("/v1/sessions?limit=1").await.ok(200)["cursor"].as_str().unwrap().to_owned();
    assert_eq!(other.get(&format!("/v1/sessions?limit=1&cursor={theirs}")).await.status, 200);
    for cursor in [theirs.as_str(), "", "x", "!", "AAAA"] {
        let answer = keel.get(&format!("/v1/sessions?cursor={cursor}")).await;
        named(&answer, 400, "invalid_request", "/cursor");
    }
}
