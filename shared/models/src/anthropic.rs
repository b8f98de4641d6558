//! Anthropic's Messages API.

use std::collections::BTreeMap;

use keel_agent::provider::{Block, Message, ModelAnswer, Request, StopReason, Usage, text_of};
use reqwest::{Client, RequestBuilder};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::context::{Image, arguments, blocks_of, call_id, images_of};
use crate::http::{Failure, Reader, StreamStep, Wire, words};

/// The address of Anthropic's API.
pub const URL: &str = "https://api.anthropic.com";
/// The API's version.
const VERSION: &str = "2023-06-01";
const NAME: &str = "anthropic";

/// Anthropic's Messages API at an address.
pub struct Anthropic {
    /// Without a slash at its end.
    pub url: String,
    /// The API key.
    pub key: SecretString,
    /// The model of sessions that name none.
    pub model: String,
    /// The most tokens of an answer.
    pub max_tokens: u32,
}

impl Wire for Anthropic {
    type Reader = Reading;

    fn name(&self) -> &str {
        NAME
    }

    fn model(&self, wanted: Option<&str>) -> String {
        wanted.unwrap_or(&self.model).to_owned()
    }

    fn request(&self, client: &Client, request: &Request) -> RequestBuilder {
        client
            .post(format!("{}/v1/messages", self.url))
            .header("x-api-key", self.key.expose_secret())
            .header("anthropic-version", VERSION)
            .json(&self.body(request))
    }

    fn reader(&self) -> Reading {
        Reading::default()
    }
}

impl Anthropic {
    fn body(&self, request: &Request) -> Value {
        let model = self.model(request.model.as_deref());
        let mut body = json!({
            "model": model,
            "max_tokens": self.max_tokens,
            "stream": true,
            "messages": messages(&request.messages, &model),
        });
        if let Some(system) = request.system.as_deref().filter(|system| !system.is_empty()) {
            body["system"] =
                json!([{ "type": "text", "text": system, "cache_control": { "type": "ephemeral" } }]);
        }
        if !request.tools.is_empty() {
            let tool = |tool: &keel_agent::tool::ToolSpec| {
                json!({
                    "name": tool.name, "description": tool.description, "input_schema": tool.parameters,
                })
            };
            body["tools"] = request.tools.iter().map(tool).collect();
        }
        body
    }
}

/// The context as messages: the roles alternate, and tool results come before the user's text that follows them.
fn messages(context: &[Message], model: &str) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    for message in context {
        let (role, blocks) = match message {
            Message::Summary(summary) => ("user", vec![json!({ "type": "text", "text": summary })]),
            Message::User(payload) => ("user", user_content(payload)),
            Message::ToolResult(payload) => ("user", vec![result(payload)]),
            Message::Assistant(payload) => ("assistant", assistant_content(payload, model)),
        };
        let blocks: Vec<Value> = blocks.into_iter().filter(|block| block["text"] != "").collect();
        match messages.last_mut().filter(|last| last["role"] == role) {
            Some(last) => last["content"].as_array_mut().expect("it was made as one").extend(blocks),
            None if blocks.is_empty() => {}
            None => messages.push(json!({ "role": role, "content": blocks })),
        }
    }
    // The next request begins with this context, so it is marked for the cache.
    if let Some(last) = messages.last_mut().and_then(|last| last["content"].as_array_mut()?.last_mut()) {
        last["cache_control"] = json!({ "type": "ephemeral" });
    }
    messages
}

/// The blocks of an input: its images, then its text.
fn user_content(payload: &Value) -> Vec<Value> {
    let image = |image: &Image<'_>| {
        let source = match image {
            Image::Inline(kind, data) => json!({ "type": "base64", "media_type": kind, "data": data }),
            Image::Url(url) => json!({ "type": "url", "url": url }),
        };
        json!({ "type": "image", "source": source })
    };
    let mut blocks: Vec<Value> = images_of(payload).iter().map(image).collect();
    blocks.push(json!({ "type": "text", "text": text_of(payload) }));
    blocks
}

fn result(payload: &Value) -> Value {
    let id = call_id(payload["toolCallId"].as_str().unwrap_or_default());
    let text = text_of(payload);
    json!({ "type": "tool_result", "tool_use_id": id, "content": text, "is_error": payload["isError"] == true })
}

/// The blocks of an assistant message. Thinking is sent only to the model that produced it: no other accepts its signature.
fn assistant_content(payload: &Value, model: &str) -> Vec<Value> {
    let ours = payload["provider"] == NAME && payload["model"] == model;
    let block = |block: &Value| match block["type"].as_str()? {
        "text" => Some(json!({ "type": "text", "text": block["text"] })),
        "toolCall" => {
            let input = if block["arguments"].is_object() { block["arguments"].clone() } else { json!({}) };
            let id = call_id(block["id"].as_str().unwrap_or_default());
            Some(json!({ "type": "tool_use", "id": id, "name": block["name"], "input": input }))
        }
        "thinking" if ours && block["signature"].is_string() => Some(
            json!({ "type": "thinking", "thinking": block["thinking"], "signature": block["signature"] }),
        ),
        "redactedThinking" if ours => Some(json!({ "type": "redacted_thinking", "data": block["data"] })),
        _ => None,
    };
    blocks_of(payload).iter().filter_map(block).collect()
}

