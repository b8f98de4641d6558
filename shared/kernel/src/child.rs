//! Child sessions (H4): which calls may begin one, what it inherits and may spend (H5), and what has become of it.
//!
//! A child's id is derived from its parent and the call. So every owner of the parent's run finds the same child.

use serde_json::Value;

use crate::budget::Budget;
use crate::caps;
use crate::event::ToolCall;
use crate::head::{FailReason, Head, RunStatus};
use crate::hex;
use crate::ids::{Millis, Seq, SessionId};
use crate::session::{ChildOf, SessionDescription};

/// The dedupe key of the input that gives a child its task. Sent twice, it is the same input (I3).
pub const TASK_KEY: &str = "task";

/// The id of the child that a parent's call begins: `sub-` and 24 hex digits.
///
/// # Panics
/// Never: `sub-` and hex digits are a valid session id.
pub fn id_of(parent: &SessionId, call: &ToolCall) -> SessionId {
    let name = format!("{parent}#{}", call.id);
    let hex = hex::sha256(name.as_bytes(), 12);
    SessionId::parse(format!("sub-{hex}")).expect("hex digits")
}

/// Why a call begins no child. The model reads it as the call's error result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoChild {
    /// The arguments name no task.
    #[error("the arguments want a task, as text")]
    NoTask,
    /// The task is too long.
    #[error("a task has at most {} bytes", caps::TASK_BYTES)]
    TaskTooLong,
    /// The session is at the deepest level that a child may be at.
    #[error("agents may be {} deep, and this is one", caps::CHILD_DEPTH)]
    TooDeep,
    /// The session has as many children as it may have.
    #[error("a session may have {} agents", caps::CHILDREN)]
    TooMany,
}

/// The task that a call's arguments name.
///
/// # Errors
/// [`NoChild::NoTask`] or [`NoChild::TaskTooLong`].
pub fn task(arguments: &Value) -> Result<&str, NoChild> {
    let task = arguments.get("task").and_then(Value::as_str).filter(|task| !task.trim().is_empty());
    let task = task.ok_or(NoChild::NoTask)?;
    if task.len() > caps::TASK_BYTES { Err(NoChild::TaskTooLong) } else { Ok(task) }
}

/// Whether a call may begin a child of a session that is `depth` levels below the top and has `children` children,
/// those counted that the calls before this one begin.
///
/// # Errors
/// Why it may not.
pub fn may_begin(depth: u32, children: usize, call: &ToolCall) -> Result<(), NoChild> {
    task(&call.arguments)?;
    if depth >= caps::CHILD_DEPTH {
        return Err(NoChild::TooDeep);
    }
    if children >= caps::CHILDREN {
        return Err(NoChild::TooMany);
    }
    Ok(())
}

/// The description of the child that a call begins, made at `now`. `own` is the parent's description, if it has one.
///
/// Title, model and system prompt are those in the call's arguments; a text that is too long is left out. The plugins,
/// and the model where the call names none, are the parent's.
pub fn describe(
    parent: &SessionId,
    own: Option<&SessionDescription>,
    max_attempts: u32,
    call: &ToolCall,
    now: Millis,
) -> SessionDescription {
    let text = |name: &str, most: usize| {
        let text = call.arguments.get(name).and_then(Value::as_str);
        text.filter(|text| text.len() <= most).map(str::to_owned)
    };
    let root = own.and_then(|own| own.child_of.as_ref()).map(|of| of.root.clone());
    SessionDescription {
        title: text("title", caps::TITLE_BYTES),
        model: text("model", caps::MODEL_BYTES).or_else(|| own.and_then(|own| own.model.clone())),
        system: text("system", caps::SYSTEM_BYTES),
        plugins: own.and_then(|own| own.plugins.clone()),
        child_of: Some(ChildOf {
            parent: parent.clone(),
            root: root.unwrap_or_else(|| parent.clone()),
            tool_call_id: call.id.clone(),
            depth: own.map_or(0, SessionDescription::depth) + 1,
        }),
        max_attempts,
        ..SessionDescription::native(id_of(parent, call), now)
    }
}

/// H5: what a child may spend: what its parent has left. What the child spends is not added to the parent's sum.
pub fn share(parent: &Head) -> Budget {
    let (budget, spent) = (parent.budget, parent.ledger.spent);
    Budget {
        tokens: budget.tokens.map(|most| most.saturating_sub(spent.tokens)),
        micros: budget.micros.map(|most| most.saturating_sub(spent.micros)),
    }
}

/// H5: a new budget for a child that has used up its share, where its parent now has more left. `None`: the child keeps
/// the budget it has.
pub fn larger_share(child: &Head, parent: &Head) -> Option<Budget> {
    let share = share(parent);
    (child.is_spent() && !share.is_reached(child.ledger.spent)).then_some(share)
}

