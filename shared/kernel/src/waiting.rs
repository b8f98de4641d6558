//! H: how a run is parked, and what wakes it.

use crate::head::{Head, LeaseToken, RunStatus, WaitReason};
use crate::ids::Millis;
use crate::refusal::Refusal;
use crate::transition::{Guard, SendHint, Transition};

/// H1: parks a run that can do nothing before something outside happens. The attempt does not count. From `until` on the
/// run may be claimed even if nothing happens; `None`: the wait has no end.
///
/// `seen` is the number of nudges in the head that the owner read before it looked at what the run waits for. `Ok(None)`:
/// there was another nudge since, or a cancel, so the owner must look again.
///
/// # Errors
/// [`Refusal::SessionClosed`], [`Refusal::Fenced`].
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
/// A pending run is nudged too: an owner may claim it, and look, before this is written. `None`: no run is live, so nothing
/// waits.
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

/// H4: records that the parent was nudged about every run that has ended so far. `None`: there is nothing to record.
pub fn told_parent(head: &Head) -> Option<Transition> {
    if !head.tells_parent {
        return None;
    }
    let mut next = head.clone();
    next.tells_parent = false;
    if !head.run.status.is_live() {
        next.due = None;
    }
    // A run that ends meanwhile is another end, so the run row must be the same.
    Some(Transition::of_head(next, vec![Guard::Run(head.run.clone())]))
}
