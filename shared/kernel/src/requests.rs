//! What clients ask of a session's run: to queue it, to cancel it, to close the session, a budget (H5), a compaction (K3).

use crate::budget::Budget;
use crate::caps;
use crate::decision::Decision;
use crate::head::{FailReason, Head, RunStatus};
use crate::ids::Millis;
use crate::refusal::Refusal;
use crate::transition::{Guard, SendHint, SideRow, Transition};

/// Begins a run where an input is unanswered or a turn is owed. `Ok(None)`: neither is, or a run is live.
///
/// # Errors
/// [`Refusal::ExternalSession`], [`Refusal::SessionClosed`].
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

/// Cancels a run. A running attempt is asked to stop; a pending run fails at once. A waiting run, and a pending one with
/// open calls, is left to an owner, which ends its calls and children (H4). `Ok(None)`: there is no run to cancel, or its
/// cancel was asked before.
///
/// # Errors
/// [`Refusal::ExternalSession`], [`Refusal::SessionClosed`].
pub fn cancel(head: &Head, now: Millis) -> Result<Option<Transition>, Refusal> {
    head.check_native()?;
    head.check_open()?;
    let mut next = head.clone();
    let mut hint = None;
    match (head.run.status, head.run.cancel) {
        (RunStatus::Running, None) => next.run.cancel = Some(head.ledger.seq),
        // Its calls need results, and its children must be cancelled (H4): an owner does both.
        (RunStatus::Pending, None) if !head.ledger.open_calls.is_empty() => {
            next.run.cancel = Some(head.ledger.seq);
        }
        (RunStatus::Waiting, _) => {
            next.run.cancel = Some(head.ledger.seq);
            next.resume(now);
            hint = Some(SendHint { after_ms: 0 });
        }
        // It was asked before, and no owner has claimed the run since.
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

/// C6: closes a session for good. A live run fails, and the unanswered ones of `decisions` are withdrawn (H4), as many as
/// one write takes ([`caps::ROWS_PER_TRANSITION`]). `None`: the session is closed, and none of them is unanswered.
///
/// A decision may be opened after `decisions` were read and before this is written. Once the session is closed, none is
/// opened any more. So whoever closes a session reads its decisions again, leaves out those that it has withdrawn, and
/// asks again until there is nothing to do.
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

/// H5: sets the session's budget. A waiting run becomes pending where the new budget is not reached. `Ok(None)`: it is the
/// session's budget already.
///
/// # Errors
/// [`Refusal::SessionClosed`].
pub fn set_budget(head: &Head, now: Millis, budget: Budget) -> Result<Option<Transition>, Refusal> {
    head.check_open()?;
    if head.budget == budget {
        return Ok(None);
    }
    let mut next = head.clone();
    next.budget = budget;
    let mut hint = None;
    match head.run.status {
        // Whatever the run waits for: among it may be a child that has used up its share.
        RunStatus::Waiting if !next.is_spent() => {
            next.resume(now);
            hint = Some(SendHint { after_ms: 0 });
        }
        RunStatus::Running => next.run.nudges += 1, // it may be about to park
        _ => {}
    }
    let mut transition = Transition::of_head(next, vec![Guard::Open, Guard::Run(head.run.clone())]);
    transition.hint = hint;
    Ok(Some(transition))
}

/// K3: asks for a compaction. The next attempt of the live run makes it; where no run is live, one begins for it.
/// `Ok(None)`: somebody has asked already.
///
/// # Errors
/// [`Refusal::ExternalSession`], [`Refusal::SessionClosed`].
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
