//! The closed vocabulary (L3): eight kinds of event, the class of each (C), and its dedupe key (I1).

use std::fmt;

/// What an event is (L3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// What a client says: the only kind a client may write.
    UserMessage,
    /// A model's answer.
    AssistantMessage,
    /// A tool's result, paired with its call.
    ToolResult,
    /// The fact that the context was compacted.
    Compaction,
    /// One attempt's summary.
    RunFinished,
    /// A fact of an external backend.
    ExternalEvent,
    /// Reserved: accepted under its fence, emitted by nothing of ours.
    RunStarted,
    /// Reserved: accepted under its fence, emitted by nothing of ours.
    RunFailed,
}

/// Who may commit a kind: a property of the kind, never of the caller (C1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Under the session's lease.
    Owner,
    /// A client, without a token.
    Edge,
    /// The gateway of an external backend, without a token.
    External,
}

/// A dedupe key's name (I1). It is part of the key (I2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyName {
    /// A client's name for its input.
    RequestId,
    /// A loop's name for one request to a model.
    GenerationId,
    /// A model's name for one tool call.
    ToolCallId,
}

impl KeyName {
    /// Every name.
    pub const ALL: [KeyName; 3] = [KeyName::RequestId, KeyName::GenerationId, KeyName::ToolCallId];

    /// The key name with this text, if there is one.
    pub fn parse(name: &str) -> Option<KeyName> {
        KeyName::ALL.into_iter().find(|known| known.as_str() == name)
    }

    /// The name as it stands in requests, payloads and the table.
    pub fn as_str(self) -> &'static str {
        match self {
            KeyName::RequestId => "requestId",
            KeyName::GenerationId => "generationId",
            KeyName::ToolCallId => "toolCallId",
        }
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 8] = [
        Kind::UserMessage,
        Kind::AssistantMessage,
        Kind::ToolResult,
        Kind::Compaction,
        Kind::RunFinished,
        Kind::ExternalEvent,
        Kind::RunStarted,
        Kind::RunFailed,
    ];

    /// The kind's name on the wire and in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::UserMessage => "user.message",
            Kind::AssistantMessage => "assistant.message",
            Kind::ToolResult => "tool.result",
            Kind::Compaction => "compaction",
            Kind::RunFinished => "run.finished",
            Kind::ExternalEvent => "external.event",
            Kind::RunStarted => "run.started",
            Kind::RunFailed => "run.failed",
        }
    }

    /// C: the commit class.
    pub fn class(self) -> Class {
        match self {
            Kind::UserMessage => Class::Edge,
            Kind::ExternalEvent => Class::External,
            Kind::AssistantMessage
            | Kind::ToolResult
            | Kind::Compaction
            | Kind::RunFinished
            | Kind::RunStarted
            | Kind::RunFailed => Class::Owner,
        }
    }

    /// I1: the one key the kind may carry, if any.
    pub fn key_name(self) -> Option<KeyName> {
        match self {
            Kind::UserMessage | Kind::ExternalEvent => Some(KeyName::RequestId),
            Kind::AssistantMessage => Some(KeyName::GenerationId),
            Kind::ToolResult => Some(KeyName::ToolCallId),
            Kind::Compaction | Kind::RunFinished | Kind::RunStarted | Kind::RunFailed => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
