//! A decision as clients see it (H2): in the edge's responses, and in a stream's frames.

use keel_kernel::Millis;
use keel_kernel::decision::{Decision, DecisionState, Verdict};
use serde_json::{Value, json};

/// `{id, sessionId, toolCallId, toolName, arguments, digest, openedAt, expiresAt, status, answer?}`, where `status` is open,
/// answered or expired.
pub fn view(decision: &Decision, now: Millis) -> Value {
    let status = match decision.state(now) {
        DecisionState::Open(_) => "open",
        DecisionState::Answered(_) => "answered",
        DecisionState::Expired => "expired",
    };
    let mut view = json!({
        "id": decision.id,
        "sessionId": decision.session_id,
        "toolCallId": decision.tool_call_id,
        "toolName": decision.tool_name,
        "arguments": decision.arguments,
        "digest": decision.digest,
        "openedAt": Millis(decision.opened_ms),
        "expiresAt": Millis(decision.expires_ms),
        "status": status,
    });
    if let Some(answer) = &decision.given {
        let (verdict, edited) = match &answer.verdict {
            Verdict::Allow => ("allow", None),
            Verdict::Deny => ("deny", None),
            Verdict::Edit { arguments } => ("edit", Some(arguments)),
        };
        view["answer"] = json!({ "answer": verdict, "by": answer.by, "at": Millis(answer.at_ms) });
        if let Some(edited) = edited {
            view["answer"]["arguments"] = edited.clone();
        }
        if let Some(comment) = &answer.comment {
            view["answer"]["comment"] = json!(comment);
        }
    }
    view
}
