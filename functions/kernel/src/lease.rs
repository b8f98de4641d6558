//! A lease and a head as owners send and receive them.

use keel_kernel::{Epoch, Head, LeaseToken, OwnerId};
use keel_web::{Body, Problem};
use serde_json::{Value, json};

/// The token in a body's `lease`; `None` where there is none. Whether one is needed is decided by the kernel (C1).
pub(crate) fn read(body: &Body) -> Result<Option<LeaseToken>, Problem> {
    let Some(lease) = body.optional("lease", "must be an object", Value::as_object)? else { return Ok(None) };
    let owner = lease.get("owner").and_then(Value::as_str).and_then(|owner| OwnerId::parse(owner).ok());
    let owner =
        owner.ok_or_else(|| Problem::member("/lease/owner", "must be 1 to 128 visible ASCII characters"))?;
    let epoch = lease.get("epoch").and_then(Value::as_u64);
    let epoch = epoch.ok_or_else(|| Problem::member("/lease/epoch", "must be a non-negative integer"))?;
    Ok(Some(LeaseToken { owner, epoch: Epoch(epoch) }))
}

/// The token in a body's `lease`, for a call that needs one.
pub(crate) fn required(body: &Body) -> Result<LeaseToken, Problem> {
    read(body)?.ok_or_else(|| Problem::member("/lease", "is required"))
}

/// A lease as its owner sees it: the token, and until when nobody else may claim.
pub(crate) fn view(token: &LeaseToken, head: &Head) -> Value {
    json!({
        "owner": token.owner,
        "epoch": token.epoch,
        "expiresAt": head.lease.as_ref().map(|lease| lease.until),
    })
}

/// The head as an owner sees it.
pub(crate) fn head(head: &Head) -> Value {
    json!({
        "seq": head.ledger.seq,
        "unanswered": head.ledger.unanswered,
        "openCalls": head.ledger.open_calls,
        "owedTurn": head.ledger.owed_turn,
        "run": {
            "status": head.run.status,
            "attempts": head.run.attempts,
            "maxAttempts": head.max_attempts,
            "readWatermark": head.run.watermark,
            "cancelRequested": head.run.cancel.is_some(),
        },
    })
}
