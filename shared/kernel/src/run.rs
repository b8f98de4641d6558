//! The run: who may work on it (claim, renew, release), what it becomes (settle), and what the sweep does about it.
//!
//! Each rule takes the head as it was last seen and returns a transition. `None` means that there is nothing to write.

use std::borrow::Cow;

use crate::caps;
use crate::commit::{Commit, NewEvent, decide};
use crate::event::Kind;
use crate::head::{FailReason, Head, LastSettle, Lease, LeaseToken, Run, RunStatus, StateOwner};
use crate::ids::{CommitId, Millis, OwnerId, Seq};
use crate::refusal::Refusal;
use crate::transition::{Guard, SendHint, Transition};

/// A claim: for whom, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimRequest {
    /// Who claims.
    pub owner: OwnerId,
    /// The claim's id, the same when it is sent again.
    pub id: CommitId,
    /// The lease's length in milliseconds.
    pub lease_ms: u64,
}

/// Why a session's run cannot be claimed now. This is no error: hints come twice, late, or for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotClaimable {
    /// Nothing is pending.
    NothingPending,
    /// An attempt holds the lease until this moment.
    Held(Millis),
    /// The next attempt may not begin before this moment.
    TooEarly(Millis),
    /// H1: the run waits for something outside.
    Waits,
    /// C4, C6: the session is external or closed.
    NotOurs,
}

/// Whether a session's run can be claimed now: it is pending, or its owner's lease has run out, or it waits and the wait
/// has an end that has passed. C4: never an external session's, even if its head says pending.
///
/// # Errors
/// Why it cannot.
pub fn claimable(head: &Head, now: Millis) -> Result<(), NotClaimable> {
    if head.closed || head.state_owner == StateOwner::External {
        return Err(NotClaimable::NotOurs);
    }
    match (head.run.status, &head.lease) {
        (RunStatus::Pending, _) if now < head.run.not_before => {
            Err(NotClaimable::TooEarly(head.run.not_before))
        }
        (RunStatus::Running, Some(lease)) if now < lease.until => Err(NotClaimable::Held(lease.until)),
        (RunStatus::Pending | RunStatus::Running, _) => Ok(()),
        (RunStatus::Waiting, _) if head.run.not_before == Millis(0) => Err(NotClaimable::Waits),
        (RunStatus::Waiting, _) if now < head.run.not_before => {
            Err(NotClaimable::TooEarly(head.run.not_before))
        }
        (RunStatus::Waiting, _) => Ok(()),
        (RunStatus::Idle | RunStatus::Done | RunStatus::Failed, _) => Err(NotClaimable::NothingPending),
    }
}

/// Claims a run: epoch + 1, a new owner, attempt + 1.
///
/// # Errors
/// Why it cannot be claimed.
pub fn claim(head: &Head, now: Millis, request: &ClaimRequest) -> Result<Transition, NotClaimable> {
    claimable(head, now)?;
    let guards = vec![
        Guard::Open,
        Guard::Epoch(head.epoch),
        Guard::LeaseUntil(head.lease.as_ref().map(|lease| lease.until)),
        Guard::Run(head.run.clone()),
        // The watermark becomes the last seq, so this seq must still be the last.
        Guard::Seq(head.ledger.seq),
    ];
    let mut next = head.clone();
    next.epoch = head.epoch.next();
    next.lease = Some(Lease {
        owner: request.owner.clone(),
        claim: request.id.clone(),
        until: now.plus(request.lease_ms),
    });
    next.run.status = RunStatus::Running;
    next.run.waits = None;
    next.run.compact_next = false; // this attempt sees the request for a compaction
    next.run.attempts += 1;
    next.run.not_before = Millis(0);
    // A5: set by a run's first claim alone; a takeover keeps it, so queued input waits for the next run (D2).
    next.run.watermark = Some(head.run.watermark.unwrap_or(head.ledger.seq));
    // A lease that ends before the sweep's next look brings that look forward. An ordinary lease ends after it and leaves
    // the index as it is.
    let until = now.plus(request.lease_ms);
    next.due = Some(head.due.map_or(until, |due| due.min(until)));
    Ok(Transition::of_head(next, guards))
}

