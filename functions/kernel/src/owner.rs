//! The calls of an owner that has claimed a run. Each carries the lease token, and the epoch in it decides (C2).

use axum::Json;
use axum::extract::State;
use keel_kernel::partial::PartialChunk;
use keel_kernel::run::Outcome;
use keel_kernel::{DedupeKey, Fault, KeyName, Kind, NewEvent, Payload, Refusal};
use keel_web::params::At;
use keel_web::{Body, Problem};
use serde_json::{Map, Value, json};

use crate::{Owners, lease};

/// The longest backoff an owner may ask for, in milliseconds.
const BACKOFF_MAX_MS: u64 = 3_600_000;
/// The backoff where it asks for none, in milliseconds.
const BACKOFF_MS: u64 = 2_000;
/// The longest partial, in bytes.
const DELTA_MAX: usize = 64 * 1024;

/// `POST …/lease/renew` `{lease}`
pub(crate) async fn renew(
    State(owners): State<Owners>,
    At(at): At,
    body: Body,
) -> Result<Json<Value>, Problem> {
    body.only(&["lease"])?;
    let token = lease::required(&body)?;
    let head = owners.ledger.renew(&at, None, &token).await?;
    Ok(Json(json!({ "lease": lease::view(&token, &head), "head": lease::head(&head) })))
}

/// `POST …/lease/release` `{lease, reason?}` (S5)
pub(crate) async fn release(
    State(owners): State<Owners>,
    At(at): At,
    body: Body,
) -> Result<Json<Value>, Problem> {
    body.only(&["lease", "reason"])?;
    body.text("reason")?;
    let token = lease::required(&body)?;
    let head = owners.ledger.release(&at, None, &token).await?;
    Ok(Json(json!({ "run": { "status": head.run.status } })))
}

/// `POST …/commits` `{lease, events: [{kind, payload, generationId?|toolCallId?}]}`: all events are committed, or none.
pub(crate) async fn commit(
    State(owners): State<Owners>,
    At(at): At,
    body: Body,
) -> Result<Json<Value>, Problem> {
    body.only(&["lease", "events"])?;
    let token = lease::read(&body)?;
    let events = read_events(&body)?;
    let appended = owners.ledger.commit(&at, None, token.clone(), events).await?;
    let seqs: Vec<_> = appended.events.iter().map(|event| event.seq).collect();
    let mut answer =
        json!({ "created": appended.created, "seqs": seqs, "head": lease::head(&appended.head) });
    if let Some(token) = token {
        answer["lease"] = lease::view(&token, &appended.head);
    }
    Ok(Json(answer))
}

fn read_events(body: &Body) -> Result<Vec<NewEvent>, Problem> {
    let events = body.optional("events", "must be an array", Value::as_array)?;
    let events = events.ok_or_else(|| Problem::member("/events", "is required"))?;
    let read = |(index, event): (usize, &Value)| {
        read_event(event).map_err(|refusal| match refusal {
            Refusal::Invalid { rule, fault } => {
                Refusal::Invalid { rule, fault: fault.under(&format!("/events/{index}")) }.into()
            }
            other => Problem::from(other),
        })
    };
    events.iter().enumerate().map(read).collect()
}

fn read_event(event: &Value) -> Result<NewEvent, Refusal> {
    let invalid = |pointer: &str, detail: &str| Refusal::invalid("V6", pointer, detail);
    let event = event.as_object().ok_or_else(|| invalid("", "must be an object"))?;
    let kind =
        event.get("kind").and_then(Value::as_str).ok_or_else(|| invalid("/kind", "must be a string"))?;
    let kind = Kind::parse(kind)?;
    let known = |name: &str| ["kind", "payload"].contains(&name) || KeyName::parse(name).is_some();
    if let Some(name) = event.keys().find(|name| !known(name)) {
        return Err(Refusal::Invalid {
            rule: keel_kernel::Rule("V6"),
            fault: Fault::new(format!("/{name}"), "is not known here"),
        });
    }
    let payload = event.get("payload").ok_or_else(|| invalid("/payload", "is required"))?;
    Ok(NewEvent { kind, payload: Payload::from_value(payload)?, key: read_key(event, kind)? })
}

