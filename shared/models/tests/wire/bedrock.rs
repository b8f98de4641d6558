//! ConverseStream, against recorded shapes of its event stream.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use aws_sdk_bedrockruntime::Client;
use aws_sdk_bedrockruntime::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message as Frame};
use keel_agent::provider::{Block, Message, StopReason, Usage};
use keel_models::bedrock::Bedrock;
use serde_json::{Value, json};

use crate::server::{ask, request, retry_policy, user};

fn frame(kind: &str, name: &str, payload: &Value) -> Vec<u8> {
    let header =
        |name: &'static str, value: &str| Header::new(name, HeaderValue::String(value.to_owned().into()));
    let (type_name, message) =
        if kind == "exception" { (":exception-type", "exception") } else { (":event-type", "event") };
    let frame = Frame::new(payload.to_string())
        .add_header(header(":message-type", message))
        .add_header(header(type_name, name))
        .add_header(header(":content-type", "application/json"));
    let mut bytes = Vec::new();
    write_message_to(&frame, &mut bytes).unwrap();
    bytes
}

fn events(all: &[(&str, Value)]) -> Vec<u8> {
    all.iter().flat_map(|(name, payload)| frame("event", name, payload)).collect()
}

type Script = VecDeque<(u16, Vec<u8>)>;

/// The service: it answers each request with the next of its script, and keeps the requests. (The SDK's own replay
/// client would switch serde_json to another order of members for all of the workspace.)
#[derive(Clone, Debug, Default)]
struct Service {
    script: Arc<Mutex<Script>>,
    received: Arc<Mutex<Vec<(String, Value)>>>,
}

impl HttpConnector for Service {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let body = serde_json::from_slice(request.body().bytes().unwrap_or_default()).unwrap_or_default();
        self.received.lock().unwrap().push((request.uri().to_owned(), body));
        let (status, body) = self.script.lock().unwrap().pop_front().expect("the script goes on");
        let mut response = HttpResponse::new(StatusCode::try_from(status).unwrap(), SdkBody::from(body));
        let (name, value) = match status {
            200 => ("content-type", "application/vnd.amazon.eventstream"),
            _ => ("x-amzn-errortype", "ThrottlingException"),
        };
        response.headers_mut().insert(name, value);
        HttpConnectorFuture::ready(Ok(response))
    }
}

impl Service {
    fn received(&self) -> Vec<(String, Value)> {
        self.received.lock().unwrap().clone()
    }
}

fn service_with(bodies: Vec<(u16, Vec<u8>)>) -> (Bedrock, Service) {
    let service = Service { script: Arc::new(Mutex::new(bodies.into())), ..Service::default() };
    let connector = SharedHttpConnector::new(service.clone());
    let config = aws_sdk_bedrockruntime::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("visibly", "fake", None, None, "test"))
        .retry_config(aws_smithy_types::retry::RetryConfig::disabled())
        .http_client(http_client_fn(move |_, _| connector.clone()))
        .build();
    (
        Bedrock::new(Client::from_conf(config), "anthropic.claude".to_owned(), Some(100), retry_policy()),
        service,
    )
}

fn full() -> Vec<u8> {
    events(&[
        ("messageStart", json!({ "role": "assistant" })),
        (
            "contentBlockDelta",
            json!({ "contentBlockIndex": 0, "delta": { "reasoningContent": { "text": "Let me " } } }),
        ),
        (
            "contentBlockDelta",
            json!({ "contentBlockIndex": 0, "delta": { "reasoningContent": { "text": "see." } } }),
        ),
        (
            "contentBlockDelta",
            json!({ "contentBlockIndex": 0, "delta": { "reasoningContent": { "signature": "s1g" } } }),
        ),
        ("contentBlockStop", json!({ "contentBlockIndex": 0 })),
        ("contentBlockDelta", json!({ "contentBlockIndex": 1, "delta": { "text": "Adding " } })),
        ("contentBlockDelta", json!({ "contentBlockIndex": 1, "delta": { "text": "日本 🎉" } })),
        (
            "contentBlockStart",
            json!({ "contentBlockIndex": 2, "start": { "toolUse": { "toolUseId": "t1", "name": "add" } } }),
        ),
        (
            "contentBlockDelta",
            json!({ "contentBlockIndex": 2, "delta": { "toolUse": { "input": "{\"a\":" } } }),
        ),
        ("contentBlockDelta", json!({ "contentBlockIndex": 2, "delta": { "toolUse": { "input": " 2}" } } })),
        (
            "contentBlockStart",
            json!({ "contentBlockIndex": 3, "start": { "toolUse": { "toolUseId": "t2", "name": "add" } } }),
        ),
        (
            "contentBlockDelta",
            json!({ "contentBlockIndex": 3, "delta": { "toolUse": { "input": "no json" } } }),
        ),
        ("messageStop", json!({ "stopReason": "tool_use" })),
        (
            "metadata",
            json!({ "usage": { "inputTokens": 10, "outputTokens": 5, "totalTokens": 15, "cacheReadInputTokens": 7 }, "metrics": { "latencyMs": 1 } }),
        ),
    ])
}

