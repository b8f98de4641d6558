//! The routes by which clients move a session on: input, external events, run, compact, cancel.

use axum::Json;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use keel_kernel::{Delivery, KeyName, Kind, Payload, Refusal, RunStatus};
use keel_ledger::{Appended, SessionKey};
use keel_web::params::{At, request_id};
use keel_web::{Body, Problem};
use serde_json::{Value, json};

use crate::{Edge, view};

/// C1, I1: refuses a body with a lease token or with another kind's key: neither may come with an edge or external commit.
fn no_token_no_other_key(body: &Body, kind: Kind) -> Result<(), Problem> {
    let came = |name: &str| body.object().contains_key(name);
    kind.check_token(came("lease"))?;
    for given in KeyName::ALL.into_iter().filter(|given| came(given.as_str())) {
        kind.check_key(given)?;
    }
    Ok(())
}

async fn submit(
    edge: &Edge,
    at: &SessionKey,
    payload: Payload,
    headers: &HeaderMap,
    in_body: Option<&str>,
    in_payload: Option<(&'static str, &str)>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let key = request_id(headers, in_body, in_payload)?;
    Ok(submitted(&edge.ledger.input(at, payload, key).await?))
}

/// The response to a submission (I3, D4): 201 where it was committed now, 200 where it had been before.
fn submitted(appended: &Appended) -> (StatusCode, Json<Value>) {
    let event = &appended.events[0];
    let mut answer = json!({
        "created": appended.created,
        "requestId": event.payload.get("requestId"),
        "seq": event.seq,
        "run": { "status": appended.head.run.status },
    });
    if event.kind == Kind::UserMessage {
        answer["delivery"] = json!(Delivery::of(&event.payload));
    }
    let status = if appended.created { StatusCode::CREATED } else { StatusCode::OK };
    (status, Json(answer))
}

/// `POST /v1/sessions/{id}/input`: the body is the payload.
pub(crate) async fn input(
    State(edge): State<Edge>,
    At(at): At,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Problem> {
    no_token_no_other_key(&body, Kind::UserMessage)?;
    if !body.object().contains_key("text") {
        return Err(Problem::member("/text", "is required"));
    }
    let in_body = body.text("requestId")?.map(str::to_owned);
    submit(&edge, &at, body.payload()?, &headers, in_body.as_deref(), None).await
}

/// `POST /v1/sessions/{id}/events`: `{kind: "user.message", payload}` (C3).
pub(crate) async fn event(
    State(edge): State<Edge>,
    At(at): At,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let kind = body.text("kind")?.ok_or_else(|| Problem::member("/kind", "is required"))?;
    let kind = Kind::parse(kind)?;
    if kind != Kind::UserMessage {
        return Err(Refusal::KindNotAccepted(kind).into());
    }
    no_token_no_other_key(&body, kind)?;
    body.only(&["kind", "payload", "requestId"])?;
    let payload = body.payload_at("payload")?;
    let inside = payload.get("requestId").and_then(Value::as_str).map(str::to_owned);
    let in_payload = inside.as_deref().map(|id| ("the payload's", id));
    submit(&edge, &at, payload, &headers, body.text("requestId")?, in_payload).await
}

/// `POST /v1/sessions/{id}/external-events`: the body is the payload (C4, V5).
pub(crate) async fn external(
    State(edge): State<Edge>,
    At(at): At,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Problem> {
    no_token_no_other_key(&body, Kind::ExternalEvent)?;
    let key = request_id(&headers, body.text("requestId")?, None)?;
    Ok(submitted(&edge.ledger.external_event(&at, body.payload()?, key).await?))
}

/// `POST /v1/sessions/{id}/run`
pub(crate) async fn run(State(edge): State<Edge>, At(at): At) -> Result<Json<Value>, Problem> {
    let head = edge.ledger.queue_run(&at).await?;
    Ok(Json(json!({ "queued": head.run.status == RunStatus::Pending, "run": view::run(&head) })))
}

/// `POST /v1/sessions/{id}/compact` (K3)
pub(crate) async fn compact(State(edge): State<Edge>, At(at): At) -> Result<Json<Value>, Problem> {
    let head = edge.ledger.ask_compaction(&at).await?;
    Ok(Json(json!({ "asked": head.compact, "run": view::run(&head) })))
}

/// `POST /v1/sessions/{id}/cancel`
pub(crate) async fn cancel(State(edge): State<Edge>, At(at): At) -> Result<Json<Value>, Problem> {
    let head = edge.ledger.cancel(&at).await?;
    Ok(Json(json!({ "run": view::run(&head) })))
}
