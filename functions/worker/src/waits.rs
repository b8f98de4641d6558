//! What a run may have to wait for (H), over the ledger: decisions, children, budgets. No event is missed between a look
//! and the park: the nudges are read before the look (H1).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use keel_agent::provider::Usage;
use keel_agent::tool::{Policy, ToolOutput};
use keel_agent::waits::BudgetReached;
use keel_agent::{CallState, SessionPortError, Waits};
use keel_kernel::budget::Budget;
use keel_kernel::decision::{self, Decision, DecisionAnswer, Verdict};
use keel_kernel::event::{Spent, ToolCall, micros};
use keel_kernel::{LeaseToken, Millis, Refusal, SessionDescription, WaitReason};
use keel_ledger::port::Consistency;
use keel_ledger::{Ledger, LedgerError, SessionKey, TenantStore};
use keel_settings::month;

use crate::children::{self, Children};
use crate::ledger_session_port::{Known, port_error};

/// How long a run that has reached its tenant's budget waits before it looks again, in milliseconds. Nothing nudges it.
const TENANT_LOOK_MS: u64 = 300_000;

pub(crate) struct SessionWaits {
    pub(crate) ledger: Ledger,
    pub(crate) tenants: TenantStore,
    pub(crate) at: SessionKey,
    pub(crate) token: LeaseToken,
    pub(crate) description: Option<SessionDescription>,
    pub(crate) known: Arc<Known>,
    /// The policies, by tool.
    pub(crate) policies: BTreeMap<String, Policy>,
    pub(crate) tenant: Option<TenantSpending>,
    /// The number of nudges in the head that was read before the last look (H1).
    seen: Mutex<u64>,
}

/// H5: the tenant's budget, and what of it is known to be spent.
pub(crate) struct TenantSpending {
    budget: Budget,
    spent: Mutex<Spent>,
}

impl TenantSpending {
    pub(crate) fn new(budget: Budget, spent: Spent) -> Self {
        Self { budget, spent: Mutex::new(spent) }
    }

    fn is_reached(&self) -> bool {
        self.budget.is_reached(*self.spent.lock())
    }
}

impl SessionWaits {
    pub(crate) fn new(
        (ledger, tenants): (&Ledger, &TenantStore),
        (at, token, description): (&SessionKey, &LeaseToken, Option<SessionDescription>),
        known: Arc<Known>,
        policies: BTreeMap<String, Policy>,
        tenant: Option<TenantSpending>,
    ) -> Self {
        let (ledger, tenants) = (ledger.clone(), tenants.clone());
        let seen = Mutex::new(known.get().run.nudges);
        Self {
            ledger,
            tenants,
            at: at.clone(),
            token: token.clone(),
            description,
            known,
            policies,
            tenant,
            seen,
        }
    }

    fn children(&self) -> Children<'_> {
        Children { ledger: &self.ledger, parent: &self.at, own: self.description.as_ref() }
    }

    /// H1: reads the head, to be done before anything that the run may wait for is looked at.
    async fn look(&self) -> Result<(), SessionPortError> {
        let head = self.ledger.head(&self.at).await.map_err(port_error)?;
        *self.seen.lock() = head.run.nudges;
        self.known.remember(head);
        Ok(())
    }

    fn policy(&self, call: &ToolCall) -> Policy {
        self.policies.get(&call.name).cloned().unwrap_or_default()
    }

    /// H2: removes a decision that nobody answered in time from the tenant's list.
    async fn withdraw(&self, id: &str) -> Result<(), SessionPortError> {
        let found = self.ledger.decision(&self.at, id, Consistency::Strong).await.map_err(port_error)?;
        let Some(decision) = found else { return Ok(()) };
        let withdrawn = self.ledger.withdraw_decision(&self.at, self.known.get(), &decision).await;
        withdrawn.map_err(port_error)
    }

    /// `planned`: how many children the calls before this one are still to begin.
    async fn call_state(&self, call: &ToolCall, planned: usize) -> Result<CallState, SessionPortError> {
        let policy = self.policy(call);
        if policy.asks(&call.arguments) {
            let id = Decision::id_of(&self.at.session, &call.id);
            let found = self.ledger.decision(&self.at, &id, Consistency::Strong).await;
            let Some(decision) = found.map_err(port_error)? else {
                return Ok(CallState::Unopened);
            };
            return Ok(match decision.state(self.ledger.env().now()) {
                decision::DecisionState::Open(until) => CallState::Waits(WaitReason::Decision, Some(until)),
                decision::DecisionState::Answered(answer) => given(answer),
                decision::DecisionState::Expired => {
                    let withdrawn =
                        self.ledger.withdraw_decision(&self.at, self.known.get(), &decision).await;
                    withdrawn.map_err(port_error)?;
                    CallState::Known(ToolOutput::error("not run: nobody agreed to it in time"))
                }
            });
        }
        if call.name == children::NAME {
            return self.children().call_state(call, &self.known.get(), planned).await;
        }
        Ok(CallState::Ready(None))
    }
}

