//! A model's answer (V2): the calls it asks for, the inputs it saw (A1), and whether it is an answer at all (A2).

use std::collections::BTreeSet;

use serde_json::Value;

use super::spent::Spent;
use super::{Payload, whole};
use crate::caps;
use crate::ids::{DedupeKey, Seq};
use crate::refusal::Refusal;

/// One tool call of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The call's id, unique in its session (V2).
    pub id: DedupeKey,
    /// The tool's name.
    pub name: String,
    /// The arguments as the model gave them.
    pub arguments: Value,
}

/// A checked `assistant.message`.
#[derive(Clone, Debug, PartialEq)]
pub struct AssistantMessage {
    /// A3: it ended in `error` or `aborted`; it answers nothing and never enters a context.
    pub failed: bool,
    /// It stopped at the token limit, so its calls may be cut (S4a).
    pub cut: bool,
    /// A1. `None` where the message carries no inputSeqs (A4).
    pub input_seqs: Option<Vec<Seq>>,
    /// The tool calls, in the order of the message.
    pub calls: Vec<ToolCall>,
    /// H5: what its request cost.
    pub spent: Spent,
}

impl AssistantMessage {
    /// V2: every `toolCall` block has a non-empty id and name, no id twice; `inputSeqs` an array of positive integers,
    /// none twice; `stopReason` a string.
    pub fn read(payload: &Payload) -> Result<Self, Refusal> {
        let stop = payload.string("V2", "stopReason")?.unwrap_or_default();
        let failed = matches!(stop, "error" | "aborted");
        Ok(Self {
            failed,
            cut: matches!(stop, "max_tokens" | "length"),
            input_seqs: input_seqs(payload)?,
            calls: calls(payload)?,
            spent: Spent::read(payload),
        })
    }
}

fn input_seqs(payload: &Payload) -> Result<Option<Vec<Seq>>, Refusal> {
    let Some(array) =
        payload.optional("A1", "inputSeqs", "must be an array of positive integers", Value::as_array)?
    else {
        return Ok(None);
    };
    let mut seen = BTreeSet::new();
    let mut seqs = Vec::with_capacity(array.len());
    for (index, value) in array.iter().enumerate() {
        match whole(value) {
            Some(seq) if seq > 0 && seen.insert(seq) => seqs.push(Seq(seq)),
            Some(seq) if seq > 0 => {
                return Err(Refusal::invalid(
                    "A1",
                    format!("/inputSeqs/{index}"),
                    format!("names {seq} a second time"),
                ));
            }
            _ => {
                return Err(Refusal::invalid(
                    "A1",
                    format!("/inputSeqs/{index}"),
                    "must be a positive integer",
                ));
            }
        }
    }
    Ok(Some(seqs))
}

fn calls(payload: &Payload) -> Result<Vec<ToolCall>, Refusal> {
    let blocks = match payload.get("content") {
        None | Some(Value::String(_)) => return Ok(Vec::new()),
        Some(Value::Array(blocks)) => blocks,
        Some(_) => return Err(Refusal::invalid("V2", "/content", "must be a string or an array of blocks")),
    };
    let mut seen = BTreeSet::new();
    let mut calls = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        if !block.is_object() {
            return Err(Refusal::invalid("V2", format!("/content/{index}"), "must be an object"));
        }
        if block.get("type").and_then(Value::as_str) != Some("toolCall") {
            continue;
        }
        let text = |member: &str| block.get(member).and_then(Value::as_str).filter(|text| !text.is_empty());
        let id = text("id").and_then(|id| DedupeKey::parse(id).ok()).ok_or_else(|| {
            Refusal::invalid(
                "V2",
                format!("/content/{index}/id"),
                "must be 1 to 128 visible ASCII characters",
            )
        })?;
        let name = text("name").ok_or_else(|| {
            Refusal::invalid("V2", format!("/content/{index}/name"), "must be a non-empty string")
        })?;
        if !seen.insert(id.clone()) {
            return Err(Refusal::invalid(
                "V2",
                format!("/content/{index}/id"),
                "stands twice in this message",
            ));
        }
        if seen.len() > caps::CALLS_PER_MESSAGE {
            return Err(Refusal::LimitReached {
                what: "tool calls in one message",
                limit: caps::CALLS_PER_MESSAGE,
            });
        }
        let arguments = block.get("arguments").cloned().unwrap_or(Value::Null);
        calls.push(ToolCall { id, name: name.to_owned(), arguments });
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<AssistantMessage, Refusal> {
        AssistantMessage::read(&Payload::parse(text).unwrap())
    }

    #[test]
    fn v2_calls_have_ids_and_names_and_no_id_twice() {
        for (text, pointer) in [
            (r#"{"content":[{"type":"toolCall","name":"a"}]}"#, "/content/0/id"),
            (r#"{"content":[{"type":"toolCall","id":"","name":"a"}]}"#, "/content/0/id"),
            (r#"{"content":[{"type":"text"},{"type":"toolCall","id":"1","name":""}]}"#, "/content/1/name"),
            (
                r#"{"content":[{"type":"toolCall","id":"1","name":"a"},{"type":"toolCall","id":"1","name":"b"}]}"#,
                "/content/1/id",
            ),
            (r#"{"content":7}"#, "/content"),
            (r#"{"content":["x"]}"#, "/content/0"),
            (r#"{"stopReason":1}"#, "/stopReason"),
            (r#"{"inputSeqs":"1"}"#, "/inputSeqs"),
            (r#"{"inputSeqs":[1,0]}"#, "/inputSeqs/1"),
            (r#"{"inputSeqs":[1,1]}"#, "/inputSeqs/1"),
        ] {
            match read(text) {
                Err(Refusal::Invalid { fault, .. }) => assert_eq!(fault.pointer, pointer, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn a2_error_and_aborted_are_not_answers() {
        assert!(read(r#"{"stopReason":"error"}"#).unwrap().failed);
        assert!(read(r#"{"stopReason":"aborted"}"#).unwrap().failed);
        for stop in ["end_turn", "tool_use", "max_tokens", "stop"] {
            assert!(!read(&format!(r#"{{"stopReason":"{stop}"}}"#)).unwrap().failed, "{stop}");
        }
    }
}
