//! Reads of a session: its head, its ledger, its description, its children and its decisions. A read that fails is tried
//! again, and no reader is given events with a gap between them (R2).

use keel_kernel::decision::Decision;
use keel_kernel::{Event, Head, Refusal, Seq, Session, SessionDescription};

use super::{Ledger, LedgerError};
use crate::port::{Consistency, DuePage, DuePlace, EventPage, SessionKey};

/// Events on the first page of a whole ledger. A shorter ledger takes one read.
const SHORT: usize = 100;
/// Events on each further page at most; the store cuts a page at 1 MB.
const LONG: usize = 10_000;

impl Ledger {
    /// The session's head, strongly read.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub async fn head(&self, at: &SessionKey) -> Result<Head, LedgerError> {
        self.read_head(at, Consistency::Strong).await?.ok_or(LedgerError::Refused(Refusal::NotFound))
    }

    /// The head, eventually read: it may be out of date, and costs half. `None`: it is not there, or cannot be seen yet.
    pub async fn head_eventual(&self, at: &SessionKey) -> Result<Option<Head>, LedgerError> {
        self.read_head(at, Consistency::Eventual).await
    }

    /// The session: its description and its head, strongly read.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub async fn session(&self, at: &SessionKey) -> Result<Session, LedgerError> {
        self.read(|| self.store.session(at)).await?.ok_or(LedgerError::Refused(Refusal::NotFound))
    }

    /// The session's description, strongly read; `None`: there is no such session.
    pub async fn description(&self, at: &SessionKey) -> Result<Option<SessionDescription>, LedgerError> {
        self.read(|| self.store.description(at)).await
    }

    /// At most `limit` events after a position, only as far as there is no gap, so that no reader ever skips an event (R2).
    /// Where an eventual read shows a gap, it is read again strongly.
    pub async fn events(
        &self,
        at: &SessionKey,
        after: Seq,
        limit: usize,
        consistency: Consistency,
    ) -> Result<EventPage, LedgerError> {
        let mut page = self.page(at, after, limit, consistency).await?;
        if consistency == Consistency::Eventual && contiguous(&page.events, after) < page.events.len() {
            page = self.page(at, after, limit, Consistency::Strong).await?;
        }
        let without_gap = contiguous(&page.events, after);
        if without_gap < page.events.len() {
            page.events.truncate(without_gap);
            page.has_more = true;
        }
        Ok(page)
    }

    /// Every event after a position, as of now. Of a long ledger only the first and the last page are read strongly; the
    /// others cost half. Events never change (L1), so events without a gap are the same however they were read.
    pub async fn all_events(&self, at: &SessionKey, after: Seq) -> Result<Vec<Event>, LedgerError> {
        let mut events: Vec<Event> = Vec::new();
        let (mut limit, mut consistency) = (SHORT, Consistency::Strong);
        loop {
            let from = events.last().map_or(after, |event| event.seq);
            let page = self.events(at, from, limit, consistency).await?;
            let more = page.has_more && !page.events.is_empty();
            events.extend(page.events);
            (limit, consistency) = match (more, consistency) {
                (false, Consistency::Strong) => return Ok(events),
                (true, _) => (LONG, Consistency::Eventual),
                (false, Consistency::Eventual) => (LONG, Consistency::Strong),
            };
        }
    }

    /// K2: the events up to the head's seq that a context can still show: those that a compaction has kept, or all of them
    /// where there was none.
    pub async fn shown_events(&self, at: &SessionKey, head: &Head) -> Result<Vec<Event>, LedgerError> {
        let (waiting, from) = head.ledger.shown();
        let mut events: Vec<Event> = Vec::new();
        for seq in waiting {
            events.extend(self.page(at, Seq(seq.0 - 1), 1, Consistency::Strong).await?.events);
        }
        events.extend(self.all_events(at, Seq(from.0 - 1)).await?);
        events.retain(|event| event.seq <= head.ledger.seq);
        Ok(events)
    }

    /// H4: the session's children. Their heads and descriptions may be out of date.
    pub async fn children(&self, at: &SessionKey) -> Result<Vec<Session>, LedgerError> {
        let children = self.read(|| self.store.children(at)).await?;
        self.read(|| self.store.sessions(&children)).await
    }

    /// H2: a decision, by its id.
    pub async fn decision(
        &self,
        at: &SessionKey,
        id: &str,
        consistency: Consistency,
    ) -> Result<Option<Decision>, LedgerError> {
        self.read(|| self.store.decision(at, id, consistency)).await
    }

    /// H2: a session's decisions, answered ones too, strongly read.
    pub async fn decisions(&self, at: &SessionKey) -> Result<Vec<Decision>, LedgerError> {
        self.read(|| self.store.decisions(at)).await
    }

    /// Sessions that are due at `now`, the longest due first: at most `limit` of one partition of the index (0 to
    /// [`DUE_SHARDS`](crate::keys::DUE_SHARDS) − 1), after a place if there is one.
    pub async fn due(
        &self,
        shard: u8,
        now: keel_kernel::Millis,
        limit: usize,
        after: Option<DuePlace>,
    ) -> Result<DuePage, LedgerError> {
        self.read(|| self.store.due(shard, now, limit, after.clone())).await
    }
}

/// How many events follow `after` without a gap.
fn contiguous(events: &[Event], after: Seq) -> usize {
    let expected = (after.0 + 1)..;
    events.iter().zip(expected).take_while(|(event, seq)| event.seq.0 == *seq).count()
}
