//! The routes of sessions: create, list, show, change, close.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use keel_kernel::budget::Budget;
use keel_kernel::session::SessionPatch;
use keel_kernel::{Millis, Session, SessionDescription, SessionId, StateOwner, caps};
use keel_ledger::SessionKey;
use keel_settings::{TenantBudget, is_name};
use keel_web::params::{At, Query};
use keel_web::revision::{etag, if_match};
use keel_web::{Body, Caller, Problem, cursor};
use serde_json::{Value, json};

use crate::{Edge, view};

/// Sessions on a page by default.
pub(crate) const PAGE_DEFAULT: u64 = 50;
/// Sessions on a page at most.
pub(crate) const PAGE_MAX: u64 = 200;
/// Sessions read for one page when a filter drops most of them.
const LOOKED_AT_MAX: usize = 1_000;

fn bounded<'a>(body: &'a Body, name: &str, max: usize) -> Result<Option<&'a str>, Problem> {
    body.optional(name, &format!("must be a string of at most {max} bytes"), |value| {
        value.as_str().filter(|text| text.len() <= max)
    })
}

fn metadata(body: &Body) -> Result<Option<serde_json::Map<String, Value>>, Problem> {
    body.optional("metadata", "must be an object of at most 16384 bytes", |value| {
        value.as_object().filter(|_| value.to_string().len() <= 16 * 1024).cloned()
    })
}

fn described(edge: &Edge, session: &Session) -> Value {
    view::session(session, edge.ledger.env().now(), edge.ledger.lease_ms())
}

fn shown(edge: &Edge, status: StatusCode, session: &Session) -> Response {
    (status, [(header::ETAG, etag(session.description.revision))], Json(described(edge, session)))
        .into_response()
}

/// The plugins whose tools a session may use.
fn plugins(body: &Body) -> Result<Option<Vec<String>>, Problem> {
    body.optional("plugins", "must be an array of at most 50 names", |value| {
        let names = value.as_array().filter(|names| names.len() <= 50)?;
        names.iter().map(|name| name.as_str().filter(|name| is_name(name)).map(str::to_owned)).collect()
    })
}

/// H5: `{maxTokens?, maxCostUsd?}`. An empty object sets no limit.
fn budget(body: &Body) -> Result<Option<Budget>, Problem> {
    let must = "must be an object with maxTokens (a whole number) and maxCostUsd (0 to 1e9), or one of them";
    body.optional("budget", must, |value| {
        let budget: TenantBudget = serde_json::from_value(value.clone()).ok()?;
        budget.check().ok()?;
        Some(budget.budget())
    })
}

/// The description that a body creates a session from.
fn read_new(body: &Body, id: SessionId, now: Millis) -> Result<SessionDescription, Problem> {
    body.only(&[
        "sessionId",
        "title",
        "model",
        "system",
        "stateOwner",
        "backend",
        "externalRef",
        "metadata",
        "maxAttempts",
        "plugins",
        "budget",
    ])?;
    let owner =
        body.optional("stateOwner", "must be \"native\" or \"external\"", |value| match value.as_str() {
            Some("native") => Some(StateOwner::Native),
            Some("external") => Some(StateOwner::External),
            _ => None,
        })?;
    let owner = owner.unwrap_or_default();
    let backend = bounded(body, "backend", 256)?;
    let external_ref = bounded(body, "externalRef", 256)?;
    let (wanted, must) = match owner {
        StateOwner::External => (true, "is required with stateOwner \"external\""),
        StateOwner::Native => (false, "is only for stateOwner \"external\""),
    };
    for (name, value) in [("/backend", backend), ("/externalRef", external_ref)] {
        if value.is_some_and(|text| !text.is_empty()) != wanted {
            return Err(Problem::member(name, must));
        }
    }
    let attempts = body.optional(
        "maxAttempts",
        &format!("must be a whole number from 1 to {}", caps::ATTEMPTS_MAX),
        |value| {
            let attempts = u32::try_from(value.as_u64()?).ok()?;
            (1..=caps::ATTEMPTS_MAX).contains(&attempts).then_some(attempts)
        },
    )?;
    Ok(SessionDescription {
        plugins: plugins(body)?,
        title: bounded(body, "title", caps::TITLE_BYTES)?.map(str::to_owned),
        model: bounded(body, "model", caps::MODEL_BYTES)?.map(str::to_owned),
        system: bounded(body, "system", caps::SYSTEM_BYTES)?.map(str::to_owned),
        metadata: metadata(body)?,
        state_owner: owner,
        backend: backend.map(str::to_owned),
        external_ref: external_ref.map(str::to_owned),
        max_attempts: attempts.unwrap_or(caps::ATTEMPTS_DEFAULT),
        digest: body.digest(),
        ..SessionDescription::native(id, now)
    })
}

