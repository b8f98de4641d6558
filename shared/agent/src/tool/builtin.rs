//! A few harmless tools, for trying Keel out and for its tests.

use std::time::Duration;

use async_trait::async_trait;
use keel_kernel::event::ToolCall;
use serde_json::{Value, json};

use super::{Policy, ToolOutput, ToolSpec, Tools};

/// `echo`, `sleep`, `fail` and `clock`.
pub struct Builtin {
    /// What the clock says.
    now: Box<dyn Fn() -> String + Send + Sync>,
}

/// The longest sleep, in milliseconds.
const SLEEP_MAX_MS: u64 = 600_000;

impl Builtin {
    /// The tools, with this clock.
    pub fn new(now: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { now: Box::new(now) }
    }
}

#[async_trait]
impl Tools for Builtin {
    fn specs(&self) -> Vec<ToolSpec> {
        let spec = |name: &str, description: &str, properties: Value| ToolSpec {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: json!({ "type": "object", "properties": properties }),
            policy: Policy { timeout_ms: 2 * SLEEP_MAX_MS, ..Policy::default() },
        };
        vec![
            spec("echo", "Returns its arguments.", json!({})),
            spec("sleep", "Waits.", json!({ "ms": { "type": "integer", "minimum": 0 } })),
            spec("fail", "Fails.", json!({ "message": { "type": "string" } })),
            spec("clock", "Tells the time.", json!({})),
        ]
    }

    async fn call(&self, call: &ToolCall) -> ToolOutput {
        match call.name.as_str() {
            "echo" => ToolOutput::of(call.arguments.to_string()),
            "sleep" => {
                let ms = call.arguments["ms"].as_u64().unwrap_or(0).min(SLEEP_MAX_MS);
                tokio::time::sleep(Duration::from_millis(ms)).await;
                ToolOutput::of(format!("slept {ms} ms"))
            }
            "fail" => ToolOutput::error(call.arguments["message"].as_str().unwrap_or("it failed")),
            "clock" => ToolOutput::of((self.now)()),
            unknown => ToolOutput::error(format!("there is no tool {unknown:?}")),
        }
    }
}