/// Extends a lease to `lease_ms` milliseconds from now; it never shortens one.
///
/// # Errors
/// [`Refusal::SessionClosed`], [`Refusal::Fenced`].
pub fn renew(head: &Head, now: Millis, token: &LeaseToken, lease_ms: u64) -> Result<Transition, Refusal> {
    head.check_open()?;
    head.check_lease(token)?;
    let mut next = head.clone();
    if let Some(lease) = &mut next.lease {
        lease.until = lease.until.max(now.plus(lease_ms));
    }
    Ok(Transition::of_head(next, vec![Guard::Open, Guard::Lease(token.owner.clone(), token.epoch)]))
}

/// S5: hands a run over. It is pending again, the attempt does not count, and a hint is due at once. `Ok(None)`: this owner
/// has handed it over already.
///
/// # Errors
/// [`Refusal::SessionClosed`], [`Refusal::Fenced`].
pub fn release(head: &Head, now: Millis, token: &LeaseToken) -> Result<Option<Transition>, Refusal> {
    head.check_open()?;
    if head.lease.is_none() && head.epoch == token.epoch && head.run.status == RunStatus::Pending {
        return Ok(None);
    }
    head.check_lease(token)?;
    let guards =
        vec![Guard::Open, Guard::Lease(token.owner.clone(), token.epoch), Guard::Run(head.run.clone())];
    let mut next = head.clone();
    next.lease = None;
    next.run.status = RunStatus::Pending;
    next.run.handovers += 1;
    // A loop that only ever hands over must end, so past the cap each hand-over keeps its attempt.
    if next.run.handovers <= caps::HANDOVERS {
        next.run.attempts = next.run.attempts.saturating_sub(1);
    }
    next.due = Some(now.plus(caps::PENDING_GRACE_MS));
    let mut transition = Transition::of_head(next, guards);
    transition.hint = Some(SendHint { after_ms: 0 });
    Ok(Some(transition))
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it was asked.
    Succeeded,
    /// It could not. If attempts are left, the next one waits for the backoff.
    Failed {
        /// The least time before the next attempt, in milliseconds.
        backoff_ms: u64,
    },
    /// A client asked it to stop, and it did.
    Cancelled,
}

/// The end of an attempt and its last events, which are written together.
#[derive(Clone, Debug, PartialEq)]
pub struct Settle<'a> {
    /// The commit's id.
    pub id: &'a CommitId,
    /// Whose attempt.
    pub token: &'a LeaseToken,
    /// How it ended.
    pub outcome: Outcome,
    /// The last events, the attempt's run.finished among them (S1).
    pub events: &'a [NewEvent],
}

/// What a settle does.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// It settles the attempt by this transition.
    Now(Transition),
    /// Nothing: the same owner has settled the attempt before, and the run got this status (I6).
    Before(RunStatus),
}

/// S: the settling table. `newer`: there is unanswered input above the run's watermark. `rest`: input of the run itself is
/// unanswered, or a turn is owed.
fn next_status(outcome: Outcome, attempts_left: bool, newer: bool, rest: bool) -> RunStatus {
    match (outcome, attempts_left, newer, rest) {
        (Outcome::Cancelled, _, true, _) => RunStatus::Pending, // later input starts the next run
        (Outcome::Cancelled, _, false, _) => RunStatus::Failed,
        (Outcome::Failed { .. }, true, _, _) => RunStatus::Pending,
        (Outcome::Failed { .. }, false, _, _) => RunStatus::Failed,
        // An attempt that leaves input of its own run or a turn open has not succeeded (A3): it counts as failed.
        (Outcome::Succeeded, true, _, true) => RunStatus::Pending,
        (Outcome::Succeeded, false, _, true) => RunStatus::Failed,
        (Outcome::Succeeded, _, true, false) => RunStatus::Pending,
        (Outcome::Succeeded, _, false, false) => RunStatus::Done,
    }
}

