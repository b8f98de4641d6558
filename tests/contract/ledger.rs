//! L: the ledger.

use keel_tests::{Keel, assert_gap_free, kinds};
use serde_json::json;

/// The stream of the README: one input, one answer, one summary.
#[tokio::test]
async fn l2_l4_one_input_makes_three_events() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    keel.say(&session, "hello keel").await;
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    assert_eq!(kinds(&events), ["user.message", "assistant.message", "run.finished"]);
    assert_gap_free(&events);
    assert_eq!(events[1]["payload"]["inputSeqs"], json!([1]));
    assert_eq!(events[1]["payload"]["stopReason"], "end_turn");
    assert_eq!(events[2]["payload"]["status"], "done");
    for event in &events {
        // L4: four members, and nothing of the lease, the epoch or the commit.
        let members: Vec<&String> = event.as_object().unwrap().keys().collect();
        assert_eq!(members, ["kind", "payload", "seq", "ts"]);
        let text = event.to_string();
        assert!(!text.contains("epoch") && !text.contains("lease"), "{text}");
    }
}

#[tokio::test]
async fn l2_no_gap_and_no_duplicate_with_many_clients_at_once() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    let clients = (0..8).map(|client| {
        let (keel, session) = (keel.clone(), session.clone());
        tokio::spawn(async move {
            let mut seqs = Vec::new();
            for n in 0..10 {
                let input = json!({ "requestId": format!("{client}.{n}"), "text": "x" });
                seqs.push(keel.send_until_accepted(&session, &input).await.0["seq"].as_u64().unwrap());
            }
            seqs
        })
    });
    let mut seqs = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        seqs.extend(client.await.unwrap());
    }
    keel.settled(&session).await;
    let events = keel.events(&session).await;
    assert_gap_free(&events);
    seqs.sort_unstable();
    let inputs: Vec<u64> =
        events.iter().filter(|e| e["kind"] == "user.message").map(|e| e["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, inputs, "each acknowledged input is in the ledger, at the seq in its response");
}

/// L1: no call changes a committed event.
#[tokio::test]
async fn l1_no_route_updates_or_deletes_an_event() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    keel.say(&session, "for ever").await;
    keel.settled(&session).await;
    let before = keel.get(&format!("{session}/events")).await.text;
    for method in ["PUT", "PATCH", "DELETE"] {
        let method: reqwest::Method = method.parse().unwrap();
        for path in [format!("{session}/events"), format!("{session}/events/1"), session.clone()] {
            let answer = keel.send(method.clone(), &path, &[], b"{}".to_vec()).await;
            let patched_row = method == "PATCH" && path == session;
            assert!(patched_row || [404, 405].contains(&answer.status), "{method} {path}: {}", answer.status);
        }
    }
    assert_eq!(keel.get(&format!("{session}/events")).await.text, before);
}

#[tokio::test]
async fn l3_any_other_kind_is_refused() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    let event = json!({ "kind": "run.paused", "payload": {} });
    keel.post(&format!("{session}/events"), event.clone()).await.refused(400, "unknown_kind", "/kind");
    keel.say(&session, "x").await;
    let lease = keel.claim(&session, "me").await;
    keel.commit(&session, &lease, event).await.refused(400, "unknown_kind", "/kind");
    // The reserved kinds are accepted from an owner.
    for kind in ["run.started", "run.failed"] {
        keel.commit(&session, &lease, json!({ "kind": kind, "payload": {} })).await.ok(200);
    }
    assert_eq!(kinds(&keel.events(&session).await), ["user.message", "run.started", "run.failed"]);
}

/// L5: the session's row agrees with the ledger.
#[tokio::test]
async fn l5_the_row_follows_from_the_ledger() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    keel.say(&session, "!error no").await;
    let row = keel.settled(&session).await;
    let events = keel.events(&session).await;
    assert_eq!(row["seq"].as_u64().unwrap(), events.len() as u64);
    assert_eq!(row["unanswered"], json!([1]), "a failed message answers nothing");
    assert_eq!(row["pendingInput"], true);
}

/// L4: a payload is returned as it was sent: on a page, in a stream and to an owner.
#[tokio::test]
async fn l4_a_payload_keeps_its_numbers_and_the_order_of_its_members() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    let sent = r#"{"text":"x","z":1.0,"a":[1E2,{"y":-0.50,"b":null}],"requestId":"r","delivery":"queue"}"#;
    keel.send(reqwest::Method::POST, &format!("{session}/input"), &[], sent.into()).await.ok(201);
    let page = keel.ledger(&session).await;
    assert!(page.contains(sent), "{page}");
    let mut stream = keel.raw_stream(&format!("{session}/events/stream"), None).await;
    let mut streamed = String::new();
    while !streamed.contains("data: ") {
        let bytes = stream.chunk().await.unwrap().expect("the event comes");
        streamed.push_str(&String::from_utf8_lossy(&bytes));
    }
    assert!(streamed.contains(sent), "{streamed}");
    let claimed = keel.ask(&session, "me").await;
    assert!(claimed.text.contains(sent), "{}", claimed.text);
}
