//! Models, behind one small port: a request in, deltas out, and one last message. A failure is a last message too, never
//! a panic.

pub mod fake;

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
    /// A context entry as a message. A call that was talked past gets an error result: providers insist on one.
    pub fn of(entry: &Entry<'_>) -> Message {
        match entry {
            Entry::Summary(event) => Message::Summary(
                event.payload.get("summary").and_then(Value::as_str).unwrap_or_default().to_owned(),
            ),
            Entry::User(event) => Message::User(event.payload.value().clone()),
            Entry::Assistant(event) => Message::Assistant(event.payload.value().clone()),
            Entry::ToolResult(event) => Message::ToolResult(event.payload.value().clone()),
            Entry::Orphan(call) => Message::ToolResult(json!({
                "toolCallId": call.id,
                "toolName": call.name,
                "content": [{ "type": "text", "text": "the call has no result" }],
                "isError": true,
            })),
        }
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
    /// The request's name.
    pub generation_id: String,
}

/// What comes back, in order: texts, then exactly one `Done`.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// More text. All of it, joined, is a prefix of the last message's text (R3a).
    Text(String),
    /// The end.
    Done(Answer),
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It had said what it had to say.
    EndTurn,
    /// It waits for tools.
    ToolUse,
    /// It met the token limit.
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
        /// The model's name for the call. The loop makes it unique in the session (V2).
        id: String,
        /// The tool.
        name: String,
        /// The arguments: an object, or whatever else the model gave; that is refused when the call's turn comes.
        arguments: Value,
    },
    /// What a model thought on its way. No part of its text.
    Thinking {
        /// The thoughts.
        thinking: String,
        /// The provider's proof that they are its own, without which it will not read them again.
        #[serde(skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// Thoughts that only the provider can read.
    RedactedThinking {
        /// As it gave them.
        data: String,
    },
}

/// Tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Read, from the provider's cache or not.
    pub input: u64,
    /// Written.
    pub output: u64,
    /// Of what was read: from the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// Of what was read: put into the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Usage {
    /// The sum of both.
    pub(crate) fn add(&mut self, other: Usage) {
        self.input += other.input;
        self.output += other.output;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
    }
}

/// A model's last message of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What it says.
    pub content: Vec<Block>,
    /// Why it stopped.
    pub stop_reason: StopReason,
    /// What it took.
    pub usage: Usage,
    /// With [`StopReason::Error`]: what happened, fit for the ledger.
    pub error: Option<String>,
}

impl Answer {
    /// A failure.
    pub fn failed(error: impl Into<String>) -> Answer {
        Answer {
            content: Vec::new(),
            stop_reason: StopReason::Error,
            usage: Usage::default(),
            error: Some(error.into()),
        }
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
