//! A tool's result (V3).

use super::{Payload, required_text};
use crate::ids::DedupeKey;
use crate::refusal::Refusal;

/// A checked `tool.result`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// The call it answers.
    pub tool_call_id: DedupeKey,
}

impl ToolResult {
    /// V3: the payload names its call. Whether that is the request's call and an open one is checked by the commit.
    pub fn read(payload: &Payload) -> Result<Self, Refusal> {
        let id = required_text("V3", payload, "toolCallId")?;
        let tool_call_id = DedupeKey::parse(id).map_err(|_| {
            Refusal::invalid("V3", "/toolCallId", "must be 1 to 128 visible ASCII characters")
        })?;
        Ok(Self { tool_call_id })
    }
}
