//! A `Waits` whose state the tests set.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use keel_agent::provider::Usage;
use keel_agent::waits::BudgetReached;
use keel_agent::{CallState, SessionPortError, Waits};
use keel_kernel::event::ToolCall;
use keel_kernel::{LeaseToken, Millis, RunStatus, WaitReason, waiting};

use super::{Ledger, locked, refused};

pub(crate) struct MemoryWaits {
    ledger: Arc<Ledger>,
    token: LeaseToken,
    seen: Mutex<u64>,
}

impl MemoryWaits {
    pub(super) fn new(ledger: Arc<Ledger>, token: LeaseToken) -> Self {
        Self { ledger, token, seen: Mutex::new(0) }
    }

    fn look(&self) {
        *locked(&self.seen) = self.ledger.head().run.nudges;
    }
}

#[async_trait]
impl Waits for MemoryWaits {
    async fn call_states(&self, calls: &[ToolCall]) -> Result<Vec<CallState>, SessionPortError> {
        self.look();
        let outside = locked(&self.ledger.outside);
        let call_state = |call: &ToolCall| outside.call_states.get(&call.name).cloned();
        Ok(calls.iter().map(|call| call_state(call).unwrap_or(CallState::Ready(None))).collect())
    }

    async fn open(&self, call: &ToolCall) -> Result<(), SessionPortError> {
        let outside = &mut *locked(&self.ledger.outside);
        outside.opened.push(call.name.clone());
        outside.call_states.insert(call.name.clone(), CallState::Waits(WaitReason::Decision, None));
        Ok(())
    }

    async fn abandon(&self, calls: &[ToolCall]) -> Result<(), SessionPortError> {
        let names = calls.iter().map(|call| call.name.clone());
        locked(&self.ledger.outside).abandoned.extend(names);
        Ok(())
    }

    async fn budget_reached(&self) -> Result<Option<BudgetReached>, SessionPortError> {
        self.look();
        let spent = self.ledger.head().ledger.spent.tokens;
        let most = locked(&self.ledger.outside).budget;
        Ok(most.filter(|most| spent >= *most).map(|_| BudgetReached { until: None }))
    }

    async fn spend(&self, _usage: Usage) {}

    async fn park(&self, reason: WaitReason, until: Option<Millis>) -> Result<bool, SessionPortError> {
        let hook = locked(&self.ledger.before_park).pop_front();
        if let Some(hook) = hook {
            hook(&self.ledger);
        }
        let row = &mut *locked(&self.ledger.row);
        match waiting::park(&row.head, &self.token, *locked(&self.seen), reason, until).map_err(refused)? {
            Some(transition) => row.write(transition).map_err(refused)?,
            None => return Ok(false),
        }
        Ok(row.head.run.status == RunStatus::Waiting)
    }
}
