//! H4: child sessions. A call of the tool `agent` is a session of its own, with its own ledger and stream; its last answer
//! is the call's result. Its id comes from the call, so whoever holds the parent's run finds the same child.

use keel_agent::tool::{Policy, ToolOutput, ToolSpec};
use keel_agent::{CallState, SessionPortError};
use keel_kernel::budget::Budget;
use keel_kernel::event::ToolCall;
use keel_kernel::head::FailReason;
use keel_kernel::{DedupeKey, Head, Payload, RunStatus, Seq, SessionId, WaitReason};
use keel_ledger::dynamo::Dynamo;
use keel_ledger::port::Consistency;
use keel_ledger::sessions::{ChildOf, Meta};
use keel_ledger::{Ledger, LedgerError, SessionKey, Store as _};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::session_port::{port_error, store_error};

/// The tool's name.
pub const NAME: &str = "agent";
/// How deep children may have children.
pub const DEPTH_MAX: u32 = 3;
/// How many children a session may have.
pub const CHILDREN_MAX: usize = 64;
/// The longest task, in bytes.
const TASK_MAX: usize = 64 * 1024;

/// The tool as a model is told of it.
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
    pub(crate) rows: &'a Dynamo,
    pub(crate) parent: &'a SessionKey,
    pub(crate) meta: Option<&'a Meta>,
}

