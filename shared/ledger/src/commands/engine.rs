//! One command from its first look to its last try. This is the only loop that writes are tried again in.
//!
//! What it does about each end (I3, I5, I6):
//! - A key is taken: with the same digest the first submission is the answer, with another it is a conflict.
//! - A guard failed, or a row beside the head has changed: it decides again on what is there now.
//! - The kernel refuses, and the refusal depends on the session's state: it looks the keys up first, since an earlier try
//!   of this very commit may be the cause.
//! - The store gave no answer: it sends the same write again. If that fails, it looks whether the ledger holds this commit.

use std::collections::BTreeMap;
use std::time::Duration;

use keel_env::metric;
use keel_kernel::{
    CommitId, DedupeKey, Event, Head, KeyName, KeyRow, Millis, NewEvent, Obstacles, Refusal, RunStatus, Seq,
    SideRow, Transition,
};

use super::read_set::ReadSet;
use super::{Ledger, LedgerError};
use crate::port::{Consistency, EventPage, SessionKey, StoreError, Written};

/// What a command's rule decides on what it sees.
pub(super) enum Step<T> {
    /// Write this.
    Write(Transition),
    /// There is nothing to write; this is the result.
    Done(T),
}

/// How a command ended.
pub(super) enum Carried<T, S> {
    /// It is written, by this call or an earlier one.
    Wrote(Wrote),
    /// There was nothing to write: the result, and what it was decided on.
    Done(T, S),
}

/// What a command wrote.
pub(super) struct Wrote {
    /// The events, in the order they were sent.
    pub(super) events: Vec<Event>,
    /// The head afterwards, or a later one.
    pub(super) head: Head,
    /// The rows beside the head; empty where an earlier submission wrote them.
    pub(super) rows: Vec<SideRow>,
    /// False where an earlier submission had written it (I3).
    pub(super) created: bool,
}

/// A command's events, and which of them are found to be written already.
pub(super) struct Job<'a> {
    pub(super) id: &'a CommitId,
    /// What is still to be written.
    pub(super) events: Vec<NewEvent>,
    /// For each of these, its place among all that were sent.
    pub(super) places: Vec<usize>,
    /// How many events were sent.
    pub(super) size: usize,
    /// Events that an earlier submission wrote, by their place in what was sent.
    pub(super) found: BTreeMap<usize, Event>,
}

impl<'a> Job<'a> {
    pub(super) fn new(id: &'a CommitId, events: Vec<NewEvent>) -> Self {
        let size = events.len();
        Self { id, events, places: (0..size).collect(), size, found: BTreeMap::new() }
    }

    /// A command that appends nothing.
    pub(super) fn without_events(id: &'a CommitId) -> Self {
        Self::new(id, Vec::new())
    }

    /// Whether earlier submissions have written every event that was sent.
    fn is_replayed(&self) -> bool {
        self.size > 0 && self.found.len() == self.size
    }

    fn ended(self, transition: Transition) -> Wrote {
        let mut all = self.found;
        all.extend(self.places.into_iter().zip(transition.events));
        let events = all.into_values().collect();
        Wrote { events, head: transition.head, rows: transition.rows, created: true }
    }

    fn replayed(self, head: Head, created: bool) -> Wrote {
        Wrote { events: self.found.into_values().collect(), head, rows: Vec::new(), created }
    }
}

/// How often a read is tried. That takes about a second, since a caller waits.
const READ_TRIES: u32 = 5;

/// After so many lost races a command pauses before it decides again.
const IMMEDIATE_RETRIES: u32 = 2;

/// The shortest pause between tries, in milliseconds, drawn at random; it doubles with each try.
const PAUSE_MS: std::ops::RangeInclusive<u64> = 10..=100;

impl Ledger {
    /// Carries a command out: looks at the read set and asks `decide`, until a write is committed, or there is nothing to
    /// write, or the command is refused. `known` is what the caller saw last; it saves the first read.
    pub(super) async fn carry_out<S: ReadSet, T>(
        &self,
        at: &SessionKey,
        (read_set, known): (&S, Option<S::Seen>),
        job: Job<'_>,
        decide: impl Fn(&S::Seen, Millis, &[NewEvent]) -> Result<Step<T>, Refusal> + Send + Sync,
    ) -> Result<Carried<T, S::Seen>, LedgerError> {
        let carried = self.decide_and_write(at, (read_set, known), job, decide).await;
        if let Err(LedgerError::Refused(Refusal::Fenced { .. })) = carried {
            metric::count(metric::name::FENCED, 1);
        }
        carried
    }

