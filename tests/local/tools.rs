//! Tools, models and budgets that need a server in the test.

use std::sync::{Arc, Mutex};

use keel_tests::{Keel, OTHER_KEY, of_kind, text};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::{assert_whole, start};

async fn put(keel: &Keel, path: &str, body: Value) {
    let answer = keel.send(Method::PUT, path, &[], body.to_string().into_bytes()).await;
    assert!(answer.status < 300, "{}", answer.text);
}

/// A tool that counts its calls and returns its arguments.
async fn tool() -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let called: Arc<Mutex<Vec<Value>>> = Arc::default();
    let calls = called.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let calls = calls.clone();
            tokio::spawn(async move {
                let mut request = Vec::new();
                let body = loop {
                    let mut piece = [0; 4096];
                    let read = socket.read(&mut piece).await.unwrap();
                    request.extend_from_slice(&piece[..read]);
                    let text = String::from_utf8_lossy(&request).into_owned();
                    if let Some((_, body)) = text.split_once("\r\n\r\n")
                        && let Ok(body) = serde_json::from_str::<Value>(body)
                    {
                        break body;
                    }
                };
                calls.lock().unwrap().push(body["arguments"].clone());
                let answer = json!({ "output": body["arguments"] }).to_string();
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
                let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
                socket.write_all(answer.as_bytes()).await.unwrap();
            });
        }
    });
    (url, called)
}

async fn plugin(keel: &Keel, url: &str, policy: Value) {
    put(
        keel,
        "/v1/settings/secrets/signing",
        json!({ "value": "whsec_dmlzaWJseS1mYWtlLXZpc2libHktZmFrZQ==" }),
    )
    .await;
    let mut tool = json!({ "name": "pay", "parameters": { "type": "object" } });
    tool.as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
    put(
        keel,
        "/v1/plugins/bank",
        json!({ "kind": "http", "url": url, "secret": "signing", "tools": [tool] }),
    )
    .await;
}

async fn decision(keel: &Keel, session: &str) -> Value {
    keel.until(session, |row| row["run"]["status"] == "waiting").await;
    keel.get(&format!("{session}/decisions")).await.ok(200)["decisions"][0].clone()
}