/// Settles an attempt (S1, S3, S4): its last events, the run's new status and the end of its lease in one write.
///
/// # Errors
/// [`Refusal::SessionClosed`], [`Refusal::Fenced`], and those of [`decide`] for its events.
pub fn settle(head: &Head, now: Millis, settle: &Settle<'_>) -> Result<Settled, Refusal> {
    if let Some(before) = &head.run.settled
        && before.epoch == settle.token.epoch
    {
        return Ok(Settled::Before(before.status));
    }
    head.check_open()?;
    head.check_lease(settle.token)?;
    let mut events = Cow::Borrowed(settle.events);
    if head.finished == head.epoch {
        events.to_mut().retain(|event| event.kind != Kind::RunFinished); // S1: it was committed before
    }
    let mut transition = if events.is_empty() {
        let lease = Guard::Lease(settle.token.owner.clone(), settle.token.epoch);
        Transition::of_head(head.clone(), vec![Guard::Seq(head.ledger.seq), Guard::Open, lease])
    } else {
        let commit = Commit { id: settle.id, lease: Some(settle.token), lease_ms: 0, events: &events };
        decide(head, now, &commit)?
    };
    // A cancel that arrives meanwhile is either seen here or comes too late.
    transition.guards.push(Guard::Run(head.run.clone()));
    settle_run(&mut transition, now, settle);
    Ok(Settled::Now(transition))
}

fn settle_run(transition: &mut Transition, now: Millis, settle: &Settle<'_>) {
    let head = &mut transition.head;
    let given = |seq: &Seq| Some(*seq) <= head.run.watermark;
    let rest = head.ledger.owed_turn || head.ledger.unanswered.iter().any(given);
    let retries = match settle.outcome {
        Outcome::Cancelled => false,
        Outcome::Failed { .. } => true,
        Outcome::Succeeded => rest,
    };
    // A failed attempt that was asked to stop is not tried again: that would make the cancel a no-op.
    let cancelled = settle.outcome == Outcome::Cancelled || (retries && head.run.cancel.is_some());
    let outcome = if cancelled { Outcome::Cancelled } else { settle.outcome };
    let retries = retries && !cancelled;
    let newer = if cancelled {
        head.ledger.unanswered.last().copied() > head.run.cancel.or(head.run.watermark)
    } else {
        head.newer_input()
    };
    let attempts_left = head.run.attempts < head.max_attempts;
    let status = match next_status(outcome, attempts_left, newer, rest) {
        RunStatus::Done if head.compact && head.run.compact_next => RunStatus::Pending,
        status => status,
    };
    let settled = Some(LastSettle { epoch: settle.token.epoch, status });
    head.lease = None;
    match (status, retries) {
        (RunStatus::Pending, false) => {
            head.start_run(now);
            head.run.settled = settled;
            transition.hint = Some(SendHint { after_ms: 0 });
        }
        (RunStatus::Pending, true) => {
            let after_ms = match outcome {
                Outcome::Failed { backoff_ms } => backoff_ms,
                Outcome::Succeeded | Outcome::Cancelled => 0,
            };
            head.run = Run { status, settled, not_before: now.plus(after_ms), ..head.run.clone() };
            head.due = Some(head.run.not_before.plus(caps::PENDING_GRACE_MS));
            transition.hint = Some(SendHint { after_ms });
        }
        (
            RunStatus::Idle | RunStatus::Running | RunStatus::Waiting | RunStatus::Done | RunStatus::Failed,
            _,
        ) => {
            let reason = match (status, outcome) {
                (RunStatus::Failed, Outcome::Cancelled) => Some(FailReason::Cancelled),
                (RunStatus::Failed, _) => Some(FailReason::AttemptsSpent),
                _ => None,
            };
            head.run = Run { status, settled, reason, cancel: None, ..head.run.clone() };
            head.end_run(now);
        }
    }
}

/// What the sweep does about a session that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Send a hint: its run is pending, or its lease has run out.
    Hint,
    /// Nothing before this moment: an attempt holds the lease, or the next attempt may not begin yet.
    Later(Millis),
    /// H4: nudge its parent: a run of this child has ended.
    TellParent,
    /// Nothing.
    Leave,
}

/// What the sweep does about a session now. A hint too many costs a failed claim; a hint too few would strand an input.
pub fn sweep(head: &Head, now: Millis) -> Sweep {
    if head.tells_parent {
        return Sweep::TellParent;
    }
    match claimable(head, now) {
        Ok(()) => Sweep::Hint,
        Err(NotClaimable::Held(until) | NotClaimable::TooEarly(until)) => Sweep::Later(until),
        Err(NotClaimable::NothingPending | NotClaimable::NotOurs | NotClaimable::Waits) => Sweep::Leave,
    }
}
