//! Mutations: ways to break the rules, each of which the checks must notice. They are made here, between the ledger's loop
//! and the store, so the product has no switch for them.
//!
//! A settle without the condition on the seq needs care. Our settle appends its run.finished in the same transaction, and
//! the put of that event fails where the seq has moved, even without the condition. S4 can be broken only where the
//! outcome is written apart from the events. So the mutation does that: it writes the last events first, and then the
//! outcome without the condition.

use std::time::Duration;

use async_trait::async_trait;
use keel_kernel::decision::Decision;
use keel_kernel::{Guard, Head, SideRow, Transition};
use keel_ledger::dynamo::Dynamo;
use keel_ledger::plan::plan;
use keel_ledger::port::{SessionKey, Store, StoreError, Written};
use keel_ledger::store_layer::StoreLayer;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// C2: owners write without the condition on owner and epoch.
    NoEpochCondition,
    /// I2: no dedupe key is taken.
    NoKeyPut,
    /// S4: the run's outcome is written without the condition on the seq.
    NoSeqInSettle,
    /// I8: a session is made without the condition that there is none.
    NoAbsenceInCreate,
    /// H2: an answer is written without the condition that nobody has answered, and without making the run pending.
    NoOpenInAnswer,
    /// H4: a close sees no decisions of the session, and leaves them on the tenant's list.
    NoWithdrawalInClose,
    /// H4: a child's head does not record that its parent must be nudged about an end.
    NoEndForParent,
}

/// A store whose writes are broken in one way.
pub(crate) struct Sabotaged {
    /// The store.
    pub(crate) inner: Dynamo,
    /// How.
    pub(crate) mutation: Mutation,
}

fn is_settle(before: &Head, transition: &Transition) -> bool {
    transition.head.run.settled != before.run.settled
}

fn answers(transition: &Transition) -> bool {
    transition.rows.iter().any(|row| matches!(row, SideRow::AnswerDecision(_)))
}

impl Sabotaged {
    async fn settle(
        &self,
        at: &SessionKey,
        before: &Head,
        transition: &Transition,
        token: &str,
    ) -> Result<Written, StoreError> {
        let mut outcome = transition.clone();
        outcome.guards.retain(|guard| !matches!(guard, Guard::Seq(_)));
        if transition.events.is_empty() {
            return self.inner.write(at, Some(before), &outcome, token).await;
        }
        let mut events = transition.clone();
        events.head = Head {
            ledger: transition.head.ledger.clone(),
            finished: transition.head.finished,
            ..before.clone()
        };
        match self.inner.write(at, Some(before), &events, token).await? {
            Written::Committed => {}
            other => return Ok(other),
        }
        // As on a slow network, so that within a few hundred seeds something happens between the two writes.
        tokio::time::sleep(Duration::from_millis(300)).await;
        (outcome.events, outcome.keys, outcome.new_calls) = (Vec::new(), Vec::new(), Vec::new());
        self.inner.write(at, Some(&events.head), &outcome, token).await
    }
}

#[async_trait]
impl StoreLayer for Sabotaged {
    fn below(&self) -> &dyn Store {
        &self.inner
    }

    async fn write(
        &self,
        at: &SessionKey,
        before: Option<&Head>,
        transition: &Transition,
        token: &str,
    ) -> Result<Written, StoreError> {
        let mut broken = transition.clone();
        match (self.mutation, before) {
            (Mutation::NoEpochCondition, _) => {
                broken.guards.retain(|guard| !matches!(guard, Guard::Lease(..)));
            }
            (Mutation::NoKeyPut, _) => broken.keys.clear(),
            (Mutation::NoSeqInSettle, Some(before)) if is_settle(before, transition) => {
                return self.settle(at, before, transition, token).await;
            }
            (Mutation::NoSeqInSettle, _) => {}
            (Mutation::NoAbsenceInCreate, None) => {
                let mut plan = plan(at, None, transition);
                for write in &mut plan.writes {
                    write.conditions.clear();
                }
                return self.inner.send_plan(plan, token).await;
            }
            (Mutation::NoOpenInAnswer, Some(before)) if answers(transition) => {
                // As on a slow network, so that within a few hundred seeds another answer comes meanwhile.
                tokio::time::sleep(Duration::from_secs(15)).await;
                (broken.head, broken.guards) = (before.clone(), Vec::new());
                let mut plan = plan(at, Some(before), &broken);
                for write in &mut plan.writes {
                    write.conditions.clear();
                }
                return self.inner.send_plan(plan, token).await;
            }
            (Mutation::NoEndForParent, Some(before))
                if transition.head.tells_parent && !before.tells_parent =>
            {
                (broken.head.tells_parent, broken.head.due) = (false, None);
            }
            (
                Mutation::NoAbsenceInCreate
                | Mutation::NoOpenInAnswer
                | Mutation::NoWithdrawalInClose
                | Mutation::NoEndForParent,
                _,
            ) => {}
        }
        self.inner.write(at, before, &broken, token).await
    }

    async fn decisions(&self, at: &SessionKey) -> Result<Vec<Decision>, StoreError> {
        match self.mutation {
            Mutation::NoWithdrawalInClose => Ok(Vec::new()),
            Mutation::NoEpochCondition
            | Mutation::NoKeyPut
            | Mutation::NoSeqInSettle
            | Mutation::NoAbsenceInCreate
            | Mutation::NoOpenInAnswer
            | Mutation::NoEndForParent => self.inner.decisions(at).await,
        }
    }
}