#[tokio::test]
async fn h1_h3_a_waiting_run_outlives_its_process_and_an_edited_call_runs_once_as_edited() {
    let folder = tempfile::tempdir().unwrap();
    let (url, called) = tool().await;
    let (local, keel) = start(&folder, &[]).await;
    plugin(&keel, &url, json!({ "approval": "always" })).await;
    let session = keel.session().await;
    keel.say(&session, "!tool pay {\"amount\":1000}\n!then\n!say paid").await;
    let asked = decision(&keel, &session).await;
    local.kill().await;

    let (_local, keel) = start(&folder, &[]).await;
    assert_eq!(keel.get(&session).await.ok(200)["run"]["status"], "waiting");
    assert!(called.lock().unwrap().is_empty(), "nothing runs before it is allowed");
    let edit = json!({ "answer": "edit", "digest": asked["digest"], "arguments": { "amount": 10 } });
    keel.post(&format!("/v1/decisions/{}", asked["id"].as_str().unwrap()), edit).await.ok(200);
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    assert_eq!(*called.lock().unwrap(), [json!({ "amount": 10 })], "its secret survived too");
    let events = keel.events(&session).await;
    assert_whole(&events);
    assert_eq!(text(of_kind(&events, "tool.result")[0]), r#"{"amount":10}"#);
}

#[tokio::test]
async fn h2_a_decision_that_nobody_answers_in_time_is_denied() {
    let folder = tempfile::tempdir().unwrap();
    let (url, called) = tool().await;
    let (_local, keel) = start(&folder, &[]).await;
    plugin(&keel, &url, json!({ "approval": "always", "approvalMs": 300 })).await;
    let session = keel.session().await;
    keel.say(&session, "!tool pay {}\n!then\n!say well").await;
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    assert_eq!(text(of_kind(&events, "tool.result")[0]), "not run: nobody agreed to it in time");
    assert!(called.lock().unwrap().is_empty());
    let decision = keel.get(&format!("{session}/decisions")).await.ok(200)["decisions"][0].clone();
    assert_eq!(decision["status"], "expired");
    let late = json!({ "answer": "allow", "digest": decision["digest"] });
    let path = format!("/v1/decisions/{}", decision["id"].as_str().unwrap());
    keel.post(&path, late).await.refused(409, "decision_expired", "");
    assert_eq!(keel.get("/v1/decisions").await.ok(200)["decisions"], json!([]));
}

#[tokio::test]
async fn h5_a_tenants_budget_parks_its_runs_and_what_was_spent_is_told() {
    let keel = Keel::local(&["--sweep-ms", "200"]).await.as_caller(OTHER_KEY);
    put(&keel, "/v1/settings/budget", json!({ "maxTokens": 2 })).await;
    let session = keel.session().await;
    keel.say(&session, "!tool echo {}\n!then\n!say over").await;
    let row = keel.until(&session, |row| row["run"]["status"] == "waiting").await;
    assert_eq!(row["run"]["waitsFor"], "budget");
    assert!(row["run"]["until"].is_string(), "it looks again by itself: {row}");
    let budget = keel.get("/v1/settings/budget").await.ok(200);
    assert!(budget["spent"]["tokens"].as_u64().unwrap() >= 2, "{budget}");
    let mine = keel.as_caller(keel_tests::KEY);
    assert_eq!(mine.get("/v1/settings/budget").await.ok(200)["spent"]["tokens"], 0, "tenants are apart");
}

#[tokio::test]
async fn h5_k1_a_model_from_the_settings_has_its_window_and_its_prices() {
    let keel = Keel::local(&[]).await;
    let small = json!({ "provider": "fake", "window": 400, "prices": { "input": 1000, "output": 2000 } });
    let needy = json!({ "provider": "anthropic", "secret": "not-there" });
    put(&keel, "/v1/settings/models", json!({ "models": { "small": small, "needy": needy } })).await;
    let session = keel.session_with(json!({ "model": "small" })).await;
    for n in 0..12 {
        keel.say(&session, &format!("question {n} {}", "word ".repeat(60))).await;
        keel.settled(&session).await;
    }
    let events = keel.events(&session).await;
    assert!(of_kind(&events, "compaction").len() >= 2, "its window is small");
    let usage = &of_kind(&events, "assistant.message")[0]["payload"]["usage"];
    let expected =
        (usage["input"].as_f64().unwrap() * 1_000.0 + usage["output"].as_f64().unwrap() * 2_000.0) / 1e6;
    assert!((usage["costUsd"].as_f64().unwrap() - expected).abs() < 1e-9, "{usage}");
    assert!(keel.get(&session).await.ok(200)["spent"]["costUsd"].as_f64().unwrap() > 0.0);

    let session = keel.session_with(json!({ "model": "needy", "maxAttempts": 1 })).await;
    keel.say(&session, "hello").await;
    assert_eq!(keel.settled(&session).await["run"]["status"], "failed");
    let finished = keel.events(&session).await.pop().unwrap();
    assert_eq!(
        finished["payload"]["error"],
        "the model \"needy\" wants the secret \"not-there\", which is not there"
    );
}

#[tokio::test]
async fn i7_a_long_result_is_kept_whole_and_shown_cut() {
    let keel = Keel::local(&[]).await;
    let session = keel.session().await;
    let long = "x".repeat(100 * 1024);
    keel.say(&session, &format!("!tool echo {{\"long\":\"{long}\"}}")).await;
    keel.settled(&session).await;
    let events = keel.events(&session).await;
    assert!(text(of_kind(&events, "tool.result")[0]).contains(&long), "the ledger has all of it");
    // The fake model repeats its context.
    let shown = text(of_kind(&events, "assistant.message")[1]);
    assert!(shown.len() < 40 * 1024 && shown.contains("bytes are left out here"), "{} bytes", shown.len());
}
