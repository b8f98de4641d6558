//! The events an attempt commits, as payloads.

use keel_kernel::event::ToolCall;
use keel_kernel::{DedupeKey, KeyName, Kind, NewEvent, Payload, Seq};
use serde_json::{Value, json};

use super::{Ports, RunContext, Tally};
use crate::provider::{Answer, Block, StopReason};
use crate::tool::ToolOutput;

/// The most of a text that goes into an event whole, in bytes. What a payload may hold, with room for the rest of it.
const TEXT_MAX: usize = 200 * 1024;

/// What an attempt's summary says it came to (V4).
#[derive(Clone, Copy, Debug)]
pub(super) enum Status {
    Done,
    Failed,
    Cancelled,
}

fn event(
    kind: Kind,
    payload: &Value,
    key: Option<(KeyName, DedupeKey)>,
) -> Result<NewEvent, keel_kernel::Refusal> {
    Ok(NewEvent { kind, payload: Payload::from_value(payload)?, key })
}

/// A text without what a payload may not hold, cut to what it can.
pub(super) fn fit(text: &str) -> String {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let cut = &text[..end];
    let mut fitting = cut.replace('\0', "\u{fffd}");
    if end < text.len() {
        fitting.push_str("\n[cut]");
    }
    fitting
}

/// An answer, or a failure to give one (A1: `presented` is the snapshot its request was prepared from).
pub(super) fn assistant(
    run: &RunContext,
    ports: &Ports<'_>,
    generation_id: &str,
    answer: &Answer,
    presented: &[Seq],
) -> Result<NewEvent, keel_kernel::Refusal> {
    let mut payload = json!({
        "role": "assistant",
        "generationId": generation_id,
        "provider": ports.provider.name(),
        "model": ports.provider.model(run.model.as_deref()),
        "content": answer.content,
        "inputSeqs": presented,
        "stopReason": answer.stop_reason,
        "usage": answer.usage,
    });
    if let Some(error) = &answer.error {
        payload["error"] = json!(fit(error));
    }
    let key = DedupeKey::parse(generation_id).ok().map(|key| (KeyName::GenerationId, key));
    event(Kind::AssistantMessage, &payload, key)
}

/// What a stopped model had said so far. It answers nothing (A2).
pub(super) fn aborted(
    run: &RunContext,
    ports: &Ports<'_>,
    generation_id: &str,
    said: &str,
    presented: &[Seq],
) -> NewEvent {
    let text = fit(said);
    let content = if text.is_empty() { Vec::new() } else { vec![Block::Text { text }] };
    let answer = Answer { content, stop_reason: StopReason::Aborted, ..Answer::failed("cancelled") };
    assistant(run, ports, generation_id, &answer, presented).expect("its text was made to fit")
}

/// A tool's result. The ledger holds one per call (I7).
pub(super) fn tool_result(call: &ToolCall, output: &ToolOutput) -> NewEvent {
    let payload = json!({
        "toolCallId": call.id,
        "toolName": call.name,
        "content": [{ "type": "text", "text": fit(&output.text) }],
        "isError": output.is_error,
    });
    event(Kind::ToolResult, &payload, Some((KeyName::ToolCallId, call.id.clone())))
        .expect("its text was made to fit")
}

/// The attempt's summary (S1, V4).
pub(super) fn run_finished(
    run: &RunContext,
    ports: &Ports<'_>,
    tally: &Tally,
    status: Status,
    error: Option<&str>,
) -> NewEvent {
    let status = match status {
        Status::Done => "done",
        Status::Failed => "failed",
        Status::Cancelled => "cancelled",
    };
    let duration = u64::try_from(tally.started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut payload = json!({
        "status": status,
        "attempt": run.attempt,
        "turns": tally.turns,
        "provider": ports.provider.name(),
        "model": ports.provider.model(run.model.as_deref()),
        "tokens": tally.usage,
        "toolTimings": tally.timings,
        "durationMs": duration,
    });
    if let Some(stop) = tally.stop {
        payload["stopReason"] = json!(stop);
    }
    if let Some(error) = error {
        payload["error"] = json!(fit(error));
    }
    event(Kind::RunFinished, &payload, None).expect("counters and short texts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_made_to_fit() {
        assert_eq!(fit("a\0b"), "a\u{fffd}b");
        let long = "é".repeat(TEXT_MAX);
        let fitting = fit(&long);
        assert!(fitting.len() <= TEXT_MAX + 6 && fitting.ends_with("[cut]"));
    }
}
