//! What an owner does: claim, renew, commit, park, settle, hand over, and publish partials. Every write carries the owner's
//! lease token (C2).

use std::sync::atomic::{AtomicBool, Ordering};

use keel_env::metric;
use keel_kernel::partial::PartialChunk;
use keel_kernel::run::{self, ClaimRequest, NotClaimable, Outcome, Settle, Settled};
use keel_kernel::waiting;
use keel_kernel::{Commit, Event, Head, LeaseToken, Millis, NewEvent, OwnerId, RunStatus, Seq, WaitReason};

use super::engine::{Carried, Job, Step, Wrote};
use super::read_set::OfHead;
use super::{Ledger, LedgerError};
use crate::port::SessionKey;

/// A commit that is in the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct Appended {
    /// I3: false where an earlier submission had written it.
    pub created: bool,
    /// The events as they are in the ledger, in the order they were sent.
    pub events: Vec<Event>,
    /// The head afterwards, or a later one.
    pub head: Head,
}

/// A run that a claim has taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// The lease token, which the owner sends with each of its writes.
    pub token: LeaseToken,
    /// The head after the claim.
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

impl Ledger {
    /// Commits events together (C, I). `known` is the owner's last head; it saves the first read.
    ///
    /// # Errors
    /// Those of [`decide`](keel_kernel::commit::decide), and
    /// [`IdempotencyConflict`](keel_kernel::Refusal::IdempotencyConflict) (I5).
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
            let commit = Commit { id: &id, lease: lease.as_ref(), lease_ms, events };
            keel_kernel::commit::decide(head, now, &commit).map(Step::<std::convert::Infallible>::Write)
        };
        match self.carry_out(at, (&OfHead, known), Job::new(&id, events), decide).await? {
            Carried::Wrote(Wrote { events, head, created, .. }) => Ok(Appended { created, events, head }),
            Carried::Done(never, _) => match never {},
        }
    }

    /// Claims the session's run for `owner`. The inner `Err` says why there is nothing to claim now.
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
                return Ok(Step::Done(None)); // this very claim was written, and its answer was lost
            }
            Ok(match run::claim(head, now, &request) {
                Ok(transition) => Step::Write(transition),
                Err(not) => Step::Done(Some(not)),
            })
        };
        let head = match self.carry_out(at, (&OfHead, None), Job::without_events(&id), decide).await? {
            Carried::Done(Some(not), _) => return Ok(Err(not)),
            Carried::Done(None, head) => head,
            Carried::Wrote(Wrote { head, .. }) => {
                if held.into_inner() {
                    metric::count(metric::name::TAKEOVERS, 1);
                }
                head
            }
        };
        Ok(Ok(Claimed { token: LeaseToken { owner: owner.clone(), epoch: head.epoch }, head }))
    }

    /// Extends a lease. The returned head also says whether somebody asked to cancel.
    pub async fn renew(
        &self,
        at: &SessionKey,
        known: Option<Head>,
        token: &LeaseToken,
    ) -> Result<Head, LedgerError> {
        let lease_ms = self.config.lease_ms;
        self.head_only(at, known, |head, now| run::renew(head, now, token, lease_ms).map(Some)).await
    }

    /// S5: hands a run over: see [`run::release`].
    pub async fn release(
        &self,
        at: &SessionKey,
        known: Option<Head>,
        token: &LeaseToken,
    ) -> Result<Head, LedgerError> {
        self.head_only(at, known, |head, now| run::release(head, now, token)).await
    }

    /// H1: parks a run: see [`waiting::park`]. False: something has happened since the owner looked, so it must look again.
    pub async fn park(
        &self,
        at: &SessionKey,
        token: &LeaseToken,
        seen: u64,
        reason: WaitReason,
        until: Option<Millis>,
    ) -> Result<bool, LedgerError> {
        let decide = |head: &Head, _: Millis| {
            // The answer of an earlier try was lost: the head shows this very park.
            let parked = head.run.waits == Some(reason) && head.epoch == token.epoch;
            if parked { Ok(None) } else { waiting::park(head, token, seen, reason, until) }
        };
        let head = self.head_only(at, None, decide).await?;
        Ok(head.run.status == RunStatus::Waiting)
    }

    /// Settles an attempt with its last events (S1, S3, S4).
    ///
    /// `only_at`: settle only while this is the last seq. `Ok(None)`: it no longer is.
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
            let settle = Settle { id: &id, token, outcome, events };
            match run::settle(head, now, &settle)? {
                Settled::Before(status) => Ok(Step::Done(Some(status))),
                Settled::Now(_) if only_at.is_some_and(|seq| seq != head.ledger.seq) => Ok(Step::Done(None)),
                Settled::Now(transition) => Ok(Step::Write(transition)),
            }
        };
        match self.carry_out(at, (&OfHead, known), Job::new(&id, events), decide).await? {
            Carried::Done(None, _) => Ok(None),
            Carried::Done(Some(status), head) => Ok(Some(SettledRun { status, created: false, head })),
            Carried::Wrote(Wrote { head, created, .. }) => {
                if created {
                    metric::count_by(metric::name::SETTLED, head.run.status.as_str());
                }
                Ok(Some(SettledRun { status: head.run.status, created, head }))
            }
        }
    }

    /// R3: publishes a chunk of a generation's text to streams, while the owner holds the lease. `known` is the owner's
    /// last head. It is not tried again: partials are no part of the ledger.
    ///
    /// # Errors
    /// [`SessionClosed`](keel_kernel::Refusal::SessionClosed), [`Fenced`](keel_kernel::Refusal::Fenced), or the store
    /// failed.
    pub async fn publish_partial(
        &self,
        at: &SessionKey,
        known: Option<Head>,
        token: &LeaseToken,
        chunk: &PartialChunk,
    ) -> Result<(), LedgerError> {
        let head = match known {
            Some(head) => head,
            None => self.head(at).await?,
        };
        head.check_open()?;
        head.check_lease(token)?; // a fenced owner sends readers nothing either
        debug_assert_eq!(chunk.epoch, token.epoch, "a chunk is its owner's");
        self.store.put_partial(at, self.env.now(), chunk).await?;
        self.notifier.notify(at);
        Ok(())
    }

    /// R3: at most 100 chunks after a place, in order, each with its own place. The place `""` is before the first chunk
    /// that has not expired.
    pub async fn partials(
        &self,
        at: &SessionKey,
        after: &str,
    ) -> Result<Vec<(String, PartialChunk)>, LedgerError> {
        self.read(|| self.store.partials(at, after)).await
    }

    /// R3, R3a: the place where a reader that comes now begins: after every generation that has begun.
    pub async fn partials_from_now(&self, at: &SessionKey) -> Result<String, LedgerError> {
        self.read(|| self.store.partials_from_now(at)).await
    }
}
