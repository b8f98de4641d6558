//! People, who look at open decisions now and then and answer them: allow, deny or edit. And the tool that needs their
//! consent.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use keel_agent::Tools;
use keel_agent::tool::builtin::Builtin;
use keel_agent::tool::policy::ApprovalRule as Asks;
use keel_agent::tool::{Policy, ToolOutput, ToolSpec};
use keel_kernel::decision::{DecisionAnswer, DecisionState, Verdict};
use keel_kernel::event::ToolCall;
use keel_ledger::{LedgerError, SessionKey};
use serde_json::json;

use crate::history::{Answered, History};
use crate::world::World;

/// The tool whose every call needs a person's consent.
pub(crate) const PAY: &str = "pay";

/// The builtin tools, and one that needs consent. It records the arguments of its calls (H3).
pub(crate) struct Asking {
    pub(crate) builtin: Builtin,
    pub(crate) history: Arc<History>,
}

#[async_trait]
impl Tools for Asking {
    fn specs(&self) -> Vec<ToolSpec> {
        let mut specs = self.builtin.specs();
        specs.push(ToolSpec {
            name: PAY.to_owned(),
            description: String::new(),
            parameters: json!({ "type": "object" }),
            policy: Policy { approval: Asks::Always, approval_ms: 90_000, ..Policy::default() },
        });
        specs
    }

    async fn call(&self, call: &ToolCall) -> ToolOutput {
        if call.name == PAY {
            self.history.records().paid.push(call.arguments.clone());
            return ToolOutput::of(call.arguments.to_string());
        }
        self.builtin.call(call).await
    }
}

/// A person's whole life: until everything is at rest.
pub(crate) async fn live(world: Arc<World>, number: u64) {
    let process = world.process("person", number);
    let mut rng = world.rng.fork(&format!("person-{number}"));
    while !world.is_at_rest() {
        let wait = if world.is_calm() { rng.pick(1_000..=3_000) } else { rng.pick(500..=30_000) };
        tokio::time::sleep(Duration::from_millis(wait)).await;
        for at in world.family().await {
            let Ok(decisions) = process.ledger.decisions(&at).await else { continue };
            for decision in decisions {
                let now = process.ledger.env().now();
                if !matches!(decision.state(now), DecisionState::Open(_))
                    || (!world.is_calm() && rng.chance(300))
                {
                    continue;
                }
                // A person who takes time may find that another has answered, or that the run has ended.
                if !world.is_calm() && rng.chance(500) {
                    tokio::time::sleep(Duration::from_millis(rng.pick(0..=20_000))).await;
                }
                let now = process.ledger.env().now();
                let verdict = match rng.pick(0..=2) {
                    0 => Verdict::Allow,
                    1 => Verdict::Deny,
                    _ => {
                        let mut arguments = decision.arguments.clone();
                        arguments["edited"] = json!(true);
                        Verdict::Edit { arguments }
                    }
                };
                let said =
                    Answered { id: decision.id.clone(), by: process.name.clone(), verdict: verdict.clone() };
                let answer =
                    DecisionAnswer { verdict, comment: None, by: process.name.clone(), at_ms: now.0 };
                let answered =
                    process.ledger.answer_decision(&at, &decision.id, &decision.digest, &answer).await;
                if matches!(answered, Ok((_, true))) {
                    world.history.records().answered.push(said);
                }
                told(&world.history, &at, &answered.map(|(_, created)| created));
            }
        }
    }
}

fn told(history: &History, at: &SessionKey, answered: &Result<bool, LedgerError>) {
    match answered {
        Ok(true) => history.mark("a decision was answered", at),
        Ok(false) => history.mark("a decision was answered again", at),
        // Another person has answered, the run has ended, the decision has expired, or the store failed.
        Err(error) => history.mark("a decision was not taken", format_args!("{at}: {error}")),
    }
}