/// Whether the parent still wants the child: it is open, and the call has no result. To be asked again once the child is
/// made: a cancel or a close of the parent that came meanwhile did not find the child (H4).
pub fn is_wanted(parent: &Head, call: &ToolCall) -> bool {
    !parent.closed && parent.ledger.open_calls.contains(&call.id)
}

/// What has become of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildState {
    /// It was made, and the input with its task is not committed yet.
    Untold,
    /// Its run is not over.
    Live,
    /// Its last answer is at this position.
    Answered(Seq),
    /// It ended without an answer, for this reason.
    Failed(&'static str),
}

/// What has become of a child, by its head.
pub fn state(child: &Head) -> ChildState {
    match (child.run.status, child.run.reason) {
        (RunStatus::Idle, _) if child.closed => ChildState::Failed("it was closed"),
        (RunStatus::Idle, _) => ChildState::Untold,
        (RunStatus::Pending | RunStatus::Running | RunStatus::Waiting, _) => ChildState::Live,
        (RunStatus::Done, _) if child.ledger.last_answer == Seq::ZERO => {
            ChildState::Failed("it gave no answer")
        }
        (RunStatus::Done, _) => ChildState::Answered(child.ledger.last_answer),
        (RunStatus::Failed, Some(FailReason::Cancelled)) => ChildState::Failed("it was cancelled"),
        (RunStatus::Failed, Some(FailReason::Closed)) => ChildState::Failed("it was closed"),
        (RunStatus::Failed, Some(FailReason::AttemptsSpent) | None) => {
            ChildState::Failed("it failed at every attempt")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::Spent;
    use crate::head::StateOwner;
    use crate::ids::DedupeKey;

    fn call(arguments: Value) -> ToolCall {
        ToolCall { id: DedupeKey::parse("c").unwrap(), name: "agent".into(), arguments }
    }

    fn id(text: &str) -> SessionId {
        SessionId::parse(text).unwrap()
    }

    #[test]
    fn h4_a_child_is_begun_within_its_limits() {
        let good = call(json!({ "task": "t" }));
        assert_eq!(may_begin(caps::CHILD_DEPTH - 1, caps::CHILDREN - 1, &good), Ok(()));
        assert_eq!(may_begin(caps::CHILD_DEPTH, 0, &good), Err(NoChild::TooDeep));
        assert_eq!(may_begin(0, caps::CHILDREN, &good), Err(NoChild::TooMany));
        for none in [json!({}), json!({ "task": "  " }), json!({ "task": 7 }), json!([])] {
            assert_eq!(may_begin(0, 0, &call(none)), Err(NoChild::NoTask));
        }
        let long = call(json!({ "task": "x".repeat(caps::TASK_BYTES + 1) }));
        assert_eq!(may_begin(0, 0, &long), Err(NoChild::TaskTooLong));
    }

    #[test]
    fn h4_a_child_is_named_by_its_call_and_inherits() {
        let parent = SessionDescription {
            model: Some("m".to_owned()),
            plugins: Some(vec!["p".to_owned()]),
            ..SessionDescription::native(id("top"), Millis(0))
        };
        let call = call(json!({ "task": "t", "title": "x", "system": "y".repeat(caps::SYSTEM_BYTES + 1) }));
        let child = describe(&id("top"), Some(&parent), 2, &call, Millis(5));
        assert_eq!(child.session_id, id_of(&id("top"), &call));
        assert_eq!(
            (child.model.as_deref(), child.plugins.as_deref()),
            (Some("m"), Some(&["p".to_owned()][..]))
        );
        assert_eq!(
            (child.title.as_deref(), child.system.as_deref()),
            (Some("x"), None),
            "what is too long is left out"
        );
        let grandchild = describe(&child.session_id, Some(&child), 2, &call, Millis(5));
        let of = grandchild.child_of.unwrap();
        assert_eq!((of.root.as_str(), of.parent, of.depth), ("top", child.session_id, 2));
    }

    #[test]
    fn h5_a_child_spends_what_its_parent_has_left() {
        let mut parent = Head::new(StateOwner::Native, 1);
        assert_eq!(share(&parent), Budget::default());
        parent.budget = Budget { tokens: Some(10), micros: None };
        parent.ledger.spent = Spent { tokens: 4, micros: 9 };
        assert_eq!(share(&parent), Budget { tokens: Some(6), micros: None });
        let mut child = Head { budget: share(&parent), ..Head::new(StateOwner::Native, 1) };
        assert_eq!(larger_share(&child, &parent), None, "it has some left");
        child.ledger.spent = Spent { tokens: 6, micros: 0 };
        assert_eq!(larger_share(&child, &parent), None, "there is no more");
        parent.budget.tokens = Some(20);
        assert_eq!(larger_share(&child, &parent), Some(Budget { tokens: Some(16), micros: None }));
    }
}
