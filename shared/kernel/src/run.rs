//! Who may work on a run, and what it becomes: claim, renew, release, settle, and what clients ask of it.

use std::borrow::Cow;

use crate::budget::Budget;
use crate::caps;
use crate::commit::{Commit, NewEvent, decide};
use crate::decision::Decision;
use crate::event::Kind;
use crate::head::{FailReason, Head, LastSettle, Lease, LeaseToken, Run, RunStatus, StateOwner, WaitReason};
use crate::ids::{CommitId, Millis, OwnerId, Seq};
use crate::refusal::Refusal;
use crate::transition::{Guard, SendHint, SideRow, Transition};

/// How long a claim or a renewal holds, and for whom.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimRequest {
    /// Who claims.
    pub owner: OwnerId,
    /// The claim's own name, kept when it is sent again.
    pub id: CommitId,
    /// The lease's length in milliseconds.
    pub lease_ms: u64,
}

/// Why a session is not for claiming now. Not an error: hints come twice, late, or for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotClaimable {
    /// Nothing is pending.
    NothingPending,
    /// An attempt holds the lease until then.
    Held(Millis),
    /// The next attempt waits until then.
    TooEarly(Millis),
    /// H1: something outside must happen first.
    Waits,
    /// C4, C6: external or closed.
    NotOurs,
}