/// What a person's answer means for a call (H2, H3).
fn given(answer: &DecisionAnswer) -> CallState {
    let comment = answer.comment.as_deref().map_or(String::new(), |comment| format!(": {comment}"));
    match &answer.verdict {
        Verdict::Allow => CallState::Ready(None),
        Verdict::Edit { arguments } => CallState::Ready(Some(arguments.clone())),
        Verdict::Deny => CallState::Known(ToolOutput::error(format!("not run: a person said no{comment}"))),
    }
}

#[async_trait]
impl Waits for SessionWaits {
    async fn call_states(&self, calls: &[ToolCall]) -> Result<Vec<CallState>, SessionPortError> {
        let may_wait =
            |call: &ToolCall| call.name == children::NAME || self.policy(call).asks(&call.arguments);
        if !calls.iter().any(may_wait) {
            return Ok(vec![CallState::Ready(None); calls.len()]); // nothing is read where no call can wait
        }
        self.look().await?;
        let mut call_states = Vec::with_capacity(calls.len());
        let mut planned = 0;
        for call in calls {
            let state = self.call_state(call, planned).await?;
            if call.name == children::NAME && matches!(state, CallState::Unopened) {
                planned += 1;
            }
            call_states.push(state);
        }
        Ok(call_states)
    }

    async fn open(&self, call: &ToolCall) -> Result<(), SessionPortError> {
        let policy = self.policy(call);
        if !policy.asks(&call.arguments) {
            return self.children().begin(call, &self.known.get()).await;
        }
        let (known, for_ms) = (self.known.get(), policy.approval_ms);
        self.ledger.open_decision(&self.at, known, &self.token, call, for_ms).await.map_err(port_error)
    }

    async fn abandon(&self, calls: &[ToolCall]) -> Result<(), SessionPortError> {
        for call in calls {
            if call.name == children::NAME {
                self.children().cancel(call).await?;
            }
            if !self.policy(call).asks(&call.arguments) {
                continue;
            }
            let id = Decision::id_of(&self.at.session, &call.id);
            let answer = DecisionAnswer {
                verdict: Verdict::Deny,
                comment: Some("the run was cancelled".to_owned()),
                by: "keel".to_owned(),
                at_ms: self.ledger.env().now().0,
            };
            let digest = decision::digest_of(&call.arguments);
            match self.ledger.answer_decision(&self.at, &id, &digest, &answer).await {
                Ok(_) => {}
                Err(LedgerError::Refused(Refusal::DecisionExpired)) => self.withdraw(&id).await?,
                Err(LedgerError::Refused(_)) => {} // it was never opened, or is answered
                Err(error) => return Err(port_error(error)),
            }
        }
        Ok(())
    }

    async fn budget_reached(&self) -> Result<Option<BudgetReached>, SessionPortError> {
        if self.known.get().is_spent() {
            self.look().await?;
            if self.known.get().is_spent() {
                return Ok(Some(BudgetReached { until: None }));
            }
        }
        if self.tenant.as_ref().is_some_and(TenantSpending::is_reached) {
            self.look().await?;
            let until = self.ledger.env().now().plus(TENANT_LOOK_MS);
            return Ok(Some(BudgetReached { until: Some(until) }));
        }
        Ok(None)
    }

    async fn spend(&self, usage: Usage) {
        let Some(tenant) = &self.tenant else { return };
        let spent = Spent { tokens: usage.input + usage.output, micros: usage.cost_usd.map_or(0, micros) };
        let month = month(self.ledger.env().now());
        match self.tenants.spend(&self.at.tenant, &month, spent).await {
            Ok(sum) => *tenant.spent.lock() = sum,
            Err(error) => {
                // It is not tried again, since it may have been counted, and must not count twice. So a tenant may exceed
                // its budget by one answer.
                tenant.spent.lock().add(spent);
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "what an answer cost may not be counted in the tenant's budget"
                );
            }
        }
    }

    async fn park(&self, reason: WaitReason, until: Option<Millis>) -> Result<bool, SessionPortError> {
        let seen = *self.seen.lock();
        self.ledger.park(&self.at, &self.token, seen, reason, until).await.map_err(port_error)
    }
}
