//! The tool `agent` (H4): a call of it begins a child session, with a ledger and a stream of its own. The child's last
//! answer is the call's result. Its id is derived from the call, so every owner of the parent's run finds the same child.

use keel_agent::tool::{Policy, ToolOutput, ToolSpec};
use keel_agent::{CallState, SessionPortError};
use keel_kernel::child::{self, ChildState};
use keel_kernel::event::ToolCall;
use keel_kernel::{Head, Refusal, Seq, SessionDescription, WaitReason};
use keel_ledger::port::Consistency;
use keel_ledger::{Ledger, LedgerError, SessionKey};
use serde_json::json;

use crate::ledger_session_port::port_error;

/// The tool's name.
pub const NAME: &str = "agent";
/// The tool as models see it.
pub fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description:
            "Gives a task to another agent with a context of its own, and returns its last answer. It sees \
                      nothing of this conversation: the task must say all that it needs."
                .to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "task": { "type": "string", "minLength": 1 },
                "title": { "type": "string" },
                "model": { "type": "string" },
                "system": { "type": "string" },
            },
            "required": ["task"],
            "additionalProperties": false,
        }),
        policy: Policy::default(),
    }
}

/// The children of one session.
pub(crate) struct Children<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) parent: &'a SessionKey,
    pub(crate) own: Option<&'a SessionDescription>,
}

impl Children<'_> {
    /// What has become of a call of the tool. `parent` is the parent's head, `planned` how many children the calls before
    /// this one are still to begin.
    pub(crate) async fn call_state(
        &self,
        call: &ToolCall,
        parent: &Head,
        planned: usize,
    ) -> Result<CallState, SessionPortError> {
        let at = Ledger::child_of(self.parent, call);
        let head = match self.ledger.head(&at).await {
            Ok(head) => head,
            Err(LedgerError::Refused(Refusal::NotFound)) => return self.unbegun(call, parent, planned).await,
            Err(error) => return Err(port_error(error)),
        };
        if head.parent.as_ref() != Some(&self.parent.session) {
            return Ok(failed("another session has its name"));
        }
        match child::state(&head) {
            ChildState::Untold => Ok(CallState::Unopened),
            ChildState::Live => {
                self.ledger.share_with_child(&at, &head, parent).await.map_err(port_error)?;
                Ok(CallState::Waits(WaitReason::Child, None))
            }
            ChildState::Answered(seq) => self.answer(&at, seq).await,
            ChildState::Failed(why) => Ok(failed(why)),
        }
    }

    async fn unbegun(
        &self,
        call: &ToolCall,
        parent: &Head,
        planned: usize,
    ) -> Result<CallState, SessionPortError> {
        let depth = self.own.map_or(0, SessionDescription::depth);
        let children = self.ledger.count_children(self.parent).await.map_err(port_error)?;
        if let Err(why) = child::may_begin(depth, children + planned, call) {
            return Ok(CallState::Known(ToolOutput::error(format!("not run: {why}"))));
        }
        if parent.is_spent() {
            return Ok(CallState::Waits(WaitReason::Budget, None)); // H5: a child would have nothing to spend
        }
        Ok(CallState::Unopened)
    }

    /// The child's last answer.
    async fn answer(&self, at: &SessionKey, seq: Seq) -> Result<CallState, SessionPortError> {
        let page = self.ledger.events(at, Seq(seq.0 - 1), 1, Consistency::Strong).await;
        let events = page.map_err(port_error)?.events;
        let blocks = events.first().and_then(|event| event.payload.get("content")?.as_array().cloned());
        let texts = blocks.into_iter().flatten();
        let text: String = texts.filter_map(|block| block["text"].as_str().map(str::to_owned)).collect();
        Ok(CallState::Known(ToolOutput::of(text)))
    }

    /// Makes the child and commits its task as its input. Doing it again finds what is there.
    pub(crate) async fn begin(&self, call: &ToolCall, parent: &Head) -> Result<(), SessionPortError> {
        self.ledger.begin_child(self.parent, parent, self.own, call).await.map_err(port_error)
    }

    /// Cancels the child, if it was begun.
    pub(crate) async fn cancel(&self, call: &ToolCall) -> Result<(), SessionPortError> {
        self.ledger.cancel_child(self.parent, call).await.map_err(port_error)
    }
}

fn failed(why: &str) -> CallState {
    CallState::Known(ToolOutput::error(format!("the agent gave no answer: {why}")))
}
