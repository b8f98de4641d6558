//! The port for models: a request in, deltas out, and one last message. A failure is a last message too, never an error or a
//! panic.

pub mod fake;

use std::borrow::Cow;

use futures_util::stream::BoxStream;
use keel_kernel::transcript::Entry;
use serde::Serialize;
use serde_json::{Value, json};

use crate::tool::ToolSpec;

/// One entry of a request's context, as the ledger holds it.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A summary of what came before.
    Summary(String),
    /// A `user.message` payload.
    User(Value),
    /// An `assistant.message` payload.
    Assistant(Value),
    /// A `tool.result` payload.
    ToolResult(Value),
}

impl Message {
    /// A context entry as a message. A superseded call gets an error result, since providers demand a result for every call.
    pub fn of(entry: &Entry<'_>) -> Message {
        match entry {
            Entry::Summary(event) => Message::Summary(
                event.payload.get("summary").and_then(Value::as_str).unwrap_or_default().to_owned(),
            ),
            Entry::User(event) => Message::User(event.payload.value().clone()),
            Entry::Assistant(event) => Message::Assistant(event.payload.value().clone()),
            Entry::ToolResult(event) => Message::ToolResult(shown_result(event.payload.value())),
            Entry::Orphan(call) => Message::ToolResult(json!({
                "toolCallId": call.id,
                "toolName": call.name,
                "content": [{ "type": "text", "text": "the call has no result" }],
                "isError": true,
            })),
        }
    }
}

/// How much of a tool's output a model is shown, in bytes. The ledger may hold more of it.
pub const OUTPUT_SHOWN: usize = 32 * 1024;

/// A tool's output, as a model is shown it.
pub(crate) fn cut_output(text: &str) -> Cow<'_, str> {
    if text.len() <= OUTPUT_SHOWN {
        return Cow::Borrowed(text);
    }
    // The end is shown too: it often says how the command ended.
    let head = text.floor_char_boundary(OUTPUT_SHOWN * 3 / 4);
    let tail = text.ceil_char_boundary(text.len() - OUTPUT_SHOWN / 4);
    let left_out = tail - head;
    Cow::Owned(format!(
        "{}\n[{left_out} of {} bytes are left out here; the result is kept whole in the session's events]\n{}",
        &text[..head],
        text.len(),
        &text[tail..]
    ))
}

fn shown_result(payload: &Value) -> Value {
    let text = text_of(payload);
    let mut shown = payload.clone();
    if let Cow::Owned(cut) = cut_output(&text) {
        shown["content"] = json!([{ "type": "text", "text": cut }]);
    }
    shown
}

/// The text of a payload: its `text`, or the text of its `content`, whichever way its owner wrote it.
pub fn text_of(payload: &Value) -> String {
    match (payload.get("text"), payload.get("content")) {
        (Some(Value::String(text)), _) | (_, Some(Value::String(text))) => text.clone(),
        (_, Some(Value::Array(blocks))) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// One request to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The session's model, if it names one.
    pub model: Option<String>,
    /// The session's system prompt, if it has one.
    pub system: Option<String>,
    /// The context.
    pub messages: Vec<Message>,
    /// The tools on offer.
    pub tools: Vec<ToolSpec>,
    /// Which attempt of the run this is, from 1.
    pub attempt: u32,
    /// The generation's id.
    pub generation_id: String,
}

/// What comes back, in order: texts, then exactly one `Done`.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// More text. All of it, joined, is a prefix of the last message's text (R3a).
    Text(String),
    /// The end.
    Done(ModelAnswer),
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It was finished.
    EndTurn,
    /// It called tools.
    ToolUse,
    /// It reached the token limit.
    MaxTokens,
    /// It failed.
    Error,
    /// It was stopped.
    Aborted,
}

/// A block of a message.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Block {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A tool call.
    ToolCall {
        /// The model's id for the call. The loop makes it unique in the session (V2).
        id: String,
        /// The tool.
        name: String,
        /// The arguments: an object, or whatever else the model gave, which is refused when the call is to run.
        arguments: Value,
    },
    /// The model's reasoning. Not part of its text.
    Thinking {
        /// The reasoning.
        thinking: String,
        /// The provider's signature, without which it refuses the block later.
        #[serde(skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// Reasoning that only the provider can read.
    RedactedThinking {
        /// As it gave them.
        data: String,
    },
}

/// Tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens read, from the provider's cache or not.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
    /// How many of the tokens read came from the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// How many of the tokens read were put into the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write: u64,
    /// What it cost in US dollars, where the prices are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// The most tokens that are counted for one answer. No model reads or writes as many, and sums stay within the integers that
/// JSON holds exactly.
const TOKENS_MAX: u64 = 1 << 40;

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Usage {
    /// Limited to what may be written to the ledger, whatever a server sent.
    #[must_use]
    pub fn bounded(self) -> Usage {
        Usage {
            input: self.input.min(TOKENS_MAX),
            output: self.output.min(TOKENS_MAX),
            cache_read: self.cache_read.min(TOKENS_MAX),
            cache_write: self.cache_write.min(TOKENS_MAX),
            cost_usd: self.cost_usd.filter(|cost| cost.is_finite()),
        }
    }

    /// Adds another usage to this one.
    pub fn add(&mut self, other: Usage) {
        self.input += other.input;
        self.output += other.output;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        if let Some(cost) = other.cost_usd {
            self.cost_usd = Some(self.cost_usd.unwrap_or(0.0) + cost);
        }
    }
}

/// A model's last message of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAnswer {
    /// Its blocks.
    pub content: Vec<Block>,
    /// Why it stopped.
    pub stop_reason: StopReason,
    /// The tokens it took.
    pub usage: Usage,
    /// With [`StopReason::Error`]: what happened, fit for the ledger.
    pub error: Option<String>,
    /// With [`StopReason::Error`]: the request was longer than the model's window.
    pub overflow: bool,
}

impl ModelAnswer {
    /// A failure.
    pub fn failed(error: impl Into<String>) -> ModelAnswer {
        ModelAnswer {
            content: Vec::new(),
            stop_reason: StopReason::Error,
            usage: Usage::default(),
            error: Some(error.into()),
            overflow: false,
        }
    }

    /// Its text.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            Block::ToolCall { .. } | Block::Thinking { .. } | Block::RedactedThinking { .. } => None,
        });
        texts.collect()
    }

    /// A failure because the request was longer than the model's window.
    pub fn overflowed(error: impl Into<String>) -> ModelAnswer {
        ModelAnswer { overflow: true, ..ModelAnswer::failed(error) }
    }
}

/// A model's provider.
pub trait Provider: Send + Sync {
    /// The provider's name, as the ledger shows it.
    fn name(&self) -> &str;

    /// The model that answers a request for `wanted`.
    fn model(&self, wanted: Option<&str>) -> String;

    /// Sends a request. Dropping the stream stops it.
    fn stream(&self, request: Request) -> BoxStream<'static, Delta>;
}
