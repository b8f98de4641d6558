//! The tools of a turn: side by side, each result committed as it comes (I7).

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use keel_kernel::event::ToolCall;
use serde_json::json;
use tokio::time::Instant;

use super::{Attempt, Interrupt, events, interrupted};
use crate::desk::DeskError;
use crate::tool::ToolOutput;

impl Attempt<'_> {
    /// Runs the calls. What an interrupt stops has no result: a successor runs it again, or a cancel answers it.
    pub(super) async fn run_tools(&mut self, calls: &[ToolCall]) -> Result<Option<Interrupt>, DeskError> {
        let tools = self.ports.tools;
        let mut running: FuturesUnordered<_> = calls
            .iter()
            .map(|call| async move {
                let started = Instant::now();
                let output = match call.arguments.is_object() || call.arguments.is_null() {
                    true => tools.call(call).await,
                    false => ToolOutput::error("not run: the arguments are no JSON object"),
                };
                (call, output, started.elapsed())
            })
            .collect();
        let mut signals = self.signals.clone();
        let mut stop = Box::pin(interrupted(&mut signals));
        loop {
            tokio::select! {
                biased;
                interrupt = &mut stop => return interrupt.map(Some),
                done = running.next() => {
                    let Some((call, output, took)) = done else { return Ok(None) };
                    self.ports.desk.commit(vec![events::tool_result(call, &output)]).await?;
                    self.tally.calls += 1;
                    if self.tally.timings.len() < events::TIMINGS_MAX {
                        self.tally.timings.push(json!({
                            "toolCallId": call.id,
                            "name": events::name(&call.name),
                            "durationMs": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                            "isError": output.is_error,
                        }));
                    }
                }
            }
        }
    }
}