    async fn decide_and_write<S: ReadSet, T>(
        &self,
        at: &SessionKey,
        (read_set, known): (&S, Option<S::Seen>),
        mut job: Job<'_>,
        decide: impl Fn(&S::Seen, Millis, &[NewEvent]) -> Result<Step<T>, Refusal> + Send + Sync,
    ) -> Result<Carried<T, S::Seen>, LedgerError> {
        // The first look may be out of date, and so costs half: the conditions make a write that was decided on it fail.
        let mut seen = match known {
            Some(known) => known,
            None => read_set.look(self, at, Consistency::Eventual).await?,
        };
        let mut fresh = false;
        let mut obstacles = Obstacles::default();
        for attempt in 0..self.config.tries {
            let step = decide(&seen, self.env.now(), &job.events);
            let concludes = match &step {
                Ok(Step::Write(_)) => false,
                Ok(Step::Done(_)) => true,
                Err(refusal) => refusal.depends_on_state(),
            };
            if concludes && !fresh {
                // What the caller remembered, or an eventual read showed, may be out of date. No result or refusal may rest
                // on it.
                (seen, fresh) = (read_set.look(self, at, Consistency::Strong).await?, true);
                continue;
            }
            if let Ok(Step::Done(done)) = step {
                return Ok(Carried::Done(done, seen));
            }
            // I3, I5, I6: where a key is taken, that is the answer, before any refusal that depends on the state.
            if let Err(refusal) = &step
                && refusal.depends_on_state()
            {
                obstacles.keys = self.taken_keys(at, &job).await?;
            }
            if !obstacles.keys.is_empty() {
                let created = self.recognise(at, &mut job, std::mem::take(&mut obstacles.keys)).await?;
                if job.is_replayed() {
                    let head = self.head(at).await?;
                    return Ok(Carried::Wrote(job.replayed(head, created)));
                }
                continue; // the other events are not written yet
            }
            let transition = match step {
                Ok(Step::Write(transition)) => transition,
                Ok(Step::Done(done)) => return Ok(Carried::Done(done, seen)),
                Err(refusal) => return Err(refusal.into()),
            };
            match self.write(at, S::head(&seen), &transition, job.id, attempt).await? {
                WriteEnd::Committed => {
                    self.announce(at, &transition).await;
                    return Ok(Carried::Wrote(job.ended(transition)));
                }
                WriteEnd::Lost(found) => {
                    if let Some(call) = &found.call
                        && found.keys.is_empty()
                    {
                        obstacles.keys = self.taken_keys(at, &job).await?;
                        if obstacles.keys.is_empty() {
                            return Err(Refusal::CallIdReused(call.to_string()).into());
                        }
                    }
                    obstacles.keys.extend(found.keys);
                    // The first lost races are decided again at once. A command that loses more competes with many, and
                    // they must spread out.
                    if attempt >= IMMEDIATE_RETRIES {
                        self.pause(attempt - IMMEDIATE_RETRIES).await;
                    }
                    let head = found.head.filter(|_| attempt < IMMEDIATE_RETRIES && !found.row);
                    seen = match head.and_then(S::with_head) {
                        Some(seen) => seen,
                        None => read_set.look(self, at, Consistency::Strong).await?,
                    };
                    fresh = true;
                }
                WriteEnd::Again => self.pause(attempt).await,
            }
        }
        Err(LedgerError::Busy)
    }

    /// Sends one transition until the store says how that ended.
    async fn write(
        &self,
        at: &SessionKey,
        before: Option<&Head>,
        transition: &Transition,
        id: &CommitId,
        attempt: u32,
    ) -> Result<WriteEnd, LedgerError> {
        // A token names one transition: the next transition of the same commit gets another token. An id has 32 characters,
        // all of which may differ, so none is cut; DynamoDB takes 36.
        let token = format!("{id}-{attempt}");
        let mut maybe_written = false;
        for resend in 0..self.config.tries {
            match self.store.write(at, before, transition, &token).await {
                Ok(Written::Committed) => return Ok(WriteEnd::Committed),
                Ok(Written::Lost(_)) if maybe_written && self.holds(at, transition).await? => {
                    return Ok(WriteEnd::Committed);
                }
                Ok(Written::Lost(obstacles)) => return Ok(WriteEnd::Lost(obstacles)),
                Ok(Written::Conflict) if !maybe_written => return Ok(WriteEnd::Again),
                Ok(Written::Conflict) => {}
                Err(error @ StoreError::Corrupt(_)) => return Err(error.into()),
                Err(StoreError::NotWritten(operation, why))
                    if maybe_written && resend + 1 == self.config.tries =>
                {
                    return Err(StoreError::Unknown(operation, why).into()); // an earlier try may have been written
                }
                Err(error) if resend + 1 == self.config.tries => return Err(error.into()),
                Err(error) => {
                    maybe_written |= matches!(error, StoreError::Unknown(..));
                    tracing::debug!(
                        resend,
                        error = &error as &dyn std::error::Error,
                        "a write failed and is sent again"
                    );
                }
            }
            self.pause(resend).await;
        }
        Err(LedgerError::Busy)
    }

