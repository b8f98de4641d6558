//! Chat completions.

use keel_agent::provider::{Block, Message, StopReason, Usage};
use keel_models::Http;
use keel_models::openai::OpenAi;
use serde_json::{Value, json};

use crate::server::{Scripted, Server, ask, request, retry_policy, user};

fn provider(server: &Server) -> Http<OpenAi> {
    let wire = OpenAi {
        url: format!("{}/v1", server.url),
        key: Some("fake-key".to_owned().into()),
        model: "gpt-test".to_owned(),
        max_tokens: None,
    };
    Http::new(wire, retry_policy(), None).unwrap()
}

fn chunks(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect::<String>() + "data: [DONE]\n\n"
}

fn delta(delta: Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

fn finish(reason: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

#[tokio::test]
async fn r3a_an_answer_is_the_same_wherever_its_bytes_are_cut() {
    let text = chunks(&[
        delta(json!({ "role": "assistant", "content": "" })),
        delta(json!({ "reasoning_content": "hm" })),
        delta(json!({ "content": "Grüße, " })),
        delta(json!({ "content": "日本 🎉" })),
        delta(
            json!({ "tool_calls": [{ "index": 0, "id": "call_a", "type": "function", "function": { "name": "add", "arguments": "" } }] }),
        ),
        delta(json!({ "tool_calls": [{ "index": 0, "function": { "arguments": "{\"a\":" } }] })),
        delta(
            json!({ "tool_calls": [{ "index": 1, "id": "call_b", "function": { "name": "add", "arguments": "{\"a\":2}" } }] }),
        ),
        delta(json!({ "tool_calls": [{ "index": 0, "function": { "arguments": "1}" } }] })),
        finish("tool_calls"),
        json!({ "choices": [], "usage": { "prompt_tokens": 11, "completion_tokens": 4, "prompt_tokens_details": { "cached_tokens": 8 } } }),
    ]);
    let sizes = [1, 5, 33, 100_000];
    let server =
        Server::start(sizes.iter().map(|size| Scripted::Stream(text.clone(), *size)).collect()).await;
    for size in sizes {
        let (text, answer) = ask(&provider(&server), request(vec![user("hi")])).await;
        assert_eq!(text, "Grüße, 日本 🎉", "pieces of {size}");
        assert_eq!((answer.stop_reason, answer.error), (StopReason::ToolUse, None));
        assert_eq!(
            answer.usage,
            Usage { input: 11, output: 4, cache_read: 8, cache_write: 0, cost_usd: None }
        );
        let call = |id: &str, a: u32| Block::ToolCall {
            id: id.to_owned(),
            name: "add".to_owned(),
            arguments: json!({ "a": a }),
        };
        let thinking = Block::Thinking { thinking: "hm".to_owned(), signature: None };
        assert_eq!(answer.content, [thinking, Block::Text { text }, call("call_a", 1), call("call_b", 2)]);
    }
}

#[tokio::test]
async fn a1_a_context_is_spelled_as_chat_completions_want_it() {
    let server = Server::start(vec![Scripted::Stream(chunks(&[finish("stop")]), 100)]).await;
    let asks = json!({ "type": "toolCall", "id": "c", "name": "add", "arguments": { "a": 1 } });
    let context = vec![
        Message::Summary("before".to_owned()),
        user("one"),
        Message::Assistant(json!({ "content": [{ "type": "text", "text": "so" }, asks] })),
        Message::ToolResult(json!({ "toolCallId": "c", "content": "3" })),
    ];
    ask(&provider(&server), request(context)).await;
    let received = &server.received()[0];
    assert_eq!(
        (received.path.as_str(), &received.headers["authorization"]),
        ("/v1/chat/completions", &"Bearer fake-key".parse().unwrap())
    );
    let call =
        json!({ "id": "c", "type": "function", "function": { "name": "add", "arguments": "{\"a\":1}" } });
    assert_eq!(
        received.body["messages"],
        json!([
            { "role": "system", "content": "Be kind." },
            { "role": "user", "content": "before" },
            { "role": "user", "content": "one" },
            { "role": "assistant", "content": "so", "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "c", "content": "3" },
        ])
    );
    assert_eq!(received.body["tools"][0]["function"]["name"], "add");
}

#[tokio::test]
async fn s4a_stop_reasons_are_told_apart_and_arguments_that_are_no_json_are_kept() {
    let broken = delta(
        json!({ "tool_calls": [{ "index": 0, "function": { "name": "add", "arguments": "{\"a\": 1" } }] }),
    );
    let cases = [
        (chunks(&[finish("stop")]), StopReason::EndTurn),
        (chunks(&[finish("length")]), StopReason::MaxTokens),
        (chunks(&[finish("content_filter")]), StopReason::Error),
        (chunks(&[broken, finish("stop")]), StopReason::ToolUse),
    ];
    let server =
        Server::start(cases.iter().map(|(text, _)| Scripted::Stream(text.clone(), 50)).collect()).await;
    for (text, stop) in cases {
        let (_, answer) = ask(&provider(&server), request(vec![user("hi")])).await;
        assert_eq!(answer.stop_reason, stop, "{text}");
        if stop == StopReason::ToolUse {
            let arguments = Value::String("{\"a\": 1".to_owned());
            assert_eq!(
                answer.content,
                [Block::ToolCall { id: "call_0".to_owned(), name: "add".to_owned(), arguments }]
            );
        }
    }
}

#[tokio::test]
async fn v1_images_of_an_input_stand_before_its_words() {
    let answer = chunks(&[delta(json!({ "content": "I see" })), finish("stop")]);
    let server = Server::start(vec![Scripted::Stream(answer, 100)]).await;
    let images =
        json!([{ "mediaType": "image/png", "data": "AAAA" }, { "url": "https://example.com/x.jpg" }]);
    let seen = Message::User(json!({ "text": "look", "images": images }));
    ask(&provider(&server), request(vec![seen])).await;
    let received = server.received()[0].body["messages"].clone();
    let content =
        received.as_array().unwrap().iter().find(|message| message["role"] == "user").unwrap()["content"]
            .clone();
    assert_eq!(content[0]["image_url"]["url"], "data:image/png;base64,AAAA");
    assert_eq!(content[1]["image_url"]["url"], "https://example.com/x.jpg");
    assert_eq!(content[2], json!({ "type": "text", "text": "look" }));
}
