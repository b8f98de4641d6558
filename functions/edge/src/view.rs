//! A session as clients see it. A lease's token is never in it (L4).

use keel_kernel::budget::Budget;
use keel_kernel::event::Spent;
use keel_kernel::{Head, Millis, RunStatus, Session};
use serde_json::{Map, Value, json};

/// A session: its description and what its head says.
pub(crate) fn session(session: &Session, now: Millis, lease_ms: u64) -> Value {
    let Session { description, head } = session;
    let mut view = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            view.insert(name.to_owned(), value);
        }
    };
    put("sessionId", Some(json!(description.session_id)));
    put("title", description.title.as_ref().map(|v| json!(v)));
    put("model", description.model.as_ref().map(|v| json!(v)));
    put("system", description.system.as_ref().map(|v| json!(v)));
    put("metadata", description.metadata.as_ref().map(|v| json!(v)));
    put("plugins", description.plugins.as_ref().map(|v| json!(v)));
    put("parent", description.child_of.as_ref().map(|of| json!(of.parent)));
    put("root", description.child_of.as_ref().map(|of| json!(of.root)));
    put("depth", description.child_of.as_ref().map(|of| json!(of.depth)));
    put("toolCallId", description.child_of.as_ref().map(|of| json!(of.tool_call_id)));
    put("stateOwner", Some(json!(description.state_owner)));
    put("backend", description.backend.as_ref().map(|v| json!(v)));
    put("externalRef", description.external_ref.as_ref().map(|v| json!(v)));
    put("createdAt", Some(json!(description.created())));
    put("revision", Some(json!(description.revision)));
    put("status", Some(json!(status(head))));
    put("seq", Some(json!(head.ledger.seq)));
    put("unanswered", Some(json!(head.ledger.unanswered)));
    put("pendingInput", Some(json!(!head.ledger.unanswered.is_empty())));
    put("run", Some(run(head)));
    let Spent { tokens, .. } = head.ledger.spent;
    put("spent", Some(json!({ "tokens": tokens, "costUsd": head.ledger.spent.usd() })));
    put("budget", (head.budget != Budget::default()).then(|| budget(head.budget)));
    // The lease was last extended at `until` minus its length.
    let age = |until: Millis| lease_ms.saturating_sub(until.since(now));
    put("lease", head.lease.as_ref().map(|lease| json!({ "ageMs": age(lease.until) })));
    Value::Object(view)
}

/// H5: a budget as it was set.
fn budget(budget: Budget) -> Value {
    let mut view = Map::new();
    if let Some(tokens) = budget.tokens {
        view.insert("maxTokens".to_owned(), json!(tokens));
    }
    if let Some(micros) = budget.micros {
        view.insert("maxCostUsd".to_owned(), json!(Spent { tokens: 0, micros }.usd()));
    }
    Value::Object(view)
}

/// `open` or `closed`.
pub(crate) fn status(head: &Head) -> &'static str {
    if head.closed { "closed" } else { "open" }
}

/// A session's run.
pub(crate) fn run(head: &Head) -> Value {
    let run = &head.run;
    let mut view = json!({
        "status": run.status,
        "attempts": run.attempts,
        "maxAttempts": head.max_attempts,
        "cancelRequested": run.cancel.is_some(),
    });
    if let Some(reason) = run.reason {
        view["reason"] = json!(reason);
    }
    if let Some(waits) = run.waits {
        view["waitsFor"] = json!(waits);
        if run.not_before.0 > 0 {
            view["until"] = json!(run.not_before);
        }
    }
    if let Some(watermark) = run.watermark {
        view["readWatermark"] = json!(watermark);
    }
    if run.status == RunStatus::Pending && run.not_before.0 > 0 {
        view["notBefore"] = json!(run.not_before);
    }
    view
}
