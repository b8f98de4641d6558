//! The only retry loop: read a head, ask the kernel, write under its guards, and begin again when somebody was faster.
//!
//! How a write's end is read (I3, I5, I6):
//! - a key is taken: the same digest is the first submission, another one is a conflict;
//! - a guard failed: ask the kernel again with the head that came back;
//! - a refusal that depends on the head: look the keys up first, it may be our own earlier commit;
//! - no answer: send the very same write again. If it then fails, see whether the ledger holds this commit.

mod answers;
mod engine;
mod replay;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keel_kernel::budget::Budget;
use keel_kernel::run::{self, ClaimRequest, NotClaimable, Outcome, Settle, Settled};
use keel_kernel::{
    Commit, CommitId, DedupeKey, Event, Head, KeyName, Kind, LeaseToken, Millis, NewEvent, OwnerId, Payload,
    Refusal, RunStatus, Seq, SessionId, WaitReason,
};

use crate::hints::{Hint, SharedHints};
use crate::notifier::CommitNotifier;
use crate::port::{Consistency, EventPage, SessionKey, Store, StoreError};
use engine::{Carried, Job, Step};
use keel_env::Env;
use keel_env::metric;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A ledger of at most this many events is read at once.
const SHORT: usize = 100;
/// Events of one page of a longer one; the store cuts a page at 1 MB.
const LONG: usize = 10_000;

/// What the loop is allowed.
#[derive(Clone, Copy, Debug)]
pub struct LedgerConfig {
    /// How long a claim, a renewal and an owner's commit hold the lease, in milliseconds.
    pub lease_ms: u64,
    /// How often a command may lose a race or find the store busy before it gives up.
    pub tries: u32,
}

impl Default for LedgerConfig {
    fn default() -> Self {
        Self { lease_ms: 60_000, tries: 12 }
    }
}

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The rules say no. Nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Every try met a busy store or a faster writer. Sending the command again is safe (I6).
    #[error("the session is busy")]
    Busy,
    /// The store failed. Sending the command again is safe (I6).
    #[error("the store failed")]
    Store(#[from] StoreError),
}

/// A commit in the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct Appended {
    /// I3: false where an earlier submission had written it.
    pub created: bool,
    /// The events as they are in the ledger, in the order they were sent.
    pub events: Vec<Event>,
    /// The head afterwards, or a later one.
    pub head: Head,
}

/// A run won by a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// What the owner shows from now on.
    pub token: LeaseToken,
    /// The head as claimed.
    pub head: Head,
}

/// What a settle made of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct SettledRun {
    /// The run's status.
    pub status: RunStatus,
    /// False where the same owner had settled before (I6).
    pub created: bool,
    /// The head afterwards.
    pub head: Head,
}

/// The ledger: every verb that the functions have.
#[derive(Clone)]
pub struct Ledger {
    store: Arc<dyn Store>,
    hints: SharedHints,
    notifier: CommitNotifier,
    env: Arc<dyn Env>,
    config: LedgerConfig,
}

impl Ledger {
    /// A ledger over a store.
    pub fn new(
        store: Arc<dyn Store>,
        hints: SharedHints,
        notifier: CommitNotifier,
        env: Arc<dyn Env>,
        config: LedgerConfig,
    ) -> Self {
        Self { store, hints, notifier, env, config }
    }

    /// Time and chance.
    pub fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// Where readers listen.
    pub fn notifier(&self) -> &CommitNotifier {
        &self.notifier
    }

    /// How long leases hold.
    pub fn lease_ms(&self) -> u64 {
        self.config.lease_ms
    }

    /// A new commit's id.
    fn commit_id(&self) -> CommitId {
        CommitId::parse(self.env.unique()).expect("hex digits are visible ASCII")
    }

    /// The session's head, strongly read.
    pub async fn head(&self, at: &SessionKey) -> Result<Head, LedgerError> {
        self.read_head(at).await?.ok_or(LedgerError::Refused(Refusal::NotFound))
    }

    /// Commits an input (D4, I3). Without a request id one is made.
    pub async fn input(
        &self,
        at: &SessionKey,
        payload: Payload,
        request_id: Option<DedupeKey>,
    ) -> Result<Appended, LedgerError> {
        self.without_token(at, Kind::UserMessage, payload, request_id).await
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
        let appended = self.commit(at, None, None, vec![event]).await?;
        if appended.created && kind == Kind::UserMessage {
            metric::count(metric::name::INPUTS, 1);
        }
        Ok(appended)
    }

