//! What an owner does next. Pure: everything that the choice depends on is an argument.

use keel_kernel::event::ToolCall;
use keel_kernel::transcript::Transcript;
use keel_kernel::{Millis, WaitReason};
use serde_json::Value;

use crate::tool::ToolOutput;
use crate::waits::{BudgetReached, CallState};

/// How much of the invocation's time is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// Enough for another request or tool.
    #[default]
    Plenty,
    /// Too little to begin anything; what is running may finish.
    NoNewRequest,
    /// What is running must stop.
    Stop,
}

/// What the next action depends on beside the transcript.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptState {
    /// A client asked the attempt to stop.
    pub cancel: bool,
    /// How much time is left.
    pub time: Time,
    /// Requests made in this attempt.
    pub turns: u32,
    /// Requests that an attempt may make.
    pub max_turns: u32,
    /// The run has used up its attempts: this is a takeover of a run whose owners keep dying.
    pub exhausted: bool,
    /// H5: a budget is reached.
    pub budget_reached: Option<BudgetReached>,
    /// The context is to be compacted first (K).
    pub compact: bool,
}

/// A call to run.
#[derive(Clone, Debug, PartialEq)]
pub struct ToRun<'a> {
    /// The call.
    pub call: &'a ToolCall,
    /// H3: the arguments that a person wrote in place of the model's.
    pub edited: Option<Value>,
}