/// An answer as far as it has been read.
#[derive(Debug, Default)]
pub struct Reading {
    blocks: BTreeMap<u64, Part>,
    usage: Usage,
    stop: Option<String>,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Thinking { thinking: String, signature: String },
    Redacted(String),
    Call { id: String, name: String, json: String },
}

impl Reading {
    fn begin(&mut self, data: &Value) -> StreamStep {
        let block = &data["content_block"];
        let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
        let part = match block["type"].as_str().unwrap_or_default() {
            "text" => Part::Text(text("text")),
            "thinking" => Part::Thinking { thinking: text("thinking"), signature: text("signature") },
            "redacted_thinking" => Part::Redacted(text("data")),
            "tool_use" => Part::Call { id: text("id"), name: text("name"), json: String::new() },
            _ => return StreamStep::Nothing,
        };
        let step = match &part {
            Part::Text(text) if !text.is_empty() => StreamStep::Text(text.clone()),
            _ => StreamStep::Nothing,
        };
        self.blocks.insert(data["index"].as_u64().unwrap_or_default(), part);
        step
    }

    fn go_on(&mut self, data: &Value) -> StreamStep {
        let delta = &data["delta"];
        let piece = |name: &str| delta[name].as_str().unwrap_or_default();
        match self.blocks.get_mut(&data["index"].as_u64().unwrap_or_default()) {
            Some(Part::Text(text)) if !piece("text").is_empty() => {
                text.push_str(piece("text"));
                return StreamStep::Text(piece("text").to_owned());
            }
            Some(Part::Thinking { thinking, signature }) => {
                thinking.push_str(piece("thinking"));
                signature.push_str(piece("signature"));
            }
            Some(Part::Call { json, .. }) => json.push_str(piece("partial_json")),
            Some(Part::Text(_) | Part::Redacted(_)) | None => {}
        }
        StreamStep::Nothing
    }

    fn count(&mut self, usage: &Value) {
        let number = |name: &str| usage[name].as_u64();
        let (read, written) = (number("cache_read_input_tokens"), number("cache_creation_input_tokens"));
        if let Some(input) = number("input_tokens") {
            self.usage.input = input + read.unwrap_or(0) + written.unwrap_or(0);
        }
        self.usage.cache_read = read.unwrap_or(self.usage.cache_read);
        self.usage.cache_write = written.unwrap_or(self.usage.cache_write);
        self.usage.output = number("output_tokens").unwrap_or(self.usage.output);
    }
}

impl Reader for Reading {
    fn read_event(&mut self, event: &str, data: &str) -> Result<StreamStep, Failure> {
        let data: Value =
            serde_json::from_str(data).map_err(|_| Failure::transient("the stream holds no JSON"))?;
        match event {
            "message_start" => self.count(&data["message"]["usage"]),
            "content_block_start" => return Ok(self.begin(&data)),
            "content_block_delta" => return Ok(self.go_on(&data)),
            "message_delta" => {
                self.count(&data["usage"]);
                self.stop = data["delta"]["stop_reason"].as_str().map(str::to_owned);
            }
            "message_stop" => return Ok(StreamStep::End),
            "error" => {
                let kind = data["error"]["type"].as_str().unwrap_or("error");
                let is_transient =
                    ["overloaded_error", "rate_limit_error", "api_error", "timeout_error"].contains(&kind);
                return Err(Failure {
                    what: format!("the model failed: {kind}: {}", words(&data)),
                    is_transient,
                    after: None,
                    overflow: false,
                });
            }
            _ => {} // a ping, or an event of a later version
        }
        Ok(StreamStep::Nothing)
    }

    fn finish(self) -> ModelAnswer {
        let part = |part: Part| match part {
            Part::Text(text) => Block::Text { text },
            Part::Thinking { thinking, signature } => Block::Thinking {
                thinking,
                signature: Some(signature).filter(|signature| !signature.is_empty()),
            },
            Part::Redacted(data) => Block::RedactedThinking { data },
            Part::Call { id, name, json } => Block::ToolCall { id, name, arguments: arguments(&json) },
        };
        let content: Vec<Block> = self.blocks.into_values().map(part).collect();
        let stop_reason = match self.stop.as_deref() {
            Some("tool_use") => StopReason::ToolUse,
            Some("max_tokens" | "model_context_window_exceeded") => StopReason::MaxTokens,
            Some("refusal") => {
                return ModelAnswer {
                    content,
                    usage: self.usage,
                    ..ModelAnswer::failed("the model refused to answer")
                };
            }
            Some(_) | None => StopReason::EndTurn,
        };
        ModelAnswer { content, stop_reason, usage: self.usage, error: None, overflow: false }
    }
}