    /// Commits events together (C, I). `known` is the owner's last head, if it has one: it saves the read.
    pub async fn commit(
        &self,
        at: &SessionKey,
        known: Option<Head>,
        lease: Option<LeaseToken>,
        events: Vec<NewEvent>,
    ) -> Result<Appended, LedgerError> {
        let id = self.commit_id();
        let lease_ms = self.config.lease_ms;
        let decide = |head: &Head, now: Millis, events: &[NewEvent]| {
            let commit = Commit { id: id.clone(), lease: lease.clone(), lease_ms, events: events.to_vec() };
            keel_kernel::commit::decide(head, now, &commit).map(Step::<std::convert::Infallible>::Write)
        };
        match self.carry_out(at, known, Job::new(&id, events), decide).await? {
            Carried::Wrote { events, head, created, .. } => Ok(Appended { created, events, head }),
            Carried::Done(never, _) => match never {},
        }
    }

    /// Claims the session's run for `owner`, if there is one to claim.
    pub async fn claim(
        &self,
        at: &SessionKey,
        owner: &OwnerId,
    ) -> Result<Result<Claimed, NotClaimable>, LedgerError> {
        let id = self.commit_id();
        let request = ClaimRequest { owner: owner.clone(), id: id.clone(), lease_ms: self.config.lease_ms };
        let held = AtomicBool::new(false);
        let decide = |head: &Head, now: Millis, _: &[NewEvent]| {
            held.store(head.lease.is_some(), Ordering::Relaxed);
            if head.lease.as_ref().is_some_and(|lease| lease.claim == id) {
                return Ok(Step::Done(None)); // the answer was lost, the claim was not
            }
            Ok(match run::claim(head, now, &request) {
                Ok(transition) => Step::Write(transition),
                Err(not) => Step::Done(Some(not)),
            })
        };
        let head = match self.carry_out(at, None, Job::new(&id, Vec::new()), decide).await? {
            Carried::Done(Some(not), _) => return Ok(Err(not)),
            Carried::Done(None, head) => head,
            Carried::Wrote { head, .. } => {
                if held.into_inner() {
                    metric::count(metric::name::TAKEOVERS, 1);
                }
                head
            }
        };
        Ok(Ok(Claimed { token: LeaseToken { owner: owner.clone(), epoch: head.epoch }, head }))
    }

    /// Keeps a lease. The head says, among the rest, whether somebody asked to cancel.
    pub async fn renew(
        &self,
        at: &SessionKey,
        known: Option<Head>,
        token: &LeaseToken,
    ) -> Result<Head, LedgerError> {
        let lease_ms = self.config.lease_ms;
        self.head_only(at, known, |head, now| run::renew(head, now, token, lease_ms).map(Some)).await
    }

    /// S5: hands a run over.
    pub async fn release(
        &self,
        at: &SessionKey,
        known: Option<Head>,
        token: &LeaseToken,
    ) -> Result<Head, LedgerError> {
        self.head_only(at, known, |head, now| run::release(head, now, token)).await
    }

    /// Queues a run where input or a turn is owed. The flag says whether a run is live now.
    pub async fn queue_run(&self, at: &SessionKey) -> Result<Head, LedgerError> {
        self.head_only(at, None, run::queue).await
    }

    /// Asks the running attempt to stop, or un-queues a pending run.
    pub async fn cancel(&self, at: &SessionKey) -> Result<Head, LedgerError> {
        self.head_only(at, None, run::cancel).await
    }

    /// C6: closes the session.
    pub async fn close(&self, at: &SessionKey) -> Result<Head, LedgerError> {
        self.head_only(at, None, |head, now| Ok(run::close(head, now))).await
    }

    /// H1: parks a run that waits. False: something happened since the owner looked (`seen` nudges), so look again.
    pub async fn park(
        &self,
        at: &SessionKey,
        token: &LeaseToken,
        seen: u64,
        reason: WaitReason,
        until: Option<Millis>,
    ) -> Result<bool, LedgerError> {
        let decide = |head: &Head, _: Millis| {
            // An answer that was lost: this very park stands in the head.
            let parked = head.run.waits == Some(reason) && head.epoch == token.epoch;
            if parked { Ok(None) } else { run::park(head, token, seen, reason, until) }
        };
        let head = self.head_only(at, None, decide).await?;
        Ok(head.run.status == RunStatus::Waiting)
    }