/// Whether a session is for claiming now: a pending run, one whose owner's lease has run out, or one that waited long
/// enough. C4: never an external session, even if its row says pending.
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
pub fn claim(head: &Head, now: Millis, request: &ClaimRequest) -> Result<Transition, NotClaimable> {
    claimable(head, now)?;
    let guards = vec![
        Guard::Open,
        Guard::Epoch(head.epoch),
        Guard::LeaseUntil(head.lease.as_ref().map(|lease| lease.until)),
        Guard::Run(head.run.clone()),
        // The watermark is the last seq, so the seq must still be it.
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
    next.run.compact_next = false; // this attempt sees that it is asked for
    next.run.attempts += 1;
    next.run.not_before = Millis(0);
    // A5: set by a run's first claim alone; a takeover keeps it, so queued input waits for the next run (D2).
    next.run.watermark = Some(head.run.watermark.unwrap_or(head.ledger.seq));
    // A short lease is looked after sooner; an ordinary one leaves the index as it is.
    let until = now.plus(request.lease_ms);
    next.due = Some(head.due.map_or(until, |due| due.min(until)));
    Ok(Transition::of_head(next, guards))
}

/// Keeps a lease.
pub fn renew(head: &Head, now: Millis, token: &LeaseToken, lease_ms: u64) -> Result<Transition, Refusal> {
    head.check_open()?;
    head.check_lease(token)?;
    let mut next = head.clone();
    if let Some(lease) = &mut next.lease {
        lease.until = lease.until.max(now.plus(lease_ms));
    }
    Ok(Transition::of_head(next, vec![Guard::Open, Guard::Lease(token.owner.clone(), token.epoch)]))
}

/// S5: hands a run over. The attempt is given back, and a hint is due at once.
///
/// `Ok(None)`: this token has released already.
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

/// H1: parks a run that can do nothing before something outside happens. The attempt is given back. `until` is when the
/// run is looked at even if nothing does.
///
/// `seen` are the nudges of the head that the owner had read before it looked at what the run waits for. `Ok(None)`: there
/// was another since, or a cancel; look again.
pub fn park(
    head: &Head,
    token: &LeaseToken,
    seen: u64,
    reason: WaitReason,
    until: Option<Millis>,
) -> Result<Option<Transition>, Refusal> {
    head.check_open()?;
    head.check_lease(token)?;
    if head.run.nudges != seen || head.run.cancel.is_some() {
        return Ok(None);
    }
    let guards =
        vec![Guard::Open, Guard::Lease(token.owner.clone(), token.epoch), Guard::Run(head.run.clone())];
    let mut next = head.clone();
    next.lease = None;
    next.run.status = RunStatus::Waiting;
    next.run.waits = Some(reason);
    next.run.attempts = next.run.attempts.saturating_sub(1);
    next.run.not_before = until.unwrap_or(Millis(0));
    next.due = until;
    Ok(Some(Transition::of_head(next, guards)))
}

/// H1: something happened that the run may wait for. A waiting run becomes pending; an owner at work must look again
/// before it parks.
///
/// A pending run is told as well: who claims it while this is being written might have looked before.
///
/// `None`: nobody waits, now or soon.
pub fn nudge(head: &Head, now: Millis) -> Option<Transition> {
    if head.closed || !head.run.status.is_live() {
        return None;
    }
    let mut next = head.clone();
    next.run.nudges += 1;
    let mut hint = None;
    if head.run.status == RunStatus::Waiting {
        next.resume(now);
        hint = Some(SendHint { after_ms: 0 });
    }
    let mut transition = Transition::of_head(next, vec![Guard::Open, Guard::Run(head.run.clone())]);
    transition.hint = hint;
    Some(transition)
}

/// H5: sets what the session may spend. A run that waits looks again where there is some.
pub fn set_budget(head: &Head, now: Millis, budget: Budget) -> Result<Option<Transition>, Refusal> {
    head.check_open()?;
    if head.budget == budget {
        return Ok(None);
    }
    let mut next = head.clone();
    next.budget = budget;
    let mut hint = None;
    match head.run.status {
        // Whatever it waits for: a child that spent its share may be among it.
        RunStatus::Waiting if !next.is_spent() => {
            next.resume(now);
            hint = Some(SendHint { after_ms: 0 });
        }
        RunStatus::Running => next.run.nudges += 1, // it may be about to wait
        _ => {}
    }
    let mut transition = Transition::of_head(next, vec![Guard::Open, Guard::Run(head.run.clone())]);
    transition.hint = hint;
    Ok(Some(transition))
}

/// K3: asks for a compaction: by the next attempt of this run, or by a run for nothing else. `Ok(None)`: it is asked for.
pub fn ask_compaction(head: &Head, now: Millis) -> Result<Option<Transition>, Refusal> {
    head.check_native()?;
    head.check_open()?;
    if head.compact && head.run.status.is_live() {
        return Ok(None);
    }
    let mut next = head.clone();
    let mut hint = None;
    if !head.run.status.is_live() {
        next.start_run(now);
        hint = Some(SendHint { after_ms: 0 });
    }
    next.run.compact_next = head.run.status == RunStatus::Running;
    next.compact = true;
    let guards = vec![Guard::Open, Guard::Seq(head.ledger.seq), Guard::Run(head.run.clone())];
    let mut transition = Transition::of_head(next, guards);
    transition.hint = hint;
    Ok(Some(transition))
}

/// H4: the parent was told of the ends so far. `None`: there is nothing to tell.
pub fn told_parent(head: &Head) -> Option<Transition> {
    if !head.tells_parent {
        return None;
    }
    let mut next = head.clone();
    next.tells_parent = false;
    if !head.run.status.is_live() {
        next.due = None;
    }
    // A run that ends meanwhile is another end.
    Some(Transition::of_head(next, vec![Guard::Run(head.run.clone())]))
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it was asked.
    Succeeded,
    /// It could not; if budget is left, the next attempt waits this many milliseconds.
    Failed {
        /// Milliseconds before the next attempt.
        backoff_ms: u64,
    },
    /// A client asked it to stop, and it did.
    Cancelled,
}

/// An attempt's end: the last events with it, all or nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Settle<'a> {
    /// The commit's own name.
    pub id: &'a CommitId,
    /// Whose attempt.
    pub token: &'a LeaseToken,
    /// How it ended.
    pub outcome: Outcome,
    /// The last events, the attempt's run.finished among them (S1).
    pub events: &'a [NewEvent],
}

/// What settling makes of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// To be written.
    Now(Transition),
    /// This token settled before, to this status (I6).
    Before(RunStatus),
}

/// S: the settling table. `newer` is input that this run was not given; `rest` is what it was given and left open.
fn next_status(outcome: Outcome, budget_left: bool, newer: bool, rest: bool) -> RunStatus {
    match (outcome, budget_left, newer, rest) {
        (Outcome::Cancelled, _, true, _) => RunStatus::Pending, // later input starts the next run
        (Outcome::Cancelled, _, false, _) => RunStatus::Failed,
        (Outcome::Failed { .. }, true, _, _) => RunStatus::Pending,
        (Outcome::Failed { .. }, false, _, _) => RunStatus::Failed,
        // A success that leaves its own input or turn open is none (A3): it spends the budget like a failure.
        (Outcome::Succeeded, true, _, true) => RunStatus::Pending,
        (Outcome::Succeeded, false, _, true) => RunStatus::Failed,
        (Outcome::Succeeded, _, true, false) => RunStatus::Pending,
        (Outcome::Succeeded, _, false, false) => RunStatus::Done,
    }
}

