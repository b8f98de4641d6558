//! Messages.

use keel_agent::provider::{Block, Message, StopReason, Usage};
use keel_models::Http;
use keel_models::anthropic::Anthropic;
use serde_json::{Value, json};

use crate::server::{Scripted, Server, ask, request, retry_policy, user};

pub(crate) fn provider(server: &Server) -> Http<Anthropic> {
    let wire = Anthropic {
        url: server.url.clone(),
        key: "fake-key".to_owned().into(),
        model: "claude-test".to_owned(),
        max_tokens: 1_000,
    };
    Http::new(wire, retry_policy(), None).unwrap()
}

pub(crate) fn events(events: &[(&str, Value)]) -> String {
    events.iter().map(|(name, data)| format!("event: {name}\ndata: {data}\n\n")).collect()
}

/// Thinking, text and two calls, as a real answer has them.
pub(crate) fn full() -> String {
    let delta = |index: u32, delta: Value| {
        ("content_block_delta", json!({ "type": "content_block_delta", "index": index, "delta": delta }))
    };
    let start =
        |index: u32, block: Value| ("content_block_start", json!({ "index": index, "content_block": block }));
    let stop = |index: u32| ("content_block_stop", json!({ "index": index }));
    events(&[
        (
            "message_start",
            json!({ "message": { "usage": { "input_tokens": 5, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 3, "output_tokens": 1 } } }),
        ),
        ("ping", json!({ "type": "ping" })),
        start(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
        delta(0, json!({ "type": "thinking_delta", "thinking": "let me " })),
        delta(0, json!({ "type": "thinking_delta", "thinking": "see" })),
        delta(0, json!({ "type": "signature_delta", "signature": "sig==" })),
        stop(0),
        start(1, json!({ "type": "text", "text": "" })),
        delta(1, json!({ "type": "text_delta", "text": "Grüße, " })),
        delta(1, json!({ "type": "text_delta", "text": "日本 🎉" })),
        stop(1),
        start(2, json!({ "type": "tool_use", "id": "toolu_1", "name": "add", "input": {} })),
        delta(2, json!({ "type": "input_json_delta", "partial_json": "{\"a\": 1," })),
        delta(2, json!({ "type": "input_json_delta", "partial_json": " \"b\": 2}" })),
        stop(2),
        start(3, json!({ "type": "tool_use", "id": "toolu_2", "name": "add", "input": {} })),
        stop(3),
        (
            "message_delta",
            json!({ "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 42 } }),
        ),
        ("message_stop", json!({ "type": "message_stop" })),
    ])
}

#[tokio::test]
async fn r3a_an_answer_is_the_same_wherever_its_bytes_are_cut() {
    let sizes = [1, 2, 3, 7, 64, 100_000];
    let server = Server::start(sizes.iter().map(|size| Scripted::Stream(full(), *size)).collect()).await;
    for size in sizes {
        let (text, answer) = ask(&provider(&server), request(vec![user("hi")])).await;
        assert_eq!(text, "Grüße, 日本 🎉", "pieces of {size}");
        assert_eq!(answer.stop_reason, StopReason::ToolUse);
        assert_eq!(
            answer.usage,
            Usage { input: 15, output: 42, cache_read: 7, cache_write: 3, cost_usd: None }
        );
        let call =
            |id: &str, arguments| Block::ToolCall { id: id.to_owned(), name: "add".to_owned(), arguments };
        assert_eq!(
            answer.content,
            [
                Block::Thinking { thinking: "let me see".to_owned(), signature: Some("sig==".to_owned()) },
                Block::Text { text },
                call("toolu_1", json!({ "a": 1, "b": 2 })),
                call("toolu_2", json!({})),
            ]
        );
    }
}

#[tokio::test]
async fn a1_a_context_is_spelled_as_messages_wants_it() {
    let server = Server::start(vec![Scripted::Stream(full(), 100)]).await;
    let thought = json!({ "type": "thinking", "thinking": "mine", "signature": "s" });
    let asks = json!({ "type": "toolCall", "id": "call_0.weird id", "name": "add", "arguments": { "a": 1 } });
    let said = |model: &str| {
        let content = json!([thought, { "type": "text", "text": "" }, asks]);
        Message::Assistant(json!({ "provider": "anthropic", "model": model, "content": content }))
    };
    let result = Message::ToolResult(json!({
        "toolCallId": "call_0.weird id", "content": [{ "type": "text", "text": "3" }], "isError": true,
    }));
    let context = vec![
        user("one"),
        user("two"),
        said("claude-test"),
        result.clone(),
        user("three"),
        said("another"),
        result,
    ];
    ask(&provider(&server), request(context)).await;

    let received = &server.received()[0];
    assert_eq!(received.path, "/v1/messages");
    assert_eq!(
        (&received.headers["x-api-key"], &received.headers["anthropic-version"]),
        (&"fake-key".parse().unwrap(), &"2023-06-01".parse().unwrap())
    );
    let body = &received.body;
    assert_eq!(
        (&body["model"], &body["max_tokens"], &body["stream"]),
        (&json!("claude-test"), &json!(1_000), &json!(true))
    );
    assert_eq!(body["system"][0]["text"], "Be kind.");
    assert_eq!(body["tools"][0]["input_schema"]["type"], "object");
    let shape: Vec<(&str, Vec<&str>)> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| {
            let blocks = message["content"].as_array().unwrap().iter();
            (message["role"].as_str().unwrap(), blocks.map(|block| block["type"].as_str().unwrap()).collect())
        })
        .collect();
    assert_eq!(
        shape,
        [
            ("user", vec!["text", "text"]),
            ("assistant", vec!["thinking", "tool_use"]),
            ("user", vec!["tool_result", "text"]),
            ("assistant", vec!["tool_use"]), // another model's thoughts are left out
            ("user", vec!["tool_result"]),
        ]
    );
    let id = &body["messages"][1]["content"][1]["id"];
    assert_eq!(id, &body["messages"][2]["content"][0]["tool_use_id"], "a call and its result keep one id");
    assert_eq!(body["messages"][2]["content"][0]["is_error"], true);
    assert_eq!(body["messages"][4]["content"][0]["cache_control"]["type"], "ephemeral");
}

#[tokio::test]
async fn s4a_stop_reasons_are_told_apart() {
    let ends = [
        ("end_turn", StopReason::EndTurn),
        ("stop_sequence", StopReason::EndTurn),
        ("max_tokens", StopReason::MaxTokens),
        ("refusal", StopReason::Error),
    ];
    let text = |reason: &str| {
        events(&[
            ("message_delta", json!({ "delta": { "stop_reason": reason }, "usage": {} })),
            ("message_stop", json!({})),
        ])
    };
    let server =
        Server::start(ends.iter().map(|(reason, _)| Scripted::Stream(text(reason), 50)).collect()).await;
    for (reason, stop) in ends {
        assert_eq!(ask(&provider(&server), request(vec![user("hi")])).await.1.stop_reason, stop, "{reason}");
    }
}

#[tokio::test]
async fn v1_images_of_an_input_stand_before_its_words() {
    let server = Server::start(vec![Scripted::Stream(full(), 100)]).await;
    let images = json!([
        { "mediaType": "image/png", "data": "AAAA" },
        { "url": "https://example.com/x.jpg" },
        { "url": "http://10.0.0.1/x" },
        { "mediaType": "text/html", "data": "AAAA" },
        7,
    ]);
    let seen = Message::User(json!({ "text": "look", "images": images }));
    ask(&provider(&server), request(vec![seen])).await;
    let content = server.received()[0].body["messages"][0]["content"].clone();
    assert_eq!(content[0]["source"], json!({ "type": "base64", "media_type": "image/png", "data": "AAAA" }));
    assert_eq!(content[1]["source"], json!({ "type": "url", "url": "https://example.com/x.jpg" }));
    assert_eq!((&content[2]["text"], content.as_array().unwrap().len()), (&json!("look"), 3));
}
