//! Chat completions: the API of OpenAI, and of Ollama, vLLM, llama.cpp and many hosts.

use std::collections::BTreeMap;

use keel_agent::provider::{Block, Message, ModelAnswer, Request, StopReason, Usage, text_of};
use reqwest::{Client, RequestBuilder};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::context::{Image, arguments, blocks_of, call_id, images_of};
use crate::http::{Failure, Reader, StreamStep, Wire, words};

/// The address of OpenAI's API.
pub const URL: &str = "https://api.openai.com/v1";

/// Chat completions at an address.
pub struct OpenAi {
    /// With its version, without a slash at its end: `http://127.0.0.1:11434/v1` is Ollama.
    pub url: String,
    /// The API key, if the server needs one.
    pub key: Option<SecretString>,
    /// The model of sessions that name none.
    pub model: String,
    /// The most tokens of an answer; `None`: the server's own limit.
    pub max_tokens: Option<u32>,
}

impl Wire for OpenAi {
    type Reader = Reading;

    fn name(&self) -> &str {
        "openai"
    }

    fn model(&self, wanted: Option<&str>) -> String {
        wanted.unwrap_or(&self.model).to_owned()
    }

    fn request(&self, client: &Client, request: &Request) -> RequestBuilder {
        let post = client.post(format!("{}/chat/completions", self.url)).json(&self.body(request));
        match &self.key {
            Some(key) => post.bearer_auth(key.expose_secret()),
            None => post,
        }
    }

    fn reader(&self) -> Reading {
        Reading::default()
    }
}

impl OpenAi {
    fn body(&self, request: &Request) -> Value {
        let mut messages: Vec<Value> = Vec::new();
        if let Some(system) = request.system.as_deref().filter(|system| !system.is_empty()) {
            messages.push(json!({ "role": "system", "content": system }));
        }
        messages.extend(request.messages.iter().map(message));
        let mut body = json!({
            "model": self.model(request.model.as_deref()),
            "stream": true,
            "stream_options": { "include_usage": true },
            "messages": messages,
        });
        if let Some(most) = self.max_tokens {
            // OpenAI has a newer name for it; other servers know the older one.
            let name = if self.url == URL { "max_completion_tokens" } else { "max_tokens" };
            body[name] = json!(most);
        }
        if !request.tools.is_empty() {
            let tool = |tool: &keel_agent::tool::ToolSpec| {
                let function = json!({
                    "name": tool.name, "description": tool.description, "parameters": tool.parameters,
                });
                json!({ "type": "function", "function": function })
            };
            body["tools"] = request.tools.iter().map(tool).collect();
        }
        body
    }
}

fn message(message: &Message) -> Value {
    match message {
        Message::Summary(summary) => json!({ "role": "user", "content": summary }),
        Message::User(payload) => json!({ "role": "user", "content": user_content(payload) }),
        Message::ToolResult(payload) => json!({
            "role": "tool",
            "tool_call_id": call_id(payload["toolCallId"].as_str().unwrap_or_default()),
            "content": text_of(payload),
        }),
        Message::Assistant(payload) => assistant_message(payload),
    }
}

/// The content of an input: a plain text, or parts if it has images.
fn user_content(payload: &Value) -> Value {
    let images = images_of(payload);
    if images.is_empty() {
        return json!(text_of(payload));
    }
    let part = |image: &Image<'_>| {
        let url = match image {
            Image::Inline(kind, data) => format!("data:{kind};base64,{data}"),
            Image::Url(url) => (*url).to_owned(),
        };
        json!({ "type": "image_url", "image_url": { "url": url } })
    };
    let mut parts: Vec<Value> = images.iter().map(part).collect();
    parts.push(json!({ "type": "text", "text": text_of(payload) }));
    json!(parts)
}

fn assistant_message(payload: &Value) -> Value {
    let call = |block: &Value| {
        let id = call_id(block["id"].as_str().unwrap_or_default());
        let arguments = match &block["arguments"] {
            Value::String(text) => text.clone(),
            arguments => arguments.to_string(),
        };
        json!({ "id": id, "type": "function", "function": { "name": block["name"], "arguments": arguments } })
    };
    let blocks = blocks_of(payload);
    let calls: Vec<Value> = blocks.iter().filter(|block| block["type"] == "toolCall").map(call).collect();
    let text: String = blocks
        .iter()
        .filter(|block| block["type"] == "text")
        .filter_map(|block| block["text"].as_str())
        .collect();
    let mut message = json!({ "role": "assistant", "content": text });
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    message
}