/// The next action.
#[derive(Clone, Debug, PartialEq)]
pub enum Next<'a> {
    /// Stop, commit that, settle as cancelled.
    Abort,
    /// S5: leave the rest to a successor.
    HandOver,
    /// Settle as failed, for this reason.
    Fail(&'static str),
    /// S4a: give these calls an error result, since their arguments may be cut.
    Reject(Vec<&'a ToolCall>),
    /// Commit the results of these calls, which are known without running them.
    CommitKnownResults(Vec<(&'a ToolCall, ToolOutput)>),
    /// Open these calls' decisions, begin their children.
    Open(Vec<&'a ToolCall>),
    /// Run these calls.
    RunTools(Vec<ToRun<'a>>),
    /// H1: park the run for this reason, until this moment at the latest.
    Park(WaitReason, Option<Millis>),
    /// K: summarise the beginning of the context.
    Compact,
    /// Ask the model.
    Generate,
    /// Nothing is owed: settle as succeeded.
    Finish,
}

/// Decides the next action. Actions that need no time come before those that may have to be handed over. `call_states` are
/// those of the open calls, in their order; a call beyond them is ready.
pub fn next<'a>(transcript: &Transcript<'a>, state: &AttemptState, call_states: &[CallState]) -> Next<'a> {
    let has_time = state.time == Time::Plenty;
    let owed = transcript.owed_turn || !transcript.presented.is_empty() || !transcript.open_calls.is_empty();
    if !owed {
        // A cancel comes too late here: everything is answered.
        return match (state.compact && !state.cancel && !state.exhausted, has_time) {
            (false, _) => Next::Finish,
            (true, true) => Next::Compact,
            (true, false) => Next::HandOver,
        };
    }
    if state.cancel {
        return Next::Abort;
    }
    if state.exhausted {
        return Next::Fail("the attempt budget is spent");
    }
    let cut: Vec<&ToolCall> =
        transcript.open_calls.iter().filter(|open| open.cut).map(|open| open.call).collect();
    if !cut.is_empty() {
        return Next::Reject(cut);
    }
    if !transcript.open_calls.is_empty() {
        return with_calls(transcript, call_states, has_time);
    }
    if let Some(BudgetReached { until }) = state.budget_reached {
        return Next::Park(WaitReason::Budget, until);
    }
    if state.turns >= state.max_turns {
        return Next::Fail("the attempt has made as many requests as it may");
    }
    match (has_time, state.compact) {
        (false, _) => Next::HandOver,
        (true, true) => Next::Compact,
        (true, false) => Next::Generate,
    }
}

/// First what can be done for calls without waiting; the run waits only if nothing else is left.
fn with_calls<'a>(transcript: &Transcript<'a>, call_states: &[CallState], has_time: bool) -> Next<'a> {
    let (mut known, mut unopened, mut ready) = (Vec::new(), Vec::new(), Vec::new());
    let mut waits: Option<(WaitReason, Option<Millis>)> = None;
    for (index, open) in transcript.open_calls.iter().enumerate() {
        match call_states.get(index) {
            Some(CallState::Known(output)) => known.push((open.call, output.clone())),
            Some(CallState::Unopened) => unopened.push(open.call),
            Some(CallState::Waits(reason, until)) => {
                waits = Some(waits.map_or((*reason, *until), |(first, before)| {
                    (first.min(*reason), before.into_iter().chain(*until).min())
                }));
            }
            Some(CallState::Ready(edited)) => ready.push(ToRun { call: open.call, edited: edited.clone() }),
            None => ready.push(ToRun { call: open.call, edited: None }),
        }
    }
    if !known.is_empty() {
        return Next::CommitKnownResults(known);
    }
    if !unopened.is_empty() {
        return Next::Open(unopened);
    }
    match (ready.is_empty(), has_time, waits) {
        (true, _, Some((reason, until))) => Next::Park(reason, until),
        (_, true, _) => Next::RunTools(ready),
        (_, false, _) => Next::HandOver,
    }
}

#[cfg(test)]
mod tests {
    use keel_kernel::transcript::OpenCall;
    use keel_kernel::{DedupeKey, Seq};

    use super::*;

    fn state() -> AttemptState {
        AttemptState { max_turns: 10, ..AttemptState::default() }
    }

    fn call() -> ToolCall {
        ToolCall { id: DedupeKey::parse("c").unwrap(), name: "t".into(), arguments: serde_json::Value::Null }
    }

    #[test]
    fn a_turn_is_owed_until_input_and_tools_are_answered() {
        let idle = Transcript::default();
        assert_eq!(next(&idle, &state(), &[]), Next::Finish);
        let input = Transcript { presented: vec![Seq(1)], ..Transcript::default() };
        assert_eq!(next(&input, &state(), &[]), Next::Generate);
        let owed = Transcript { owed_turn: true, ..Transcript::default() };
        assert_eq!(next(&owed, &state(), &[]), Next::Generate); // A3
        let last = AttemptState { turns: 10, ..state() };
        assert!(matches!(next(&owed, &last, &[]), Next::Fail(_)));
        assert_eq!(next(&idle, &last, &[]), Next::Finish);
    }

    #[test]
    fn s4a_cut_calls_are_rejected_and_others_run() {
        let call = call();
        let open = |cut| Transcript {
            open_calls: vec![OpenCall { call: &call, cut }],
            owed_turn: true,
            ..Transcript::default()
        };
        assert_eq!(next(&open(true), &state(), &[]), Next::Reject(vec![&call]));
        assert_eq!(
            next(&open(false), &state(), &[]),
            Next::RunTools(vec![ToRun { call: &call, edited: None }])
        );
    }

    #[test]
    fn s5_nothing_is_begun_without_time_and_what_needs_none_is_done_first() {
        let call = call();
        for time in [Time::NoNewRequest, Time::Stop] {
            let late = AttemptState { time, ..state() };
            let input = Transcript { presented: vec![Seq(1)], ..Transcript::default() };
            assert_eq!(next(&input, &late, &[]), Next::HandOver);
            let tools = Transcript {
                open_calls: vec![OpenCall { call: &call, cut: false }],
                ..Transcript::default()
            };
            assert_eq!(next(&tools, &late, &[]), Next::HandOver);
            let cut =
                Transcript { open_calls: vec![OpenCall { call: &call, cut: true }], ..Transcript::default() };
            assert_eq!(next(&cut, &late, &[]), Next::Reject(vec![&call]));
            assert_eq!(next(&Transcript::default(), &late, &[]), Next::Finish);
            assert_eq!(next(&input, &AttemptState { cancel: true, ..late }, &[]), Next::Abort);
            assert!(matches!(next(&input, &AttemptState { exhausted: true, ..late }, &[]), Next::Fail(_)));
        }
    }
}
