//! The twin of the DynamoDB store: the same verbs over maps in memory. Tests compare the two, answer by answer.

use parking_lot::Mutex;
use std::collections::BTreeMap;

use async_trait::async_trait;
use keel_kernel::commit::Guard;
use keel_kernel::event::KeyName;
use keel_kernel::{DedupeKey, Event, Head, Lease, Seq, Transition};

use crate::port::{Consistency, EventPage, KeyRow, Obstacles, SessionKey, Store, StoreError, Written};

/// Everything a session has.
#[derive(Clone, Debug, PartialEq)]
pub struct MemorySession {
    /// Its head.
    pub head: Head,
    /// Its ledger.
    pub events: BTreeMap<Seq, Event>,
    /// The dedupe keys that are taken.
    pub keys: BTreeMap<(KeyName, DedupeKey), KeyRow>,
}

/// A store in memory.
#[derive(Debug, Default)]
pub struct Memory(Mutex<BTreeMap<SessionKey, MemorySession>>);

impl Memory {
    /// Adds a session.
    pub fn create(&self, at: &SessionKey, head: Head) {
        let session = MemorySession { head, events: BTreeMap::new(), keys: BTreeMap::new() };
        self.sessions().insert(at.clone(), session);
    }

    /// A copy of a session.
    pub fn session(&self, at: &SessionKey) -> Option<MemorySession> {
        self.sessions().get(at).cloned()
    }

    fn sessions(&self) -> parking_lot::MutexGuard<'_, BTreeMap<SessionKey, MemorySession>> {
        self.0.lock()
    }
}

fn holds(head: &Head, guard: &Guard) -> bool {
    match guard {
        Guard::Seq(seq) => head.ledger.seq == *seq,
        Guard::Open => !head.closed,
        Guard::Lease(owner, epoch) => {
            head.epoch == *epoch && head.lease.as_ref().is_some_and(|lease| lease.owner == *owner)
        }
        Guard::Epoch(epoch) => head.epoch == *epoch,
        Guard::LeaseUntil(until) => head.lease.as_ref().map(|lease| lease.until) == *until,
        Guard::Run(run) => head.run == *run,
    }
}

/// Sets what the transition changed and leaves the rest as it is by now, as the DynamoDB plan does.
fn merge(now: &mut Head, before: &Head, after: &Head) {
    fn take<T: PartialEq + Clone>(now: &mut T, before: &T, after: &T) {
        if before != after {
            *now = after.clone();
        }
    }
    take(&mut now.closed, &before.closed, &after.closed);
    take(&mut now.max_attempts, &before.max_attempts, &after.max_attempts);
    take(&mut now.ledger.seq, &before.ledger.seq, &after.ledger.seq);
    take(&mut now.ledger.unanswered, &before.ledger.unanswered, &after.ledger.unanswered);
    take(&mut now.ledger.open_calls, &before.ledger.open_calls, &after.ledger.open_calls);
    take(&mut now.ledger.owed_turn, &before.ledger.owed_turn, &after.ledger.owed_turn);
    take(&mut now.ledger.input_seqs_seen, &before.ledger.input_seqs_seen, &after.ledger.input_seqs_seen);
    take(&mut now.ledger.last_answer, &before.ledger.last_answer, &after.ledger.last_answer);
    take(&mut now.ledger.compacted, &before.ledger.compacted, &after.ledger.compacted);
    take(&mut now.ledger.spent, &before.ledger.spent, &after.ledger.spent);
    take(&mut now.budget, &before.budget, &after.budget);
    take(&mut now.tells_parent, &before.tells_parent, &after.tells_parent);
    take(&mut now.compact, &before.compact, &after.compact);
    take(&mut now.run, &before.run, &after.run);
    take(&mut now.epoch, &before.epoch, &after.epoch);
    take(&mut now.finished, &before.finished, &after.finished);
    take(&mut now.due, &before.due, &after.due);
    match (&mut now.lease, &before.lease, &after.lease) {
        (Some(now), Some(before), Some(after)) => {
            let Lease { owner, claim, until } = after;
            take(&mut now.owner, &before.owner, owner);
            take(&mut now.claim, &before.claim, claim);
            take(&mut now.until, &before.until, until);
        }
        (now, before, after) => take(now, before, after),
    }
}

#[async_trait]
impl Store for Memory {
    async fn head(&self, at: &SessionKey) -> Result<Option<Head>, StoreError> {
        Ok(self.sessions().get(at).map(|session| session.head.clone()))
    }

    async fn head_eventual(&self, at: &SessionKey) -> Result<Option<Head>, StoreError> {
        self.head(at).await
    }

    async fn write(
        &self,
        at: &SessionKey,
        before: &Head,
        transition: &Transition,
        _token: &str,
    ) -> Result<Written, StoreError> {
        let mut sessions = self.sessions();
        let Some(session) = sessions.get_mut(at) else {
            return Ok(Written::Lost(Obstacles::default()));
        };
        let guards_hold = transition.guards.iter().all(|guard| holds(&session.head, guard));
        let taken = |name: KeyName, key: &DedupeKey| session.keys.get(&(name, key.clone())).cloned();
        let obstacles = Obstacles {
            head: (!guards_hold).then(|| session.head.clone()),
            keys: transition.keys.iter().filter_map(|claim| taken(claim.name, &claim.key)).collect(),
            call: transition
                .new_calls
                .iter()
                .find(|call| taken(KeyName::ToolCallId, call).is_some())
                .cloned(),
        };
        let event_there = transition.events.iter().any(|event| session.events.contains_key(&event.seq));
        if obstacles != Obstacles::default() || event_there {
            return Ok(Written::Lost(obstacles));
        }
        merge(&mut session.head, before, &transition.head);
        for event in &transition.events {
            session.events.insert(event.seq, event.clone());
        }
        for claim in &transition.keys {
            let row = KeyRow {
                name: claim.name,
                key: claim.key.clone(),
                seq: claim.seq,
                digest: claim.digest.clone(),
                commit: transition.events[0].commit.id.clone(),
            };
            session.keys.insert((claim.name, claim.key.clone()), row);
        }
        Ok(Written::Committed)
    }

    async fn keys(&self, at: &SessionKey, keys: &[(KeyName, DedupeKey)]) -> Result<Vec<KeyRow>, StoreError> {
        let sessions = self.sessions();
        let Some(session) = sessions.get(at) else { return Ok(Vec::new()) };
        Ok(keys.iter().filter_map(|key| session.keys.get(key).cloned()).collect())
    }

    async fn events(
        &self,
        at: &SessionKey,
        after: Seq,
        limit: usize,
        _consistency: Consistency,
    ) -> Result<EventPage, StoreError> {
        let sessions = self.sessions();
        let Some(session) = sessions.get(at) else { return Ok(EventPage::default()) };
        let rest = session.events.range(after.next()..);
        let mut events: Vec<Event> = rest.take(limit + 1).map(|(_, event)| event.clone()).collect();
        let has_more = events.len() > limit;
        events.truncate(limit);
        Ok(EventPage { events, has_more })
    }
}
