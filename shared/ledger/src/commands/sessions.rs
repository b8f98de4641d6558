//! Sessions: made once (I8), described, closed together with their children (H4); and the children that a run begins.

use std::collections::BTreeSet;

use keel_kernel::budget::Budget;
use keel_kernel::child;
use keel_kernel::decision::Decision;
use keel_kernel::event::ToolCall;
use keel_kernel::requests;
use keel_kernel::session::SessionPatch;
use keel_kernel::session_transitions;
use keel_kernel::{DedupeKey, Head, Millis, NewEvent, Payload, Session, SessionDescription, SideRow};

use super::engine::{Carried, Job, Step, Wrote};
use super::read_set::{OfDecisions, OfNewSession, OfSession};
use super::{Ledger, LedgerError};
use crate::port::SessionKey;

impl Ledger {
    /// I8: makes a session. False: the same creation made it before.
    ///
    /// # Errors
    /// [`Refusal::SessionExists`](keel_kernel::Refusal::SessionExists) where the id is that of another session.
    pub async fn create(
        &self,
        at: &SessionKey,
        description: &SessionDescription,
        budget: Budget,
    ) -> Result<(Session, bool), LedgerError> {
        let id = self.commit_id();
        let decide = |existing: &Option<Session>, _: Millis, _: &[NewEvent]| {
            let created = session_transitions::create(existing.as_ref(), description, budget)?;
            Ok(created.map_or(Step::Done(()), Step::Write))
        };
        // Most ids are new, so nothing is read first.
        let job = Job::without_events(&id);
        match self.carry_out(at, (&OfNewSession, Some(None)), job, decide).await? {
            Carried::Wrote(Wrote { head, .. }) => {
                Ok((Session { description: description.clone(), head }, true))
            }
            Carried::Done((), existing) => {
                Ok((existing.expect("only an existing session needs no write"), false))
            }
        }
    }

    /// Changes a session's description and budget in one write; returns the session afterwards.
    ///
    /// # Errors
    /// Those of [`session::patch`], and [`Refusal::NotFound`](keel_kernel::Refusal::NotFound).
    pub async fn patch(&self, at: &SessionKey, patch: &SessionPatch) -> Result<Session, LedgerError> {
        let id = self.commit_id();
        let decide = |session: &Session, now: Millis, _: &[NewEvent]| {
            session_transitions::patch(session, now, patch).map(Step::<std::convert::Infallible>::Write)
        };
        match self.carry_out(at, (&OfSession, None), Job::without_events(&id), decide).await? {
            Carried::Wrote(Wrote { head, rows, .. }) => {
                let description = rows.into_iter().find_map(|row| match row {
                    SideRow::Description(description) => Some(description),
                    SideRow::NewSession(_)
                    | SideRow::OpenDecision(_)
                    | SideRow::AnswerDecision(_)
                    | SideRow::WithdrawDecision(_) => None,
                });
                Ok(Session { description: description.expect("a patch writes the description"), head })
            }
            Carried::Done(never, _) => match never {},
        }
    }

    /// C6, H4: closes a session: its run fails, its open decisions are withdrawn, its children are cancelled. Where a close
    /// broke off, closing again does the rest.
    pub async fn close(&self, at: &SessionKey) -> Result<Head, LedgerError> {
        let (mut closed, mut withdrawn) = (None, BTreeSet::new());
        // Each round withdraws as many decisions as one write takes. A session has few.
        for _ in 0..self.config.tries {
            let id = self.commit_id();
            let decide = |(head, decisions): &(Head, Vec<Decision>), now: Millis, _: &[NewEvent]| {
                let left: Vec<Decision> =
                    decisions.iter().filter(|decision| !withdrawn.contains(&decision.id)).cloned().collect();
                Ok(requests::close(head, now, &left).map_or(Step::Done(()), Step::Write))
            };
            match self.carry_out(at, (&OfDecisions, None), Job::without_events(&id), decide).await? {
                Carried::Done((), (head, _)) => {
                    closed = Some(head);
                    break;
                }
                // A decision may have been opened meanwhile, so the next round looks again.
                Carried::Wrote(Wrote { rows, .. }) => {
                    withdrawn.extend(rows.into_iter().filter_map(|row| match row {
                        SideRow::WithdrawDecision(decision) => Some(decision.id),
                        SideRow::NewSession(_)
                        | SideRow::Description(_)
                        | SideRow::OpenDecision(_)
                        | SideRow::AnswerDecision(_) => None,
                    }))
                }
            }
        }
        let head = closed.ok_or(LedgerError::Busy)?;
        for child in self.read(|| self.store.children(at)).await? {
            match self.cancel(&child).await {
                Ok(_) | Err(LedgerError::Refused(_)) => {} // the child is closed
                Err(error) => return Err(error),
            }
        }
        Ok(head)
    }

    /// H4: how many children a session has.
    pub async fn count_children(&self, at: &SessionKey) -> Result<usize, LedgerError> {
        Ok(self.read(|| self.store.children(at)).await?.len())
    }

    /// The child that a call of this session begins.
    pub fn child_of(parent: &SessionKey, call: &ToolCall) -> SessionKey {
        SessionKey { tenant: parent.tenant.clone(), session: child::id_of(&parent.session, call) }
    }

    /// H4: makes the child that a call begins and commits its task as the child's input. Doing it again finds what is
    /// there. Where the parent wants the child no more, the child is cancelled.
    ///
    /// `head` and `own` are the parent's head and description, as its owner knows them.
    ///
    /// # Errors
    /// [`Refusal::SessionExists`](keel_kernel::Refusal::SessionExists): another session has the child's id.
    pub async fn begin_child(
        &self,
        parent: &SessionKey,
        head: &Head,
        own: Option<&SessionDescription>,
        call: &ToolCall,
    ) -> Result<(), LedgerError> {
        let at = Self::child_of(parent, call);
        let now = self.env.now();
        let described = child::describe(&parent.session, own, head.max_attempts, call, now);
        self.create(&at, &described, child::share(head)).await?;
        let task = serde_json::json!({ "text": call.arguments["task"], "from": parent.session });
        let key = DedupeKey::parse(child::TASK_KEY).expect("visible ASCII");
        self.input(&at, Payload::from_value(&task)?, Some(key)).await?;
        // A close or cancel of the parent that comes from now on finds the child. One that came before may not have.
        if child::is_wanted(&self.head(parent).await?, call) {
            return Ok(());
        }
        self.cancel_child(parent, call).await
    }

    /// H4: cancels the child that a call began, if it began one.
    pub async fn cancel_child(&self, parent: &SessionKey, call: &ToolCall) -> Result<(), LedgerError> {
        match self.cancel(&Self::child_of(parent, call)).await {
            Ok(_) | Err(LedgerError::Refused(_)) => Ok(()), // it was never begun, or is closed
            Err(error) => Err(error),
        }
    }

    /// H5: gives a child that has used up its share a new budget, where the parent has more left by now.
    pub async fn share_with_child(
        &self,
        at: &SessionKey,
        child: &Head,
        parent: &Head,
    ) -> Result<(), LedgerError> {
        let Some(share) = child::larger_share(child, parent) else { return Ok(()) };
        match self.set_budget(at, share).await {
            Ok(_) | Err(LedgerError::Refused(_)) => Ok(()), // the child is closed
            Err(error) => Err(error),
        }
    }
}
