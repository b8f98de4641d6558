//! What a provider may do instead of answering.

use keel_agent::provider::{ModelAnswer, StopReason};
use keel_models::Http;
use serde_json::json;

use crate::anthropic::{events, full, provider};
use crate::server::{Scripted, Server, ask, request, retry_policy, user};

/// Plays a script: how many requests were made, the text that readers saw, the answer.
async fn played(script: Vec<Scripted>) -> (usize, String, ModelAnswer) {
    let server = Server::start(script).await;
    let (text, answer) = ask(&provider(&server), request(vec![user("hi")])).await;
    (server.received().len(), text, answer)
}

fn overloaded() -> Scripted {
    Scripted::Refuses(
        529,
        None,
        json!({ "type": "error", "error": { "type": "overloaded_error", "message": "busy" } }),
    )
}

fn error_event(kind: &str) -> String {
    events(&[("error", json!({ "type": "error", "error": { "type": kind, "message": "no" } }))])
}

fn begun() -> String {
    full().split_inclusive("日本 🎉").next().unwrap().rsplit_once("event:").unwrap().0.to_owned()
}

#[tokio::test]
async fn k3_a_request_that_is_too_long_is_told_from_other_refusals() {
    for (status, body, overflow) in [
        (400, json!({ "error": { "message": "prompt is too long: 210000 tokens > 200000 maximum" } }), true),
        (400, json!({ "error": { "code": "context_length_exceeded", "message": "too many" } }), true),
        (400, json!({ "error": { "message": "This model's maximum context length is 8192 tokens" } }), true),
        (413, json!({ "error": { "message": "request too large" } }), true),
        (400, json!({ "error": { "message": "max_tokens: must be positive" } }), false),
        (500, json!({ "error": { "message": "context length service is down" } }), false),
    ] {
        let (_, _, answer) = played(vec![Scripted::Refuses(status, None, body.clone()); 4]).await;
        assert_eq!(answer.overflow, overflow, "{status} {body}");
    }
}

#[tokio::test]
async fn s_what_may_pass_is_tried_again_within_the_attempt() {
    let passing = [
        overloaded(),
        Scripted::Refuses(429, Some("0.01"), json!({})),
        Scripted::Refuses(500, None, json!("not what was agreed on")),
        Scripted::Stream(error_event("overloaded_error"), 10),
        Scripted::Stream(String::new(), 1),
        Scripted::Stalls(String::new()),
        Scripted::Stream("data: not json\n\n".to_owned(), 4),
    ];
    for failure in passing {
        let (received, text, answer) = played(vec![failure, Scripted::Stream(full(), 100)]).await;
        assert_eq!((received, answer.stop_reason), (2, StopReason::ToolUse), "{answer:?}");
        assert_eq!(text, "Grüße, 日本 🎉");
    }
}

#[tokio::test]
async fn s_the_patience_ends_and_the_attempt_fails_with_the_providers_words() {
    let (received, text, answer) = played(vec![overloaded(), overloaded(), overloaded(), overloaded()]).await;
    assert_eq!((received, text.as_str(), answer.stop_reason), (4, "", StopReason::Error));
    assert_eq!(answer.error.as_deref(), Some("the model answered 529: busy"));
}

#[tokio::test]
async fn s_what_lasts_is_not_tried_again() {
    let no_key = json!({ "error": { "type": "authentication_error", "message": "invalid x-api-key" } });
    for failure in [
        Scripted::Refuses(401, None, no_key),
        Scripted::Refuses(400, None, json!({})),
        Scripted::Stream(error_event("invalid_request_error"), 10),
        Scripted::Refuses(429, Some("3600"), json!({})), // longer than we would wait
    ] {
        let (received, _, answer) = played(vec![failure]).await;
        assert_eq!((received, answer.stop_reason), (1, StopReason::Error));
        assert!(!answer.error.unwrap().contains("fake-key"), "no secret reaches the ledger");
    }
}

#[tokio::test]
async fn r3a_a_stream_that_dies_after_readers_saw_text_is_not_begun_again() {
    for death in [
        Scripted::Stream(begun(), 50),
        Scripted::Stalls(begun()),
        Scripted::Stream(begun() + &error_event("overloaded_error"), 50),
    ] {
        let (received, text, answer) = played(vec![death]).await;
        assert_eq!((received, answer.stop_reason), (1, StopReason::Error), "{answer:?}");
        assert_eq!(text, "Grüße, ");
    }
}

#[tokio::test]
async fn s_nobody_there_is_a_failure_and_no_panic() {
    let wire = keel_models::anthropic::Anthropic {
        url: "http://127.0.0.1:1".to_owned(),
        key: "fake-key".to_owned().into(),
        model: "m".to_owned(),
        max_tokens: 1,
    };
    let (_, answer) = ask(&Http::new(wire, retry_policy(), None).unwrap(), request(vec![user("hi")])).await;
    assert_eq!(answer.error.as_deref(), Some("the model could not be reached"));
}