/// I1: the key of an event, which must be the kind's own. Another kind's key is refused, even beside it.
fn read_key(event: &Map<String, Value>, kind: Kind) -> Result<Option<(KeyName, DedupeKey)>, Refusal> {
    let mut key = None;
    for name in KeyName::ALL {
        let Some(value) = event.get(name.as_str()) else { continue };
        kind.check_key(name)?;
        let must = "must be 1 to 128 visible ASCII characters";
        let parsed = value.as_str().and_then(|text| DedupeKey::parse(text).ok());
        key = Some((name, parsed.ok_or_else(|| Refusal::invalid("I1", format!("/{name}"), must))?));
    }
    Ok(key)
}

/// `POST …/partials` `{lease, generationId, index, delta, dead?}` (R3, R3a)
pub(crate) async fn partial(
    State(owners): State<Owners>,
    At(at): At,
    body: Body,
) -> Result<Json<Value>, Problem> {
    body.only(&["lease", "generationId", "index", "delta", "dead"])?;
    let token = lease::required(&body)?;
    let generation =
        body.text("generationId")?.ok_or_else(|| Problem::member("/generationId", "is required"))?;
    let generation =
        DedupeKey::parse(generation).ok().filter(|id| !id.as_str().contains('#')).ok_or_else(|| {
            Problem::member("/generationId", "must be 1 to 128 visible ASCII characters without #")
        })?;
    let index = body.optional("index", "must be a whole number below 1000000", |value| {
        value.as_u64().and_then(|index| u32::try_from(index).ok()).filter(|index| *index < 1_000_000)
    })?;
    let delta = body.optional("delta", "must be a string of at most 65536 bytes", |value| {
        value.as_str().filter(|text| text.len() <= DELTA_MAX)
    })?;
    let chunk = PartialChunk {
        epoch: token.epoch,
        generation: generation.to_string(),
        index: index.ok_or_else(|| Problem::member("/index", "is required"))?,
        text: delta.unwrap_or_default().to_owned(),
        dead: body.text("dead")?.map(str::to_owned),
    };
    owners.ledger.publish_partial(&at, None, &token, &chunk).await?;
    Ok(Json(json!({ "index": chunk.index })))
}

/// `POST …/settle` `{lease, outcome, summary?, backoffMs?}`: answers the run's new status (S).
pub(crate) async fn settle(
    State(owners): State<Owners>,
    At(at): At,
    body: Body,
) -> Result<Json<Value>, Problem> {
    body.only(&["lease", "outcome", "summary", "backoffMs"])?;
    let token = lease::required(&body)?;
    let must = format!("must be a whole number of milliseconds, at most {BACKOFF_MAX_MS}");
    let backoff_ms =
        body.optional("backoffMs", &must, |value| value.as_u64().filter(|ms| *ms <= BACKOFF_MAX_MS))?;
    let backoff_ms = backoff_ms.unwrap_or(BACKOFF_MS);
    let outcome =
        body.optional("outcome", "must be \"succeeded\", \"failed\" or \"cancelled\"", |value| match value
            .as_str()
        {
            Some("succeeded") => Some((Outcome::Succeeded, "done")),
            Some("failed") => Some((Outcome::Failed { backoff_ms }, "failed")),
            Some("cancelled") => Some((Outcome::Cancelled, "cancelled")),
            _ => None,
        })?;
    let (outcome, status) = outcome.ok_or_else(|| Problem::member("/outcome", "is required"))?;
    // S1: each settled attempt has its run.finished, whether or not its owner sent a summary.
    let summary = match body.object().contains_key("summary") {
        true => body.payload_at("summary")?,
        false => Payload::from_value(&json!({ "status": status }))?,
    };
    let event = NewEvent { kind: Kind::RunFinished, payload: summary, key: None };
    let settled = owners.ledger.settle(&at, None, &token, outcome, vec![event], None).await?;
    let settled = settled.ok_or(keel_ledger::LedgerError::Busy)?;
    Ok(Json(json!({ "created": settled.created, "run": { "status": settled.status } })))
}