#[tokio::test]
async fn a1_an_answer_is_put_together_and_thinking_keeps_its_signature() {
    let (model, _) = service_with(vec![(200, full())]);
    let (text, answer) = ask(&model, request(vec![user("hi")])).await;
    assert_eq!(text, "Adding 日本 🎉");
    assert_eq!(answer.stop_reason, StopReason::ToolUse);
    assert_eq!(answer.usage, Usage { input: 17, output: 5, cache_read: 7, cache_write: 0, cost_usd: None });
    let call = |id: &str, arguments: Value| Block::ToolCall { id: id.into(), name: "add".into(), arguments };
    assert_eq!(
        answer.content,
        [
            Block::Thinking { thinking: "Let me see.".into(), signature: Some("s1g".into()) },
            Block::Text { text },
            call("t1", json!({ "a": 2 })),
            call("t2", json!("no json")),
        ]
    );
}

#[tokio::test]
async fn a1_a_context_is_spelled_as_converse_wants_it() {
    let (model, service) = service_with(vec![(200, full())]);
    let said = json!({
        "provider": "bedrock", "model": "anthropic.claude",
        "content": [
            { "type": "thinking", "thinking": "hm", "signature": "s" },
            { "type": "toolCall", "id": "c1", "name": "add", "arguments": { "a": 1, "b": -2, "c": 0.5, "d": [null, true] } },
        ],
    });
    let result = json!({ "toolCallId": "c1", "content": [{ "type": "text", "text": "3" }], "isError": true });
    let seen = json!({ "text": "look", "images": [{ "mediaType": "image/png", "data": "AAAA" }, { "url": "https://example.com/x.png" }] });
    let context =
        vec![user("hi"), Message::Assistant(said), Message::ToolResult(result), Message::User(seen)];
    ask(&model, request(context)).await;
    let (uri, body) = service.received().remove(0);
    assert!(uri.contains("/model/anthropic.claude/converse-stream"), "{uri}");
    assert_eq!(body["system"], json!([{ "text": "Be kind." }]));
    assert_eq!(body["inferenceConfig"], json!({ "maxTokens": 100 }));
    assert_eq!(body["toolConfig"]["tools"][0]["toolSpec"]["name"], "add");
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert_eq!(
        messages[1]["content"][0]["reasoningContent"]["reasoningText"],
        json!({ "text": "hm", "signature": "s" })
    );
    assert_eq!(
        messages[1]["content"][1]["toolUse"]["input"],
        json!({ "a": 1, "b": -2, "c": 0.5, "d": [null, true] })
    );
    let last = messages[2]["content"].as_array().unwrap();
    assert_eq!(
        last[0]["toolResult"],
        json!({ "toolUseId": "c1", "content": [{ "text": "3" }], "status": "error" })
    );
    assert_eq!(last[1]["image"], json!({ "format": "png", "source": { "bytes": "AAAA" } }));
    assert_eq!(last[2]["text"], "[an image at https://example.com/x.png, not shown]");
    assert_eq!(
        (&last[3]["text"], &last[4]),
        (&json!("look"), &json!({ "cachePoint": { "type": "default" } }))
    );
}

#[tokio::test]
async fn s_what_may_pass_is_tried_again_and_what_died_in_the_middle_is_not() {
    let (model, service) = service_with(vec![(429, b"{\"message\":\"slow down\"}".to_vec()), (200, full())]);
    let (_, answer) = ask(&model, request(vec![user("hi")])).await;
    assert_eq!((answer.stop_reason, service.received().len()), (StopReason::ToolUse, 2));

    let mut broken =
        events(&[("contentBlockDelta", json!({ "contentBlockIndex": 0, "delta": { "text": "So" } }))]);
    broken.extend(frame("exception", "modelStreamErrorException", &json!({ "message": "lost it" })));
    let (model, service) = service_with(vec![(200, broken), (200, full())]);
    let (text, answer) = ask(&model, request(vec![user("hi")])).await;
    assert_eq!((text.as_str(), service.received().len()), ("So", 1), "R3a: readers saw text");
    assert!(answer.error.unwrap().contains("lost it"));

    let (model, _) =
        service_with(vec![(200, events(&[("messageStart", json!({ "role": "assistant" }))])); 4]);
    let (_, answer) = ask(&model, request(vec![user("hi")])).await;
    assert_eq!(answer.error.as_deref(), Some("the stream ended in the middle"));
}
