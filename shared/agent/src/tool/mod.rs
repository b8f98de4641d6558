//! Tools, behind one small port. A tool that fails, or that nobody knows, gives an error result: the model sees it and
//! goes on.

pub mod builtin;
pub mod policy;

use async_trait::async_trait;
use keel_kernel::event::ToolCall;
use serde_json::Value;

pub use policy::Policy;

/// A tool as a model is told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
    /// How it may be used. The model is not told.
    pub policy: Policy,
}

/// What a tool gave.
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
    /// What is on offer.
    fn specs(&self) -> Vec<ToolSpec>;

    /// Runs a call. It may be run again by a successor (I7). Dropping the future stops it.
    async fn call(&self, call: &ToolCall) -> ToolOutput;
}
