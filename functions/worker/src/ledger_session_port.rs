//! The agent loop's session port over the ledger. It sends the lease token with every write, and remembers the newest
//! head, so that a write needs no read before it.

use parking_lot::Mutex;
use std::sync::Arc;

use async_trait::async_trait;
use keel_agent::{Partial, SessionPort, SessionPortError, SettleResult};
use keel_kernel::partial::PartialChunk;
use keel_kernel::run::Outcome;
use keel_kernel::transcript::History;
use keel_kernel::{Event, Head, LeaseToken, NewEvent, Refusal, Seq};
use keel_ledger::{Ledger, LedgerError, SessionKey};

pub(crate) struct LedgerSessionPort {
    ledger: Ledger,
    at: SessionKey,
    token: LeaseToken,
    known: Arc<Known>,
}

/// The newest head that the owner has seen.
pub(crate) struct Known(Mutex<Head>);

impl Known {
    pub(crate) fn new(head: Head) -> Arc<Self> {
        Arc::new(Self(Mutex::new(head)))
    }

    pub(crate) fn get(&self) -> Head {
        self.0.lock().clone()
    }

    pub(crate) fn remember(&self, head: Head) {
        *self.0.lock() = head;
    }
}

impl LedgerSessionPort {
    pub(crate) fn new(ledger: Ledger, at: SessionKey, token: LeaseToken, known: Arc<Known>) -> Self {
        Self { ledger, at, token, known }
    }

    fn known(&self) -> Option<Head> {
        Some(self.known.get())
    }
}

pub(crate) fn port_error(error: LedgerError) -> SessionPortError {
    match error {
        LedgerError::Refused(Refusal::Fenced { .. } | Refusal::SessionClosed | Refusal::NotFound) => {
            SessionPortError::Lost
        }
        LedgerError::Refused(refusal) => SessionPortError::Refused(refusal),
        error @ (LedgerError::Busy | LedgerError::Store(_)) => SessionPortError::Store(Box::new(error)),
    }
}

#[async_trait]
impl SessionPort for LedgerSessionPort {
    async fn history(&self) -> Result<History, SessionPortError> {
        let head = self.known.get();
        let events = self.ledger.shown_events(&self.at, &head).await.map_err(port_error)?;
        History::resume(head.ledger, events).map_err(SessionPortError::Refused)
    }

    async fn events_after(&self, after: Seq) -> Result<Vec<Event>, SessionPortError> {
        self.ledger.all_events(&self.at, after).await.map_err(port_error)
    }

    async fn commit(&self, events: Vec<NewEvent>) -> Result<(), SessionPortError> {
        let appended = self
            .ledger
            .commit(&self.at, self.known(), Some(self.token.clone()), events)
            .await
            .map_err(port_error)?;
        self.known.remember(appended.head);
        Ok(())
    }

    async fn settle(
        &self,
        outcome: Outcome,
        events: Vec<NewEvent>,
        only_at: Option<Seq>,
    ) -> Result<SettleResult, SessionPortError> {
        let settled = self
            .ledger
            .settle(&self.at, self.known(), &self.token, outcome, events, only_at)
            .await
            .map_err(port_error)?;
        Ok(settled.map_or(SettleResult::Moved, |settled| SettleResult::Settled(settled.status)))
    }

    async fn release(&self) -> Result<(), SessionPortError> {
        self.ledger.release(&self.at, self.known(), &self.token).await.map(drop).map_err(port_error)
    }

    async fn partial(&self, partial: Partial) -> Result<(), SessionPortError> {
        let chunk = PartialChunk {
            epoch: self.token.epoch,
            generation: partial.generation_id,
            index: partial.index,
            text: partial.text,
            dead: partial.dead.map(str::to_owned),
        };
        let published = self.ledger.publish_partial(&self.at, self.known(), &self.token, &chunk).await;
        published.map_err(port_error)
    }
}