/// An answer as far as it has been read.
#[derive(Debug, Default)]
pub struct Reading {
    text: String,
    thinking: String,
    calls: BTreeMap<u64, Call>,
    usage: Usage,
    finish: Option<String>,
}

#[derive(Debug, Default)]
struct Call {
    id: String,
    name: String,
    json: String,
}

impl Reading {
    fn count(&mut self, usage: &Value) {
        let number = |value: &Value| value.as_u64();
        self.usage.input = number(&usage["prompt_tokens"]).unwrap_or(self.usage.input);
        self.usage.output = number(&usage["completion_tokens"]).unwrap_or(self.usage.output);
        let cached = number(&usage["prompt_tokens_details"]["cached_tokens"]);
        self.usage.cache_read = cached.unwrap_or(self.usage.cache_read);
    }

    fn add_call_piece(&mut self, piece: &Value, position: usize) {
        let index = piece["index"].as_u64().unwrap_or(position as u64);
        let call = self.calls.entry(index).or_default();
        let function = &piece["function"];
        call.id.push_str(piece["id"].as_str().unwrap_or_default());
        call.name.push_str(function["name"].as_str().unwrap_or_default());
        match &function["arguments"] {
            Value::String(json) => call.json.push_str(json),
            Value::Object(_) => call.json = function["arguments"].to_string(), // some servers send them as an object
            _ => {}
        }
    }
}

impl Reader for Reading {
    fn read_event(&mut self, _: &str, data: &str) -> Result<StreamStep, Failure> {
        if data.trim() == "[DONE]" {
            return match self.finish {
                Some(_) => Ok(StreamStep::End),
                None => Err(Failure::transient("the stream ended in the middle")),
            };
        }
        let data: Value =
            serde_json::from_str(data).map_err(|_| Failure::transient("the stream holds no JSON"))?;
        if !data["error"].is_null() {
            return Err(Failure::transient(format!("the model failed: {}", words(&data))));
        }
        self.count(&data["usage"]);
        let choice = &data["choices"][0];
        if let Some(finish) = choice["finish_reason"].as_str() {
            self.finish = Some(finish.to_owned());
        }
        let delta = &choice["delta"];
        for (position, piece) in delta["tool_calls"].as_array().into_iter().flatten().enumerate() {
            self.add_call_piece(piece, position);
        }
        let thought = delta["reasoning_content"].as_str().or(delta["reasoning"].as_str());
        self.thinking.push_str(thought.unwrap_or_default());
        match delta["content"].as_str() {
            Some(text) if !text.is_empty() => {
                self.text.push_str(text);
                Ok(StreamStep::Text(text.to_owned()))
            }
            _ => Ok(StreamStep::Nothing),
        }
    }

    fn finish(self) -> ModelAnswer {
        let mut content = Vec::new();
        if !self.thinking.is_empty() {
            content.push(Block::Thinking { thinking: self.thinking, signature: None });
        }
        if !self.text.is_empty() {
            content.push(Block::Text { text: self.text });
        }
        let calls = !self.calls.is_empty();
        content.extend(self.calls.into_iter().map(|(index, call)| {
            let id = if call.id.is_empty() { format!("call_{index}") } else { call.id };
            Block::ToolCall { id, name: call.name, arguments: arguments(&call.json) }
        }));
        let stop_reason = match self.finish.as_deref() {
            Some("length") => StopReason::MaxTokens,
            Some("content_filter") => {
                return ModelAnswer {
                    content,
                    usage: self.usage,
                    ..ModelAnswer::failed("the provider's filter stopped the answer")
                };
            }
            _ if calls => StopReason::ToolUse,
            Some(_) | None => StopReason::EndTurn,
        };
        ModelAnswer { content, stop_reason, usage: self.usage, error: None, overflow: false }
    }
}
