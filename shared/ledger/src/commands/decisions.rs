//! Decisions (H2): an owner opens them, a person answers them, and those that nobody answered in time are withdrawn.

use keel_kernel::decision::{Decision, DecisionAnswer};
use keel_kernel::decision_transitions;
use keel_kernel::event::ToolCall;
use keel_kernel::{Head, LeaseToken, Millis, NewEvent, SideRow};

use super::engine::{Carried, Job, Step, Wrote};
use super::read_set::{OfDecision, OfHead};
use super::{Ledger, LedgerError};
use crate::port::SessionKey;

impl Ledger {
    /// Opens a decision about a call, for `for_ms` milliseconds, and puts it on the tenant's list of open ones. A decision
    /// that is there stays as it is. `known` is the owner's last head.
    ///
    /// # Errors
    /// Those of [`decision_transitions::open`].
    pub async fn open_decision(
        &self,
        at: &SessionKey,
        known: Head,
        token: &LeaseToken,
        call: &ToolCall,
        for_ms: u64,
    ) -> Result<(), LedgerError> {
        let id = self.commit_id();
        let name = Decision::id_of(&at.session, &call.id);
        let decide = |(head, existing): &(Head, Option<Decision>), now: Millis, _: &[NewEvent]| {
            let about = (&at.session, call);
            let opened = decision_transitions::open(head, existing.as_ref(), token, about, (now, for_ms))?;
            Ok(opened.map_or(Step::Done(()), Step::Write))
        };
        // The owner has just looked and found no decision, so nothing is read first.
        let read_set = (&OfDecision(&name), Some((known, None)));
        self.carry_out(at, read_set, Job::without_events(&id), decide).await.map(drop)
    }

    /// Answers the decision `name` about the arguments with this digest, and makes a run that waits for it pending.
    /// False: the decision had the same answer already.
    ///
    /// # Errors
    /// Those of [`decision_transitions::answer`].
    pub async fn answer_decision(
        &self,
        at: &SessionKey,
        name: &str,
        digest: &str,
        answer: &DecisionAnswer,
    ) -> Result<(Decision, bool), LedgerError> {
        let id = self.commit_id();
        let decide = |(head, found): &(Head, Option<Decision>), now: Millis, _: &[NewEvent]| {
            let answered = decision_transitions::answer(head, found.as_ref(), digest, answer, now)?;
            Ok(answered.map_or(Step::Done(()), Step::Write))
        };
        let job = Job::without_events(&id);
        match self.carry_out(at, (&OfDecision(name), None), job, decide).await? {
            Carried::Wrote(Wrote { rows, .. }) => {
                let answered = rows.into_iter().find_map(|row| match row {
                    SideRow::AnswerDecision(decision) => Some(decision),
                    SideRow::NewSession(_)
                    | SideRow::Description(_)
                    | SideRow::OpenDecision(_)
                    | SideRow::WithdrawDecision(_) => None,
                });
                Ok((answered.expect("an answer writes the decision"), true))
            }
            Carried::Done((), (_, found)) => {
                let found = found.expect("only a decision that is there has an answer");
                Ok((found, false))
            }
        }
    }

    /// Removes a decision that nobody answered in time from the tenant's list. `known` is the owner's last head.
    pub async fn withdraw_decision(
        &self,
        at: &SessionKey,
        known: Head,
        decision: &Decision,
    ) -> Result<(), LedgerError> {
        let id = self.commit_id();
        let decide = |head: &Head, _: Millis, _: &[NewEvent]| {
            Ok(Step::<std::convert::Infallible>::Write(decision_transitions::withdraw(head, decision)))
        };
        self.carry_out(at, (&OfHead, Some(known)), Job::without_events(&id), decide).await.map(drop)
    }
}
