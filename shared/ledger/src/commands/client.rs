//! What is asked of a session from outside its run: input, external events, cancel, budgets, compactions, nudges.

use std::pin::Pin;

use keel_env::metric;
use keel_kernel::budget::Budget;
use keel_kernel::requests;
use keel_kernel::waiting;
use keel_kernel::{DedupeKey, Head, KeyName, Kind, NewEvent, Payload, SessionId};

use super::{Appended, Ledger, LedgerError};
use crate::port::SessionKey;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Ledger {
    /// Commits an input (D4, I3). Where there is no request id, one is made.
    pub async fn input(
        &self,
        at: &SessionKey,
        payload: Payload,
        request_id: Option<DedupeKey>,
    ) -> Result<Appended, LedgerError> {
        let appended = self.without_token(at, Kind::UserMessage, payload, request_id).await?;
        if appended.created {
            metric::count(metric::name::INPUTS, 1);
        }
        Ok(appended)
    }

    /// Commits a fact of an external backend (C4).
    pub async fn external_event(
        &self,
        at: &SessionKey,
        payload: Payload,
        request_id: Option<DedupeKey>,
    ) -> Result<Appended, LedgerError> {
        self.without_token(at, Kind::ExternalEvent, payload, request_id).await
    }

    async fn without_token(
        &self,
        at: &SessionKey,
        kind: Kind,
        payload: Payload,
        request_id: Option<DedupeKey>,
    ) -> Result<Appended, LedgerError> {
        let key = match request_id {
            Some(key) => key,
            None => DedupeKey::parse(self.env.unique()).expect("hex digits are visible ASCII"),
        };
        let event = NewEvent { kind, payload, key: Some((KeyName::RequestId, key)) };
        self.commit(at, None, None, vec![event]).await
    }

    /// Begins a run where an input is unanswered or a turn is owed. The returned head says whether a run is live now.
    pub async fn queue_run(&self, at: &SessionKey) -> Result<Head, LedgerError> {
        self.head_only(at, None, requests::queue).await
    }

    /// Cancels the session's run, if there is one: see [`requests::cancel`].
    pub async fn cancel(&self, at: &SessionKey) -> Result<Head, LedgerError> {
        self.head_only(at, None, requests::cancel).await
    }

    /// H1: nudges the session's run: something has happened that it may wait for.
    pub async fn nudge(&self, at: &SessionKey) -> Result<Head, LedgerError> {
        self.head_only(at, None, |head, now| Ok(waiting::nudge(head, now))).await
    }

    /// H5: sets the session's budget. A waiting run becomes pending where the new budget is not reached.
    pub async fn set_budget(&self, at: &SessionKey, budget: Budget) -> Result<Head, LedgerError> {
        self.head_only(at, None, |head, now| requests::set_budget(head, now, budget)).await
    }

    /// K3: asks for a compaction: see [`requests::ask_compaction`].
    pub async fn ask_compaction(&self, at: &SessionKey) -> Result<Head, LedgerError> {
        self.head_only(at, None, requests::ask_compaction).await
    }

    /// H4: nudges the parent about the end of a run of this child, and records in the child's head that it was nudged.
    /// Where this fails, the sweep does it.
    ///
    /// Boxed, since it calls itself: a parent can be a child too.
    pub fn tell_parent<'a>(
        &'a self,
        at: &'a SessionKey,
        parent: &'a SessionId,
    ) -> BoxFuture<'a, Result<(), LedgerError>> {
        Box::pin(async move {
            let parent = SessionKey { tenant: at.tenant.clone(), session: parent.clone() };
            match self.nudge(&parent).await {
                Ok(_) | Err(LedgerError::Refused(_)) => {} // nothing is to be done for a parent that is closed or gone
                Err(error) => return Err(error),
            }
            self.head_only(at, None, |head, _| Ok(waiting::told_parent(head))).await.map(drop)
        })
    }
}
