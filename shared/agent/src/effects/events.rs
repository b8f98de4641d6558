//! The events that an attempt commits.

use keel_kernel::event::ToolCall;
use keel_kernel::{DedupeKey, KeyName, Kind, NewEvent, Payload, Seq};
use serde_json::{Value, json};

use super::{PartialAnswer, Ports, RunContext, Tally};
use crate::provider::{Block, ModelAnswer, StopReason};
use crate::tool::ToolOutput;

/// The longest text that goes into an event whole, in bytes of JSON: less than a payload may have, so that there is room for
/// the other members.
const TEXT_MAX: usize = 200 * 1024;
/// Marks where a text was cut.
const CUT: &str = "\n[cut]";
/// The longest name, in bytes of JSON.
const NAME_MAX: usize = 128;
/// How many tools a summary lists one by one; the others are only counted.
pub(super) const TIMINGS_MAX: usize = 256;

/// The status in an attempt's run.finished (V4).
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

/// A text as a payload may hold it: without NUL, and cut to size.
pub(super) fn fit(text: &str) -> String {
    Fitting::text().whole(text, CUT)
}

/// A name, cut to the room that an event has for it.
pub(super) fn name(text: &str) -> String {
    Fitting { room: NAME_MAX, full: false }.whole(text, "…")
}

/// Room for a text in an event, taken piece by piece.
#[derive(Debug)]
pub(super) struct Fitting {
    room: usize,
    full: bool,
}

impl Fitting {
    pub(super) fn text() -> Self {
        Self { room: TEXT_MAX, full: false }
    }

    /// As much of the next piece as there is room for, as a payload may hold it.
    pub(super) fn take(&mut self, text: &str) -> String {
        let mut fitting = String::with_capacity(text.len().min(self.room));
        for char in text.chars() {
            let char = if char == '\0' { char::REPLACEMENT_CHARACTER } else { char };
            self.full |= spelled(char) > self.room;
            if self.full {
                break;
            }
            self.room -= spelled(char);
            fitting.push(char);
        }
        fitting
    }

    /// Whether some text had no room.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    fn whole(mut self, text: &str, mark: &str) -> String {
        let mut fitting = self.take(text);
        if self.full {
            fitting.push_str(mark);
        }
        fitting
    }
}

/// How many bytes a character takes in JSON.
fn spelled(char: char) -> usize {
    match char {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        control if control < ' ' => 6,
        other => other.len_utf8(),
    }
}

/// An answer, or a failure to give one (A1: `presented` is the snapshot its request was prepared from).
pub(super) fn assistant(
    run: &RunContext,
    ports: &Ports<'_>,
    generation_id: &str,
    answer: &ModelAnswer,
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

/// The text so far of a generation that was stopped. It answers nothing (A2), and names what its request presented (A1).
pub(super) fn aborted(run: &RunContext, ports: &Ports<'_>, partial_answer: &PartialAnswer) -> NewEvent {
    let text = format!("{}{}", partial_answer.text, if partial_answer.cut { CUT } else { "" });
    let content = if text.is_empty() { Vec::new() } else { vec![Block::Text { text }] };
    let answer =
        ModelAnswer { content, stop_reason: StopReason::Aborted, ..ModelAnswer::failed("cancelled") };
    assistant(run, ports, &partial_answer.generation_id, &answer, &partial_answer.presented)
        .expect("its text was made to fit")
}

/// A tool's result. The ledger holds one per call (I7).
pub(super) fn tool_result(call: &ToolCall, output: &ToolOutput) -> NewEvent {
    let payload = json!({
        "toolCallId": call.id,
        "toolName": name(&call.name),
        "content": [{ "type": "text", "text": fit(&output.text) }],
        "isError": output.is_error,
    });
    event(Kind::ToolResult, &payload, Some((KeyName::ToolCallId, call.id.clone())))
        .expect("its text was made to fit")
}

/// The summary of an attempt that could not begin (S1, V4).
pub fn not_begun(attempt: u32, why: &str) -> NewEvent {
    let payload = json!({ "status": "failed", "attempt": attempt, "turns": 0, "error": fit(why) });
    event(Kind::RunFinished, &payload, None).expect("counters and short texts")
}

/// K: a compaction. Its summary was made to fit.
pub(super) fn compaction(payload: &Value) -> NewEvent {
    event(Kind::Compaction, payload, None).expect("its summary was made to fit")
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
        "toolCalls": tally.calls,
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
        for char in ["é", "\"", "\u{1}", "\n", "\u{7f}"] {
            let fitting = fit(&char.repeat(TEXT_MAX + 1));
            let spelled = serde_json::to_string(&fitting).unwrap().len();
            assert!(
                (TEXT_MAX - 6..=TEXT_MAX + 9).contains(&spelled) && fitting.ends_with("[cut]"),
                "{char:?}"
            );
        }
    }
}