impl Children<'_> {
    fn of(&self, call: &ToolCall) -> SessionKey {
        let name = format!("{}#{}", self.parent.session, call.id);
        let digest = Sha256::digest(name.as_bytes());
        let hex: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        let session = SessionId::parse(format!("sub-{hex}")).expect("hex digits");
        SessionKey { tenant: self.parent.tenant.clone(), session }
    }

    fn depth(&self) -> u32 {
        self.meta.and_then(|meta| meta.child_of.as_ref()).map_or(0, |of| of.depth)
    }

    /// Where a call of the tool stands.
    pub(crate) async fn call_state(
        &self,
        call: &ToolCall,
        parent: &Head,
    ) -> Result<CallState, SessionPortError> {
        let child = self.of(call);
        let head = self.rows.head(&child).await.map_err(store_error)?;
        match head {
            None => self.may_begin(call, parent).await,
            Some(head) => match (head.run.status, head.run.reason) {
                (RunStatus::Idle, _) if head.closed => Ok(failed("it was closed")),
                // It was made, and not told its task yet.
                (RunStatus::Idle, _) => Ok(CallState::Unopened),
                (RunStatus::Pending | RunStatus::Running | RunStatus::Waiting, _) => {
                    self.share(&child, &head, parent).await?;
                    Ok(CallState::Waits(WaitReason::Child, None))
                }
                (RunStatus::Done, _) => self.answer(&child, &head).await,
                (RunStatus::Failed, Some(FailReason::Cancelled)) => Ok(failed("it was cancelled")),
                (RunStatus::Failed, Some(FailReason::Closed)) => Ok(failed("it was closed")),
                (RunStatus::Failed, Some(FailReason::AttemptsSpent) | None) => {
                    Ok(failed("it failed at every attempt"))
                }
            },
        }
    }

    /// H5: a child that has spent what it was given gets more where its parent has more since.
    async fn share(&self, child: &SessionKey, head: &Head, parent: &Head) -> Result<(), SessionPortError> {
        let rest = rest(parent);
        if !head.is_spent() || rest.is_reached(head.ledger.spent) {
            return Ok(());
        }
        match self.ledger.set_budget(child, rest).await {
            Ok(_) | Err(LedgerError::Refused(_)) => Ok(()), // closed meanwhile
            Err(error) => Err(port_error(error)),
        }
    }

    async fn may_begin(&self, call: &ToolCall, parent: &Head) -> Result<CallState, SessionPortError> {
        let refuse = |why: String| Ok(CallState::Known(ToolOutput::error(why)));
        let Some(task) = call.arguments["task"].as_str().filter(|task| !task.trim().is_empty()) else {
            return refuse("not run: the arguments want a task, as text".to_owned());
        };
        if task.len() > TASK_MAX {
            return refuse(format!("not run: a task has at most {TASK_MAX} bytes"));
        }
        if self.depth() >= DEPTH_MAX {
            return refuse(format!("not run: agents may be {DEPTH_MAX} deep, and this is one"));
        }
        let children = self.rows.children(self.parent).await.map_err(store_error)?;
        if children.len() >= CHILDREN_MAX {
            return refuse(format!("not run: a session may have {CHILDREN_MAX} agents"));
        }
        if parent.is_spent() {
            return Ok(CallState::Waits(WaitReason::Budget, None)); // H5: a child would have nothing to spend
        }
        Ok(CallState::Unopened)
    }

    /// The child's last answer.
    async fn answer(&self, child: &SessionKey, head: &Head) -> Result<CallState, SessionPortError> {
        let last = head.ledger.last_answer;
        if last == Seq::ZERO {
            return Ok(failed("it gave no answer"));
        }
        let page = self.ledger.events(child, Seq(last.0 - 1), 1, Consistency::Strong).await;
        let events = page.map_err(port_error)?.events;
        let blocks = events.first().and_then(|event| event.payload.get("content")?.as_array().cloned());
        let texts = blocks.into_iter().flatten();
        let text: String = texts.filter_map(|block| block["text"].as_str().map(str::to_owned)).collect();
        Ok(CallState::Known(ToolOutput::of(text)))
    }

    /// Makes the child and tells it its task. Doing it again finds what is there.
    pub(crate) async fn begin(&self, call: &ToolCall, parent: &Head) -> Result<(), SessionPortError> {
        let child = self.of(call);
        let now = self.ledger.env().now();
        let text = |name: &str, most: usize| {
            call.arguments[name].as_str().filter(|text| text.len() <= most).map(str::to_owned)
        };
        let own = self.meta;
        let root = own.and_then(|meta| meta.child_of.as_ref()).map(|of| of.root.clone());
        let meta = Meta {
            title: text("title", 256),
            model: text("model", 128).or_else(|| own.and_then(|meta| meta.model.clone())),
            system: text("system", 64 * 1024),
            plugins: own.and_then(|meta| meta.plugins.clone()),
            child_of: Some(ChildOf {
                parent: self.parent.session.clone(),
                root: root.unwrap_or_else(|| self.parent.session.clone()),
                tool_call_id: call.id.clone(),
                depth: self.depth() + 1,
            }),
            max_attempts: parent.max_attempts,
            ..Meta::native(child.session.clone(), now)
        };
        let head = Head {
            parent: Some(self.parent.session.clone()),
            budget: rest(parent),
            ..Head::new(meta.state_owner, meta.max_attempts)
        };
        self.rows.create(&child, &meta, &head).await.map_err(store_error)?;
        let task = json!({ "text": call.arguments["task"], "from": self.parent.session });
        let payload = Payload::from_value(&task).map_err(SessionPortError::Refused)?;
        let key = DedupeKey::parse("task").expect("visible ASCII");
        self.ledger.input(&child, payload, Some(key)).await.map_err(port_error)?;
        // Whoever closes or cancels the parent from now on finds the child; who did so before may not have (H4).
        let parent = self.ledger.head(self.parent).await.map_err(port_error)?;
        if parent.closed || !parent.ledger.open_calls.contains(&call.id) {
            return self.cancel(call).await;
        }
        Ok(())
    }

    /// Cancels the child, if it was begun.
    pub(crate) async fn cancel(&self, call: &ToolCall) -> Result<(), SessionPortError> {
        match self.ledger.cancel(&self.of(call)).await {
            Ok(_) | Err(LedgerError::Refused(_)) => Ok(()), // never begun, or closed
            Err(error) => Err(port_error(error)),
        }
    }
}

fn failed(why: &str) -> CallState {
    CallState::Known(ToolOutput::error(format!("the agent gave no answer: {why}")))
}

/// H5: a child may spend what its parent has left when it is begun, or when its parent is given more. What it spends is
/// not added to the parent's sum.
fn rest(parent: &Head) -> Budget {
    let (budget, spent) = (parent.budget, parent.ledger.spent);
    Budget {
        tokens: budget.tokens.map(|most| most.saturating_sub(spent.tokens)),
        micros: budget.micros.map(|most| most.saturating_sub(spent.micros)),
    }
}
