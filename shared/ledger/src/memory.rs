//! A [`Store`] in memory. It must give the same answers as the DynamoDB store: tests compare the two, call by call.

use std::collections::BTreeMap;

use async_trait::async_trait;
use keel_kernel::decision::Decision;
use keel_kernel::event::KeyName;
use keel_kernel::partial::PartialChunk;
use keel_kernel::testing::MemorySession;
use keel_kernel::{
    DedupeKey, Event, Head, KeyRow, Millis, Obstacles, Seq, Session, SessionDescription, Transition,
};
use parking_lot::Mutex;

use crate::keys;
use crate::port::{
    Consistency, DuePage, DuePlace, EventPage, PartialPage, SessionKey, Store, StoreError, Written,
};

/// A store in memory.
#[derive(Debug, Default)]
pub struct Memory {
    sessions: Mutex<BTreeMap<SessionKey, MemorySession>>,
    partials: Mutex<BTreeMap<SessionKey, BTreeMap<String, PartialChunk>>>,
}

impl Memory {
    /// A copy of a session.
    pub fn copy(&self, at: &SessionKey) -> Option<MemorySession> {
        self.sessions.lock().get(at).cloned()
    }

    fn with<T>(&self, at: &SessionKey, read: impl FnOnce(&MemorySession) -> T) -> Option<T> {
        self.sessions.lock().get(at).map(read)
    }
}

#[async_trait]
impl Store for Memory {
    async fn head(&self, at: &SessionKey, _: Consistency) -> Result<Option<Head>, StoreError> {
        Ok(self.with(at, |session| session.head.clone()))
    }

    async fn description(&self, at: &SessionKey) -> Result<Option<SessionDescription>, StoreError> {
        Ok(self.with(at, |session| session.description.clone()))
    }

    async fn session(&self, at: &SessionKey) -> Result<Option<Session>, StoreError> {
        Ok(self.with(at, MemorySession::session))
    }

    async fn sessions(&self, at: &[SessionKey]) -> Result<Vec<Session>, StoreError> {
        Ok(at.iter().filter_map(|at| self.with(at, MemorySession::session)).collect())
    }

    async fn write(
        &self,
        at: &SessionKey,
        before: Option<&Head>,
        transition: &Transition,
        _token: &str,
    ) -> Result<Written, StoreError> {
        let mut sessions = self.sessions.lock();
        let there = sessions.get_mut(at);
        Ok(match (there, before) {
            (Some(session), Some(before)) => match session.write(before, transition) {
                Ok(()) => Written::Committed,
                Err(obstacles) => Written::Lost(obstacles),
            },
            (Some(_), None) => Written::Lost(Obstacles { row: true, ..Obstacles::default() }),
            (None, Some(_)) => Written::Lost(Obstacles::default()),
            (None, None) => match MemorySession::created(transition) {
                Some(session) => {
                    sessions.insert(at.clone(), session);
                    Written::Committed
                }
                None => Written::Lost(Obstacles::default()),
            },
        })
    }

    async fn keys(&self, at: &SessionKey, keys: &[(KeyName, DedupeKey)]) -> Result<Vec<KeyRow>, StoreError> {
        let taken =
            |session: &MemorySession| keys.iter().filter_map(|key| session.keys.get(key).cloned()).collect();
        Ok(self.with(at, taken).unwrap_or_default())
    }

    async fn events(
        &self,
        at: &SessionKey,
        after: Seq,
        limit: usize,
        _consistency: Consistency,
    ) -> Result<EventPage, StoreError> {
        let page = |session: &MemorySession| {
            let rest = session.events.iter().filter(|event| event.seq > after);
            let mut events: Vec<Event> = rest.take(limit + 1).cloned().collect();
            let has_more = events.len() > limit;
            events.truncate(limit);
            EventPage { events, has_more }
        };
        Ok(self.with(at, page).unwrap_or_default())
    }

    async fn decision(
        &self,
        at: &SessionKey,
        id: &str,
        _: Consistency,
    ) -> Result<Option<Decision>, StoreError> {
        Ok(self.with(at, |session| session.decisions.get(id).cloned()).flatten())
    }

    async fn decisions(&self, at: &SessionKey) -> Result<Vec<Decision>, StoreError> {
        Ok(self.with(at, |session| session.decisions.values().cloned().collect()).unwrap_or_default())
    }

    async fn children(&self, at: &SessionKey) -> Result<Vec<SessionKey>, StoreError> {
        let sessions = self.sessions.lock();
        let is_child = |(child, session): &(&SessionKey, &MemorySession)| {
            let of = session.description.child_of.as_ref();
            child.tenant == at.tenant && of.is_some_and(|of| of.parent == at.session)
        };
        Ok(sessions.iter().filter(is_child).map(|(child, _)| child.clone()).collect())
    }

    async fn due(
        &self,
        shard: u8,
        now: Millis,
        limit: usize,
        after: Option<DuePlace>,
    ) -> Result<DuePage, StoreError> {
        let sessions = self.sessions.lock();
        let shard = keys::due_shard_name(shard);
        let mut due: Vec<(Millis, &SessionKey, &Head)> = sessions
            .iter()
            .filter(|(at, _)| keys::due_shard(at) == shard)
            .filter_map(|(at, session)| Some((session.head.due?, at, &session.head)))
            .filter(|(due, _, _)| *due <= now)
            .filter(|(due, at, _)| after.as_ref().is_none_or(|place| (place.due, &place.at) < (*due, at)))
            .collect();
        due.sort_by_key(|(due, at, _)| (*due, (*at).clone()));
        let next = (due.len() > limit)
            .then(|| due.get(limit.saturating_sub(1)))
            .flatten()
            .map(|(due, at, _)| DuePlace { at: (*at).clone(), due: *due });
        due.truncate(limit);
        let sessions = due.into_iter().map(|(_, at, head)| (at.clone(), head.clone())).collect();
        Ok(DuePage { sessions, next })
    }

    async fn put_partial(&self, at: &SessionKey, _: Millis, chunk: &PartialChunk) -> Result<(), StoreError> {
        self.partials.lock().entry(at.clone()).or_default().insert(keys::partial_sk(chunk), chunk.clone());
        Ok(())
    }

    async fn partials(&self, at: &SessionKey, after: &str) -> Result<PartialPage, StoreError> {
        let partials = self.partials.lock();
        let chunks = partials.get(at).into_iter().flatten().filter(|(sk, _)| sk.as_str() > after);
        Ok(chunks.take(100).map(|(sk, chunk)| (sk.clone(), chunk.clone())).collect())
    }

    async fn partials_from_now(&self, at: &SessionKey) -> Result<String, StoreError> {
        let partials = self.partials.lock();
        let last = partials.get(at).and_then(|chunks| chunks.keys().next_back());
        Ok(last.and_then(|sk| keys::behind_generation(sk)).unwrap_or_default())
    }
}