    /// Reads, and tries again where the store failed, [`READ_TRIES`] times in all. A read changes nothing, so it may
    /// always be tried again; only an item that does not decode is not.
    pub(super) async fn read<T, F>(&self, read: impl Fn() -> F + Send + Sync) -> Result<T, LedgerError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        for attempt in 1.. {
            match read().await {
                Err(error @ (StoreError::NotWritten(..) | StoreError::Unknown(..)))
                    if attempt < READ_TRIES =>
                {
                    tracing::debug!(
                        attempt,
                        error = &error as &dyn std::error::Error,
                        "a read failed and is tried again"
                    );
                }
                ended => return Ok(ended?),
            }
            self.pause(attempt).await;
        }
        Err(LedgerError::Busy)
    }

    /// The head, read with this consistency. `None`: there is no such session, or an eventual read does not show it yet.
    pub(super) async fn read_head(
        &self,
        at: &SessionKey,
        consistency: Consistency,
    ) -> Result<Option<Head>, LedgerError> {
        self.read(|| self.store.head(at, consistency)).await
    }

    /// The rows of those keys that are taken.
    pub(super) async fn read_keys(
        &self,
        at: &SessionKey,
        keys: &[(KeyName, DedupeKey)],
    ) -> Result<Vec<KeyRow>, LedgerError> {
        self.read(|| self.store.keys(at, keys)).await
    }

    /// A page of events as the store gives it: an eventual one may have gaps.
    pub(super) async fn page(
        &self,
        at: &SessionKey,
        after: Seq,
        limit: usize,
        consistency: Consistency,
    ) -> Result<EventPage, LedgerError> {
        self.read(|| self.store.events(at, after, limit, consistency)).await
    }

    /// I6: whether this very transition, whose answer was lost, is written. It is where its first event, or a row that no
    /// other command writes in the same way, is there.
    async fn holds(&self, at: &SessionKey, transition: &Transition) -> Result<bool, LedgerError> {
        if let Some(first) = transition.events.first() {
            let before = Seq(first.seq.0 - 1);
            let page = self.page(at, before, 1, Consistency::Strong).await?;
            return Ok(page.events.first().is_some_and(|event| event.commit == first.commit));
        }
        for row in &transition.rows {
            match row {
                SideRow::AnswerDecision(decision) => {
                    let found =
                        self.read(|| self.store.decision(at, &decision.id, Consistency::Strong)).await?;
                    return Ok(found.as_ref() == Some(decision));
                }
                SideRow::Description(description) => {
                    let found = self.read(|| self.store.description(at)).await?;
                    return Ok(found.as_ref() == Some(description));
                }
                // None of these needs it: the token answers for a new session, an opened decision is found when the
                // command is decided again, and withdrawing one twice changes nothing.
                SideRow::NewSession(_) | SideRow::OpenDecision(_) | SideRow::WithdrawDecision(_) => {}
            }
        }
        Ok(false)
    }

    /// Notifies the session's readers, sends the transition's hint and, where a child's run has ended, nudges the parent
    /// (H4).
    async fn announce(&self, at: &SessionKey, transition: &Transition) {
        self.notifier.notify(at);
        if let Some(hint) = transition.hint {
            debug_assert_eq!(
                transition.head.run.status,
                RunStatus::Pending,
                "only a pending run needs an owner"
            );
            self.hint(at, hint.after_ms).await;
        }
        if let (true, Some(parent)) = (transition.head.tells_parent, &transition.head.parent)
            && let Err(error) = self.tell_parent(at, parent).await
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a parent could not be nudged about the end of a child's run; the sweep will do it"
            );
        }
    }

    /// Pauses for a random time that doubles with each try, up to a second.
    async fn pause(&self, attempt: u32) {
        let ms = self.env.pick(PAUSE_MS) << attempt.min(4);
        tokio::time::sleep(Duration::from_millis(ms.min(1_000))).await;
    }
}

enum WriteEnd {
    Committed,
    Lost(Obstacles),
    Again,
}
