//! A decision as clients see it (H2): from the edge, and in a stream's frames.

use keel_kernel::Millis;
use keel_kernel::approval::{Approval, Say, Standing};
use serde_json::{Value, json};

/// `{id, sessionId, toolCallId, toolName, arguments, digest, openedAt, expiresAt, status, answer?}`, where `status` is open,
/// answered or expired.
pub fn view(approval: &Approval, now: Millis) -> Value {
    let status = match approval.standing(now) {
        Standing::Open(_) => "open",
        Standing::Given(_) => "answered",
        Standing::Expired => "expired",
    };
    let mut view = json!({
        "id": approval.id,
        "sessionId": approval.session_id,
        "toolCallId": approval.tool_call_id,
        "toolName": approval.tool_name,
        "arguments": approval.arguments,
        "digest": approval.digest,
        "openedAt": Millis(approval.opened_ms),
        "expiresAt": Millis(approval.expires_ms),
        "status": status,
    });
    if let Some(answer) = &approval.given {
        let (said, edited) = match &answer.say {
            Say::Allow => ("allow", None),
            Say::Deny => ("deny", None),
            Say::Edit { arguments } => ("edit", Some(arguments)),
        };
        view["answer"] = json!({ "answer": said, "by": answer.by, "at": Millis(answer.at_ms) });
        if let Some(edited) = edited {
            view["answer"]["arguments"] = edited.clone();
        }
        if let Some(comment) = &answer.comment {
            view["answer"]["comment"] = json!(comment);
        }
    }
    view
}
