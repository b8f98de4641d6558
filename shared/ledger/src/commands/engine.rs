//! One command from first look to last try.

use std::collections::BTreeMap;
use std::time::Duration;

use keel_kernel::{
    CommitId, DedupeKey, Event, Head, KeyName, Millis, NewEvent, Refusal, RunStatus, Seq, Transition,
};

use super::{Ledger, LedgerError};
use crate::port::{Consistency, EventPage, KeyRow, Obstacles, SessionKey, StoreError, Written};
use keel_env::metric;

/// What a command's rule says of a head.
pub(super) enum Step<T> {
    /// Write this.
    Write(Transition),
    /// There is nothing to write.
    Done(T),
}

/// How a command ended.
pub(super) enum Carried<T> {
    /// It is in the ledger, by this call (`created`) or an earlier one.
    Wrote { events: Vec<Event>, head: Head, created: bool },
    /// There was nothing to write.
    Done(T, Head),
}

/// A command's events, and what became of them so far.
pub(super) struct Job<'a> {
    pub(super) id: &'a CommitId,
    /// What is still to be written, with its place in what was sent.
    pub(super) events: Vec<(usize, NewEvent)>,
    /// How many events were sent.
    pub(super) size: usize,
    /// Events that an earlier submission wrote, by their place in what was sent.
    pub(super) found: BTreeMap<usize, Event>,
}

impl<'a> Job<'a> {
    pub(super) fn new(id: &'a CommitId, events: Vec<NewEvent>) -> Self {
        let size = events.len();
        Self { id, events: events.into_iter().enumerate().collect(), size, found: BTreeMap::new() }
    }

    /// Everything that was sent is in the ledger by earlier submissions.
    fn is_replayed(&self) -> bool {
        self.size > 0 && self.found.len() == self.size
    }

    fn ended<T>(self, events: Vec<Event>, head: Head, created: bool) -> Carried<T> {
        let mut all = self.found;
        all.extend(self.events.iter().map(|(place, _)| *place).zip(events));
        Carried::Wrote { events: all.into_values().collect(), head, created }
    }
}

/// How often a read is tried: about a second in all, for a caller waits.
const READ_TRIES: u32 = 5;

/// Lost races that are run again without a pause.
const IMMEDIATE_RETRIES: u32 = 2;

/// Jitter between tries, in milliseconds.
const PAUSE_MS: std::ops::RangeInclusive<u64> = 10..=100;

impl Ledger {
    /// Carries a command out: `decide` is asked about each head that is met, until a write succeeds or there is nothing
    /// to write.
    pub(super) async fn carry_out<T>(
        &self,
        at: &SessionKey,
        known: Option<Head>,
        job: Job<'_>,
        decide: impl Fn(&Head, Millis, &[NewEvent]) -> Result<Step<T>, Refusal> + Send + Sync,
    ) -> Result<Carried<T>, LedgerError> {
        let carried = self.try_on(at, known, job, decide).await;
        if let Err(LedgerError::Refused(Refusal::Fenced { .. })) = carried {
            metric::count(metric::name::FENCED, 1);
        }
        carried
    }

    async fn try_on<T>(
        &self,
        at: &SessionKey,
        known: Option<Head>,
        mut job: Job<'_>,
        decide: impl Fn(&Head, Millis, &[NewEvent]) -> Result<Step<T>, Refusal> + Send + Sync,
    ) -> Result<Carried<T>, LedgerError> {
        // Its guards make a write of a stale head fail, so the first look may be stale and costs half.
        let first_look = match known {
            Some(head) => Some(head),
            None => self.read(|| self.store.head_eventual(at)).await?,
        };
        let mut fresh = first_look.is_none();
        let mut head = match first_look {
            Some(head) => head,
            None => self.head(at).await?,
        };
        let mut seen = Obstacles::default();
        for attempt in 0..self.config.tries {
            let events: Vec<NewEvent> = job.events.iter().map(|(_, event)| event.clone()).collect();
            let step = decide(&head, self.env.now(), &events);
            let concludes = match &step {
                Ok(Step::Write(_)) => false,
                Ok(Step::Done(_)) => true,
                Err(refusal) => refusal.depends_on_head(),
            };
            if concludes && !fresh {
                // What the caller remembered, or an eventual read showed, may be older than the ledger: nothing is concluded from it.
                (head, fresh) = (self.head(at).await?, true);
                continue;
            }
            if let Ok(Step::Done(done)) = step {
                return Ok(Carried::Done(done, head));
            }
            // I3, I5, I6: a key that is taken answers before any refusal that another head could have avoided.
            if let Err(refusal) = &step
                && refusal.depends_on_head()
            {
                seen.keys = self.taken_keys(at, &job).await?;
            }
            if !seen.keys.is_empty() {
                let ours = self.recognise(at, &mut job, std::mem::take(&mut seen.keys)).await?;
                if job.is_replayed() {
                    let head = self.head(at).await?;
                    return Ok(job.ended(Vec::new(), head, ours));
                }
                continue; // the rest of the events is new
            }
            let transition = match step {
                Ok(Step::Write(transition)) => transition,
                Ok(Step::Done(done)) => return Ok(Carried::Done(done, head)),
                Err(refusal) => return Err(refusal.into()),
            };
            match self.write(at, &head, &transition, job.id, attempt).await? {
                WriteEnd::Committed => {
                    self.announce(at, &transition).await;
                    return Ok(job.ended(transition.events, transition.head, true));
                }
                WriteEnd::Lost(obstacles) => {
                    if let Some(call) = &obstacles.call
                        && obstacles.keys.is_empty()
                    {
                        seen.keys = self.taken_keys(at, &job).await?;
                        if seen.keys.is_empty() {
                            return Err(Refusal::CallIdReused(call.to_string()).into());
                        }
                    }
                    seen.keys.extend(obstacles.keys);
                    // One lost race is run again at once. Who loses more is in a crowd, and the crowd must spread.
                    if attempt >= IMMEDIATE_RETRIES {
                        self.pause(attempt - IMMEDIATE_RETRIES).await;
                    }
                    (head, fresh) = match obstacles.head.filter(|_| attempt < IMMEDIATE_RETRIES) {
                        Some(head) => (head, true),
                        None => (self.head(at).await?, true),
                    };
                }
                WriteEnd::Again => self.pause(attempt).await,
            }
        }
        Err(LedgerError::Busy)
    }