    /// H1: something happened that the session's run may wait for.
    pub async fn nudge(&self, at: &SessionKey) -> Result<Head, LedgerError> {
        self.head_only(at, None, |head, now| Ok(run::nudge(head, now))).await
    }

    /// H5: sets what the session may spend.
    pub async fn set_budget(&self, at: &SessionKey, budget: Budget) -> Result<Head, LedgerError> {
        self.head_only(at, None, |head, now| run::set_budget(head, now, budget)).await
    }

    /// K3: asks for a compaction.
    pub async fn ask_compaction(&self, at: &SessionKey) -> Result<Head, LedgerError> {
        self.head_only(at, None, run::ask_compaction).await
    }

    /// H4: tells the parent that a run of this child ended. What cannot be told is told by the sweep.
    ///
    /// Boxed, for what is told may be told on: a parent can be a child too.
    pub fn tell_parent<'a>(
        &'a self,
        at: &'a SessionKey,
        parent: &'a SessionId,
    ) -> BoxFuture<'a, Result<(), LedgerError>> {
        Box::pin(async move {
            let parent = SessionKey { tenant: at.tenant.clone(), session: parent.clone() };
            match self.nudge(&parent).await {
                Ok(_) | Err(LedgerError::Refused(_)) => {} // a parent that is closed or gone hears nothing
                Err(error) => return Err(error),
            }
            self.head_only(at, None, |head, _| Ok(run::told_parent(head))).await.map(drop)
        })
    }

    async fn head_only(
        &self,
        at: &SessionKey,
        known: Option<Head>,
        decide: impl Fn(&Head, Millis) -> Result<Option<keel_kernel::Transition>, Refusal> + Send + Sync,
    ) -> Result<Head, LedgerError> {
        let id = self.commit_id();
        let step = |head: &Head, now: Millis, _: &[NewEvent]| {
            Ok(decide(head, now)?.map_or(Step::Done(()), Step::Write))
        };
        match self.carry_out(at, known, Job::new(&id, Vec::new()), step).await? {
            Carried::Done((), head) | Carried::Wrote { head, .. } => Ok(head),
        }
    }

    /// Settles an attempt with its last events (S1, S3, S4).
    ///
    /// With `only_at`, only while the last seq is still that one: `Ok(None)` says that the ledger has moved on.
    pub async fn settle(
        &self,
        at: &SessionKey,
        known: Option<Head>,
        token: &LeaseToken,
        outcome: Outcome,
        events: Vec<NewEvent>,
        only_at: Option<Seq>,
    ) -> Result<Option<SettledRun>, LedgerError> {
        let id = self.commit_id();
        let decide = |head: &Head, now: Millis, events: &[NewEvent]| {
            let settle = Settle { id: id.clone(), token: token.clone(), outcome, events: events.to_vec() };
            match run::settle(head, now, &settle)? {
                Settled::Before(status) => Ok(Step::Done(Some(status))),
                Settled::Now(_) if only_at.is_some_and(|seq| seq != head.ledger.seq) => Ok(Step::Done(None)),
                Settled::Now(transition) => Ok(Step::Write(transition)),
            }
        };
        match self.carry_out(at, known, Job::new(&id, events), decide).await? {
            Carried::Done(None, _) => Ok(None),
            Carried::Done(Some(status), head) => Ok(Some(SettledRun { status, created: false, head })),
            Carried::Wrote { head, created, .. } => {
                if created {
                    metric::count_by(metric::name::SETTLED, head.run.status.as_str());
                }
                Ok(Some(SettledRun { status: head.run.status, created, head }))
            }
        }
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

    /// Sends a hint. What cannot be sent is found by the sweep.
    pub async fn hint(&self, at: &SessionKey, after_ms: u64) {
        if let Err(error) = self.hints.send(&Hint::about(at), after_ms).await {
            tracing::warn!(
                tenant = %at.tenant, session = %at.session, error = &error as &dyn std::error::Error,
                "a hint was not queued; the sweep will find the session"
            );
        }
    }
}

/// How many events follow `after` without a gap.
fn contiguous(events: &[Event], after: Seq) -> usize {
    let expected = (after.0 + 1)..;
    events.iter().zip(expected).take_while(|(event, seq)| event.seq.0 == *seq).count()
}
