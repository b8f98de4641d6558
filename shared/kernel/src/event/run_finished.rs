//! One attempt's summary (V4). Bookkeeping, not a message: it never enters a context.

use serde_json::Value;

use super::Payload;
use crate::refusal::Refusal;

/// A checked `run.finished`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFinished;

/// The members that count something.
const COUNTERS: [&str; 10] = [
    "turns",
    "tokens",
    "inputTokens",
    "outputTokens",
    "totalTokens",
    "cacheReadTokens",
    "cacheWriteTokens",
    "toolCalls",
    "attempt",
    "durationMs",
];

impl RunFinished {
    /// V4: `status` one of done, failed, cancelled; counters non-negative integers when present; `toolTimings` an array
    /// of objects, never null.
    pub fn read(payload: &Payload) -> Result<Self, Refusal> {
        if !matches!(payload.get("status").and_then(Value::as_str), Some("done" | "failed" | "cancelled")) {
            return Err(Refusal::invalid("V4", "/status", "must be \"done\", \"failed\" or \"cancelled\""));
        }
        for counter in COUNTERS {
            // `tokens` may also be an object with a count for each kind of token: that is checked below.
            if counter != "tokens" || !payload.get(counter).is_some_and(Value::is_object) {
                payload.counter("V4", counter)?;
            }
        }
        if let Some(Value::Object(tokens)) = payload.get("tokens") {
            for (name, value) in tokens {
                if super::whole(value).is_none() {
                    return Err(Refusal::invalid(
                        "V4",
                        format!("/tokens/{name}"),
                        "must be a non-negative integer",
                    ));
                }
            }
        }
        let timings =
            payload.optional("V4", "toolTimings", "must be an array of objects", Value::as_array)?;
        if let Some(at) = timings.and_then(|timings| timings.iter().position(|timing| !timing.is_object())) {
            return Err(Refusal::invalid("V4", format!("/toolTimings/{at}"), "must be an object"));
        }
        Ok(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v4_status_counters_and_timings_have_their_types() {
        for (text, pointer) in [
            (r#"{}"#, "/status"),
            (r#"{"status":"ok"}"#, "/status"),
            (r#"{"status":"done","turns":-1}"#, "/turns"),
            (r#"{"status":"done","durationMs":1.5}"#, "/durationMs"),
            (r#"{"status":"done","tokens":{"input":-1}}"#, "/tokens/input"),
            (r#"{"status":"done","toolTimings":null}"#, "/toolTimings"),
            (r#"{"status":"done","toolTimings":[{},1]}"#, "/toolTimings/1"),
        ] {
            match RunFinished::read(&Payload::parse(text).unwrap()) {
                Err(Refusal::Invalid { rule, fault }) => {
                    assert_eq!((rule.0, fault.pointer.as_str()), ("V4", pointer), "{text}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
        let good =
            r#"{"status":"cancelled","turns":0,"tokens":{"input":3,"output":4},"toolTimings":[{"ms":1}]}"#;
        assert!(RunFinished::read(&Payload::parse(good).unwrap()).is_ok());
    }
}
