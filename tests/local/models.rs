//! A Keel whose model is a server in the test.

use keel_tests::{Keel, kinds, text};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A minimal chat completions server: it gives every request the same answer.
async fn model() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let chunk = |delta: serde_json::Value, finish: serde_json::Value| {
        format!("data: {}\n\n", json!({ "choices": [{ "delta": delta, "finish_reason": finish }] }))
    };
    let body = chunk(json!({ "content": "Hello " }), json!(null))
        + &chunk(json!({ "content": "from afar" }), json!(null))
        + &chunk(json!({}), json!("stop"))
        + "data: [DONE]\n\n";
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut request = vec![0; 64 * 1024];
                let _ = socket.read(&mut request).await;
                let _ = socket.write_all(answer.as_bytes()).await;
                let _ = socket.shutdown().await;
            });
        }
    });
    url
}

#[tokio::test]
async fn a1_a_model_behind_chat_completions_answers() {
    let url = model().await;
    let keel = Keel::local(&["--provider", "openai", "--provider-url", &url, "--model", "far"]).await;
    let session = keel.session().await;
    keel.say(&session, "hi").await;
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    assert_eq!(kinds(&events), ["user.message", "assistant.message", "run.finished"]);
    assert_eq!(text(&events[1]), "Hello from afar");
    let payload = &events[1]["payload"];
    assert_eq!((&payload["provider"], &payload["model"]), (&json!("openai"), &json!("far")));
}

#[tokio::test]
async fn s_a_model_that_cannot_be_reached_fails_the_attempts_and_says_why() {
    let local = ["--provider", "openai", "--provider-url", "http://127.0.0.1:1/v1", "--model", "far"];
    let keel = Keel::local(&local).await;
    let session = keel.session_with(json!({ "maxAttempts": 1 })).await;
    keel.say(&session, "hi").await;
    assert_eq!(keel.settled(&session).await["run"]["status"], "failed");
    let events = keel.events(&session).await;
    assert_eq!(events[1]["payload"]["error"], "the model could not be reached");
}
