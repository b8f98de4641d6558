//! The port for what a run may have to wait for (H): decisions, child sessions, budgets.

use async_trait::async_trait;
use keel_kernel::event::ToolCall;
use keel_kernel::{Millis, WaitReason};
use serde_json::Value;

use crate::provider::Usage;
use crate::session_port::SessionPortError;
use crate::tool::ToolOutput;

/// The state of an open call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallState {
    /// It may run: as it is, or with these arguments (H3).
    Ready(Option<Value>),
    /// Its result is known without running it: denied, expired, or given by a child.
    Known(ToolOutput),
    /// Its decision must be opened, or its child begun.
    Unopened,
    /// It waits, until this moment at the latest.
    Waits(WaitReason, Option<Millis>),
}

/// What runs wait for.
#[async_trait]
pub trait Waits: Send + Sync {
    /// The present state of each of these calls. A later change is not missed: see [`park`](Self::park).
    async fn call_states(&self, calls: &[ToolCall]) -> Result<Vec<CallState>, SessionPortError>;

    /// Opens a call's decision, or begins its child. Doing it again is safe.
    async fn open(&self, call: &ToolCall) -> Result<(), SessionPortError>;

    /// H4: cancels the children of these calls and withdraws their decisions: the calls get error results.
    async fn abandon(&self, calls: &[ToolCall]) -> Result<(), SessionPortError>;

    /// H5: the budget that is reached, if one is.
    async fn budget_reached(&self) -> Result<Option<BudgetReached>, SessionPortError>;

    /// H5: counts what a request cost.
    async fn spend(&self, usage: Usage);

    /// H1: parks the run. False: it was nudged since the last look, so look again.
    async fn park(&self, reason: WaitReason, until: Option<Millis>) -> Result<bool, SessionPortError>;
}

/// H5: a budget is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetReached {
    /// When to look again if the run is not nudged before.
    pub until: Option<Millis>,
}

/// A session that never waits.
#[derive(Clone, Copy, Debug)]
pub struct NoWaits;

#[async_trait]
impl Waits for NoWaits {
    async fn call_states(&self, calls: &[ToolCall]) -> Result<Vec<CallState>, SessionPortError> {
        Ok(vec![CallState::Ready(None); calls.len()])
    }

    async fn open(&self, _call: &ToolCall) -> Result<(), SessionPortError> {
        Ok(())
    }

    async fn abandon(&self, _calls: &[ToolCall]) -> Result<(), SessionPortError> {
        Ok(())
    }

    async fn budget_reached(&self) -> Result<Option<BudgetReached>, SessionPortError> {
        Ok(None)
    }

    async fn spend(&self, _usage: Usage) {}

    async fn park(&self, _reason: WaitReason, _until: Option<Millis>) -> Result<bool, SessionPortError> {
        Ok(false)
    }
}
