//! The port for tools. A tool that fails or does not exist gives an error result: the model sees it and goes on.

pub mod builtin;
pub mod policy;

use async_trait::async_trait;
use keel_kernel::event::ToolCall;
use serde_json::Value;

pub use policy::Policy;

/// A tool, as it is described to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
    /// How it may be used. It is not sent to the model.
    pub policy: Policy,
}

/// The output of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// The text that the model sees.
    pub text: String,
    /// The call failed.
    pub is_error: bool,
}

impl ToolOutput {
    /// A result.
    pub fn of(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: false }
    }

    /// A failure.
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true }
    }
}

/// The tools of a session.
#[async_trait]
pub trait Tools: Send + Sync {
    /// The tools that a model may call.
    fn specs(&self) -> Vec<ToolSpec>;

    /// Runs a call. It may be run again by a successor (I7). Dropping the future stops it.
    async fn call(&self, call: &ToolCall) -> ToolOutput;
}