    /// Sends one transition until the store says how it ended.
    async fn write(
        &self,
        at: &SessionKey,
        before: &Head,
        transition: &Transition,
        id: &CommitId,
        attempt: u32,
    ) -> Result<WriteEnd, LedgerError> {
        // A token stands for one transition: the next transition of the same commit gets another. Our ids have 32 characters
        // and differ in any of them, so none may be cut; DynamoDB takes 36.
        let token = format!("{id}-{attempt}");
        let mut unanswered = false;
        for resend in 0..self.config.tries {
            match self.store.write(at, before, transition, &token).await {
                Ok(Written::Committed) => return Ok(WriteEnd::Committed),
                Ok(Written::Lost(_)) if unanswered && self.holds(at, transition).await? => {
                    return Ok(WriteEnd::Committed);
                }
                Ok(Written::Lost(obstacles)) => return Ok(WriteEnd::Lost(obstacles)),
                Ok(Written::Conflict) if !unanswered => return Ok(WriteEnd::Again),
                Ok(Written::Conflict) => {}
                Err(error @ StoreError::Corrupt(_)) => return Err(error.into()),
                Err(StoreError::NotWritten(operation, why))
                    if unanswered && resend + 1 == self.config.tries =>
                {
                    return Err(StoreError::Unknown(operation, why).into()); // an earlier try may have been written
                }
                Err(error) if resend + 1 == self.config.tries => return Err(error.into()),
                Err(error) => {
                    unanswered |= matches!(error, StoreError::Unknown(..));
                    tracing::debug!(
                        tenant = %at.tenant, session = %at.session, resend,
                        error = &error as &dyn std::error::Error, "a write is sent again"
                    );
                }
            }
            self.pause(resend).await;
        }
        Err(LedgerError::Busy)
    }

    /// Reads, and reads again where the store failed for a moment: a read has no effect, so any failure may be retried.
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
                        "a read is tried again"
                    );
                }
                ended => return Ok(ended?),
            }
            self.pause(attempt).await;
        }
        Err(LedgerError::Busy)
    }

    /// The head, strongly read.
    pub(super) async fn read_head(&self, at: &SessionKey) -> Result<Option<Head>, LedgerError> {
        self.read(|| self.store.head(at)).await
    }

    /// The rows of those keys that are taken.
    pub(super) async fn read_keys(
        &self,
        at: &SessionKey,
        keys: &[(KeyName, DedupeKey)],
    ) -> Result<Vec<KeyRow>, LedgerError> {
        self.read(|| self.store.keys(at, keys)).await
    }

    /// A page as the store gives it.
    pub(super) async fn page(
        &self,
        at: &SessionKey,
        after: Seq,
        limit: usize,
        consistency: Consistency,
    ) -> Result<EventPage, LedgerError> {
        self.read(|| self.store.events(at, after, limit, consistency)).await
    }

    /// I6: whether the ledger holds this very transition's events, whose answer was lost.
    async fn holds(&self, at: &SessionKey, transition: &Transition) -> Result<bool, LedgerError> {
        let Some(first) = transition.events.first() else { return Ok(false) };
        let before = Seq(first.seq.0 - 1);
        let page = self.page(at, before, 1, Consistency::Strong).await?;
        Ok(page.events.first().is_some_and(|event| event.commit == first.commit))
    }

    /// Tells readers and, where a run waits for an owner, the queue.
    async fn announce(&self, at: &SessionKey, transition: &Transition) {
        self.notifier.notify(at);
        if let Some(hint) = transition.hint {
            debug_assert_eq!(
                transition.head.run.status,
                RunStatus::Pending,
                "only a pending run wants an owner"
            );
            self.hint(at, hint.after_ms).await;
        }
        if let (true, Some(parent)) = (transition.head.tells_parent, &transition.head.parent)
            && let Err(error) = self.tell_parent(at, parent).await
        {
            tracing::warn!(
                tenant = %at.tenant, session = %at.session, error = &error as &dyn std::error::Error,
                "a parent was not told of an end; the sweep will tell it"
            );
        }
    }

    /// Waits a jittered moment that grows with the tries, a second at most.
    pub(super) async fn pause(&self, attempt: u32) {
        let ms = self.env.pick(PAUSE_MS) << attempt.min(4);
        tokio::time::sleep(Duration::from_millis(ms.min(1_000))).await;
    }
}

enum WriteEnd {
    Committed,
    Lost(Obstacles),
    Again,
}