/// `POST /v1/sessions`
pub(crate) async fn create(
    State(edge): State<Edge>,
    caller: Caller,
    body: Body,
) -> Result<Response, Problem> {
    let id = match body.text("sessionId")? {
        Some(id) => SessionId::parse(id).map_err(|e| Problem::member("/sessionId", e.to_string()))?,
        None => SessionId::parse(edge.ledger.env().unique()).expect("hex digits"),
    };
    let description = read_new(&body, id.clone(), edge.ledger.env().now())?;
    let budget = budget(&body)?.unwrap_or_default();
    let at = SessionKey { tenant: caller.tenant, session: id };
    let (session, created) = edge.ledger.create(&at, &description, budget).await?;
    Ok(shown(&edge, if created { StatusCode::CREATED } else { StatusCode::OK }, &session))
}

/// `GET /v1/sessions/{id}`
pub(crate) async fn show(State(edge): State<Edge>, At(at): At) -> Result<Response, Problem> {
    Ok(shown(&edge, StatusCode::OK, &edge.ledger.session(&at).await?))
}

/// `PATCH /v1/sessions/{id}`: a JSON merge patch. With If-Match, it applies only to one of the revisions named there.
pub(crate) async fn patch(
    State(edge): State<Edge>,
    At(at): At,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    body.only(&["title", "model", "system", "metadata", "plugins", "budget"])?;
    let named = |name: &str| body.object().contains_key(name);
    let tags = headers.get(header::IF_MATCH).map(|tags| tags.to_str().unwrap_or(""));
    let patch = SessionPatch {
        title: named("title").then_some(bounded(&body, "title", caps::TITLE_BYTES)?.map(str::to_owned)),
        model: named("model").then_some(bounded(&body, "model", caps::MODEL_BYTES)?.map(str::to_owned)),
        system: named("system").then_some(bounded(&body, "system", caps::SYSTEM_BYTES)?.map(str::to_owned)),
        metadata: named("metadata").then_some(metadata(&body)?),
        plugins: named("plugins").then_some(plugins(&body)?),
        budget: named("budget").then_some(budget(&body)?.unwrap_or_default()),
        only_at: tags.and_then(if_match),
    };
    Ok(shown(&edge, StatusCode::OK, &edge.ledger.patch(&at, &patch).await?))
}

/// `POST /v1/sessions/{id}/close`
pub(crate) async fn close(State(edge): State<Edge>, At(at): At) -> Result<Response, Problem> {
    edge.ledger.close(&at).await?;
    show(State(edge), At(at)).await
}

/// `GET /v1/sessions`: newest first.
pub(crate) async fn list(
    State(edge): State<Edge>,
    caller: Caller,
    query: Query,
) -> Result<Json<Value>, Problem> {
    query.only(&["limit", "cursor", "status"])?;
    let limit = query.number("limit", 1..=PAGE_MAX)?.unwrap_or(PAGE_DEFAULT) as usize;
    let mut after =
        query.text("cursor").map(|cursor| cursor::read_list(&caller.tenant, cursor)).transpose()?;
    let wanted = query.text("status");
    if let Some(status) = wanted
        && !["open", "closed", "idle", "pending", "running", "waiting", "done", "failed"].contains(&status)
    {
        let must = "must be open, closed, idle, pending, running, waiting, done or failed";
        return Err(Problem::parameter("status", must));
    }
    let mut sessions = Vec::new();
    let mut looked_at = 0;
    loop {
        let page = edge.tenants.sessions(&caller.tenant, after.as_deref(), limit - sessions.len()).await?;
        looked_at += page.sessions.len();
        after = page.next;
        sessions.extend(page.sessions.into_iter().filter(|session| {
            wanted.is_none_or(|status| {
                status == view::status(&session.head) || status == session.head.run.status.as_str()
            })
        }));
        if sessions.len() >= limit || after.is_none() || looked_at >= LOOKED_AT_MAX {
            break;
        }
    }
    let rows: Vec<Value> = sessions.iter().map(|session| described(&edge, session)).collect();
    let cursor = after.map(|sk| cursor::write_list(&caller.tenant, &sk));
    Ok(Json(json!({ "sessions": rows, "cursor": cursor, "hasMore": cursor.is_some() })))
}
