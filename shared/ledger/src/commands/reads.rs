//! Reads of a session: its ledger, its description, what works for it and what waits for a person.

use keel_kernel::decision::Decision;
use keel_kernel::{Event, Head, Refusal, Seq, Session, SessionDescription};

use super::{Ledger, LedgerError};
use crate::port::{Consistency, DuePage, DuePlace, EventPage, SessionKey};

/// A ledger of at most this many events is read at once.
const SHORT: usize = 100;
/// Events of one page of a longer one; the store cuts a page at 1 MB.
const LONG: usize = 10_000;

impl Ledger {
    /// The session's head, strongly read.
    pub async fn head(&self, at: &SessionKey) -> Result<Head, LedgerError> {
        self.read_head(at, Consistency::Strong).await?.ok_or(LedgerError::Refused(Refusal::NotFound))
    }

    /// The head as a stream or a watcher may see it: possibly a moment old, for half the price. `None` where none is seen.
    pub async fn head_eventual(&self, at: &SessionKey) -> Result<Option<Head>, LedgerError> {
        self.read_head(at, Consistency::Eventual).await
    }

    /// The session: its description and its head, strongly read.
    pub async fn session(&self, at: &SessionKey) -> Result<Session, LedgerError> {
        self.read(|| self.store.session(at)).await?.ok_or(LedgerError::Refused(Refusal::NotFound))
    }

    /// The session's description, strongly read; `None` where it has none.
    pub async fn description(&self, at: &SessionKey) -> Result<Option<SessionDescription>, LedgerError> {
        self.read(|| self.store.description(at)).await
    }

    /// At most `limit` events after a position: the contiguous ones, so that no reader ever skips one (R2). Where an
    /// eventual read shows a hole, it is read again strongly.
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
        let whole = contiguous(&page.events, after);
        if whole < page.events.len() {
            page.events.truncate(whole);
            page.has_more = true;
        }
        Ok(page)
    }

    /// Every event after a position, as of now. Of a long ledger all but the ends is read eventually, for half the price:
    /// events never change (L1), so a stretch without a gap is the same however it was read.
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

    /// K2: what of the ledger a context can still show, strongly read: a few events where it was compacted, all of it where
    /// not. Up to the head's seq.
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

    /// H4: the session's children, each with its head, possibly a moment old.
    pub async fn children(&self, at: &SessionKey) -> Result<Vec<Session>, LedgerError> {
        let children = self.read(|| self.store.children(at)).await?;
        self.read(|| self.store.sessions(&children)).await
    }

    /// H2: a decision.
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

    /// Sessions that are due before `now`, the longest due first, of one partition of the index (0 to
    /// [`DUE_SHARDS`](crate::keys::DUE_SHARDS) − 1): at most `limit`, from behind a place on.
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
