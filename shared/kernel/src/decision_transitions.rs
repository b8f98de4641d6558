//! H2: how decisions are opened, answered and withdrawn.
//!
//! A decision is a row beside the head. Each rule here returns a transition that writes this row under a condition of its
//! own, together with what changes in the head.

use crate::decision::{Decision, DecisionAnswer};
use crate::event::ToolCall;
use crate::head::{Head, LeaseToken};
use crate::ids::{Millis, SessionId};
use crate::refusal::Refusal;
use crate::transition::{Guard, SideRow, Transition};
use crate::waiting;

/// H2: opens a decision about a call of `session`, for `for_ms` milliseconds from `now`. `Ok(None)`: it was opened before.
///
/// # Errors
/// [`Refusal::Fenced`], [`Refusal::SessionClosed`], or [`Refusal::UnknownToolCall`] where the call has its result.
pub fn open(
    head: &Head,
    existing: Option<&Decision>,
    token: &LeaseToken,
    (session, call): (&SessionId, &ToolCall),
    (now, for_ms): (Millis, u64),
) -> Result<Option<Transition>, Refusal> {
    head.check_open()?;
    head.check_lease(token)?;
    if !head.ledger.open_calls.contains(&call.id) {
        return Err(Refusal::UnknownToolCall(call.id.to_string()));
    }
    if existing.is_some() {
        return Ok(None);
    }
    // A close or a takeover at the same moment must not leave behind a decision that nobody will look at.
    let guards = vec![Guard::Open, Guard::Lease(token.owner.clone(), token.epoch)];
    let decision = Decision::open(session, call, now, for_ms);
    Ok(Some(Transition::of_rows(head, guards, vec![SideRow::OpenDecision(decision)])))
}

/// H1, H2: answers a decision and, in the same write, makes the run that waits for it pending. The answer is about the
/// arguments with this digest. `Ok(None)`: the decision has the same answer already.
///
/// # Errors
/// [`Refusal::SessionClosed`], [`Refusal::NotFound`] where there is no such decision, and those of [`Decision::answered`].
pub fn answer(
    head: &Head,
    decision: Option<&Decision>,
    digest: &str,
    answer: &DecisionAnswer,
    now: Millis,
) -> Result<Option<Transition>, Refusal> {
    head.check_open()?;
    let Some(answered) = decision.ok_or(Refusal::NotFound)?.answered(digest, answer.clone())? else {
        return Ok(None);
    };
    // Where no run is live, one may begin before this is written and look before the answer is there. So the run row is
    // checked all the same.
    let guards = || vec![Guard::Open, Guard::Run(head.run.clone())];
    let mut transition =
        waiting::nudge(head, now).unwrap_or_else(|| Transition::of_rows(head, guards(), Vec::new()));
    transition.rows.push(SideRow::AnswerDecision(answered));
    Ok(Some(transition))
}

/// H2: takes a decision that nobody answered in time off the tenant's list of open ones. Its own row stays as it is.
pub fn withdraw(head: &Head, decision: &Decision) -> Transition {
    Transition::of_rows(head, Vec::new(), vec![SideRow::WithdrawDecision(decision.clone())])
}
