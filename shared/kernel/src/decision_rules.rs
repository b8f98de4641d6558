//! H2: how decisions are opened, answered and withdrawn, as transitions of their session.

use crate::decision::{Decision, DecisionAnswer};
use crate::event::ToolCall;
use crate::head::{Head, LeaseToken};
use crate::ids::{Millis, SessionId};
use crate::refusal::Refusal;
use crate::run;
use crate::transition::{Guard, SideRow, Transition};

/// H2: opens a decision about a call, for this long. `Ok(None)`: it was opened before.
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
    // A close or a takeover in this moment must not leave behind a decision that nobody will look at.
    let guards = vec![Guard::Open, Guard::Lease(token.owner.clone(), token.epoch)];
    let decision = Decision::open(session, call, now, for_ms);
    Ok(Some(Transition::of_rows(head, guards, vec![SideRow::OpenDecision(decision)])))
}

/// H1, H2: takes an answer about the arguments with this digest, and wakes the run that waits for it in the same write.
/// `Ok(None)`: the same was said before.
///
/// # Errors
/// [`Refusal::SessionClosed`], [`Refusal::NotFound`], or why the answer does not count.
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
    // Where no run is live, one that begins in this moment may have looked before the answer was there.
    let guards = || vec![Guard::Open, Guard::Run(head.run.clone())];
    let mut transition =
        run::nudge(head, now).unwrap_or_else(|| Transition::of_rows(head, guards(), Vec::new()));
    transition.rows.push(SideRow::AnswerDecision(answered));
    Ok(Some(transition))
}

/// H2: takes a decision that nobody answered in time off the tenant's list.
pub fn withdraw(head: &Head, decision: &Decision) -> Transition {
    Transition::of_rows(head, Vec::new(), vec![SideRow::WithdrawDecision(decision.clone())])
}
