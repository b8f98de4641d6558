//! The tool calls of a turn: run side by side, each result committed when it comes (I7).

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use keel_kernel::event::ToolCall;
use serde_json::json;
use tokio::time::Instant;

use super::{Attempt, Interrupt, events, interrupted};
use crate::session_port::SessionPortError;
use crate::tool::{Policy, ToolOutput, Tools};

impl Attempt<'_> {
    /// Runs the calls. A call that is interrupted has no result: a successor runs it again, or a cancel gives it an error
    /// result.
    pub(super) async fn run_tools(
        &mut self,
        calls: &[ToolCall],
    ) -> Result<Option<Interrupt>, SessionPortError> {
        let tools = self.ports.tools;
        let specs = tools.specs();
        let policy = |call: &ToolCall| {
            specs
                .iter()
                .find(|spec| spec.name == call.name)
                .map(|spec| spec.policy.clone())
                .unwrap_or_default()
        };
        // Calls that may not run side by side share a lane, in the order of the message.
        let mut lanes: Vec<VecDeque<(&ToolCall, Policy)>> = Vec::new();
        let mut shared: VecDeque<(&ToolCall, Policy)> = VecDeque::new();
        for call in calls {
            let policy = policy(call);
            if policy.sequential {
                shared.push_back((call, policy));
            } else {
                lanes.push(VecDeque::from([(call, policy)]));
            }
        }
        lanes.push(shared);
        let mut running: FuturesUnordered<_> =
            lanes.into_iter().filter_map(|lane| run_first(tools, lane)).collect();
        let mut signals = self.signals.clone();
        let mut stop = Box::pin(interrupted(&mut signals));
        loop {
            tokio::select! {
                biased;
                interrupt = &mut stop => return interrupt.map(Some),
                done = running.next() => {
                    let Some(Ran { call, output, took, rest }) = done else { return Ok(None) };
                    running.extend(run_first(tools, rest));
                    self.ports.session.commit(vec![events::tool_result(call, &output)]).await?;
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

/// A call that has run, and the calls behind it in its lane.
struct Ran<'a> {
    call: &'a ToolCall,
    output: ToolOutput,
    took: Duration,
    rest: VecDeque<(&'a ToolCall, Policy)>,
}

/// Runs the first call of a lane, within its time.
fn run_first<'a>(
    tools: &'a dyn Tools,
    mut lane: VecDeque<(&'a ToolCall, Policy)>,
) -> Option<impl Future<Output = Ran<'a>>> {
    let (call, policy) = lane.pop_front()?;
    Some(async move {
        let started = Instant::now();
        let output = if call.arguments.is_object() || call.arguments.is_null() {
            let time = Duration::from_millis(policy.timeout_ms);
            tokio::time::timeout(time, tools.call(call)).await.unwrap_or_else(|_| {
                ToolOutput::error(format!("the tool did not answer within {} ms", policy.timeout_ms))
            })
        } else {
            ToolOutput::error("not run: the arguments are no JSON object")
        };
        Ran { call, output, took: started.elapsed(), rest: lane }
    })
}