/// Settles an attempt (S1, S3, S4): its last events, the run's new status and the end of its lease in one write.
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
    let budget_left = head.run.attempts < head.max_attempts;
    let status = match next_status(outcome, budget_left, newer, rest) {
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

/// Queues a run where input or a turn is owed. `Ok(None)`: nothing is, or a run is live.
pub fn queue(head: &Head, now: Millis) -> Result<Option<Transition>, Refusal> {
    head.check_native()?;
    head.check_open()?;
    if head.run.status.is_live() || !head.is_owed() {
        return Ok(None);
    }
    let mut next = head.clone();
    next.start_run(now);
    let guards = vec![Guard::Open, Guard::Seq(head.ledger.seq), Guard::Run(head.run.clone())];
    let mut transition = Transition::of_head(next, guards);
    transition.hint = Some(SendHint { after_ms: 0 });
    Ok(Some(transition))
}

/// Asks the running attempt to stop, or un-queues a pending run. A waiting run is woken to be aborted. `Ok(None)`: there
/// is nothing to cancel (any more).
pub fn cancel(head: &Head, now: Millis) -> Result<Option<Transition>, Refusal> {
    head.check_native()?;
    head.check_open()?;
    let mut next = head.clone();
    let mut hint = None;
    match (head.run.status, head.run.cancel) {
        (RunStatus::Running, None) => next.run.cancel = Some(head.ledger.seq),
        // Its calls want their results, its children an end (H4): an owner sees to both.
        (RunStatus::Pending, None) if !head.ledger.open_calls.is_empty() => {
            next.run.cancel = Some(head.ledger.seq);
        }
        (RunStatus::Waiting, _) => {
            next.run.cancel = Some(head.ledger.seq);
            next.resume(now);
            hint = Some(SendHint { after_ms: 0 });
        }
        // Asked before, and not claimed since.
        (RunStatus::Pending, Some(_)) if !head.ledger.open_calls.is_empty() => return Ok(None),
        (RunStatus::Pending, _) => {
            next.run.status = RunStatus::Failed;
            next.run.reason = Some(FailReason::Cancelled);
            next.end_run(now);
        }
        (RunStatus::Running, Some(_)) | (RunStatus::Idle | RunStatus::Done | RunStatus::Failed, _) => {
            return Ok(None);
        }
    }
    let guards = vec![Guard::Open, Guard::Seq(head.ledger.seq), Guard::Run(head.run.clone())];
    let mut transition = Transition::of_head(next, guards);
    transition.hint = hint;
    Ok(Some(transition))
}

/// C6: closes a session for good; a live run ends with it, and nobody is asked any more for what will not be done (H2).
/// `decisions` are the session's. `None`: it is closed, and nothing of it is left open.
///
/// A decision may be opened between the look at them and this write. Once the session is closed none is opened any more,
/// so whoever closes looks again until there is nothing to do.
pub fn close(head: &Head, now: Millis, decisions: &[Decision]) -> Option<Transition> {
    let open = decisions.iter().filter(|decision| decision.given.is_none());
    let withdrawn = open.take(caps::ROWS_PER_TRANSITION).cloned().map(SideRow::WithdrawDecision).collect();
    if head.closed {
        let withdrawal = Transition::of_rows(head, Vec::new(), withdrawn);
        return (!withdrawal.rows.is_empty()).then_some(withdrawal);
    }
    let mut next = head.clone();
    next.closed = true;
    next.lease = None;
    next.due = head.tells_parent.then_some(now);
    if head.run.status.is_live() {
        next.run.status = RunStatus::Failed;
        next.run.reason = Some(FailReason::Closed);
        next.run.waits = None;
        next.run.cancel = None;
        next.end_run(now);
    }
    let guards = vec![Guard::Open, Guard::Seq(head.ledger.seq), Guard::Run(head.run.clone())];
    Some(Transition { rows: withdrawn, ..Transition::of_head(next, guards) })
}

/// What the sweep does about a session that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Send a hint: its run is pending, or its lease has run out.
    Hint,
    /// Nothing yet: it is being worked on, or waits for its backoff, until then.
    Later(Millis),
    /// H4: tell its parent that a run ended.
    TellParent,
    /// Nothing.
    Leave,
}

/// Whether a session needs a hint now. A hint too many costs a failed claim; a hint too few would strand an input.
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
