//! Sessions: create, list, show, describe, close.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use keel_kernel::budget::Budget;
use keel_kernel::{Head, Millis, SessionId, StateOwner, caps};
use keel_ledger::SessionKey;
use keel_ledger::sessions::{Created, Meta, Patched, Session};
use keel_settings::{TenantBudget, is_name};
use keel_web::params::{At, Query};
use keel_web::{Body, Caller, Code, Problem, cursor};
use serde_json::{Value, json};

use crate::{Edge, view};

/// Sessions on a page when nobody says how many.
pub(crate) const PAGE_DEFAULT: u64 = 50;
/// Sessions on a page at most.
pub(crate) const PAGE_MAX: u64 = 200;
/// Rows looked at for one page when a filter drops most of them.
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
    (status, [(header::ETAG, view::etag(&session.meta))], Json(described(edge, session))).into_response()
}

/// The plugins whose tools a session may use.
fn plugins(body: &Body) -> Result<Option<Vec<String>>, Problem> {
    body.optional("plugins", "must be an array of at most 50 names", |value| {
        let names = value.as_array().filter(|names| names.len() <= 50)?;
        names.iter().map(|name| name.as_str().filter(|name| is_name(name)).map(str::to_owned)).collect()
    })
}

/// H5: `{maxTokens?, maxCostUsd?}`; an empty one is no budget.
fn budget(body: &Body) -> Result<Option<Budget>, Problem> {
    let must = "must be an object with maxTokens (a whole number) and maxCostUsd (0 to 1e9), or one of them";
    body.optional("budget", must, |value| {
        let budget: TenantBudget = serde_json::from_value(value.clone()).ok()?;
        budget.check().ok()?;
        Some(budget.budget())
    })
}

/// What a session is created from.
fn read_new(body: &Body, id: SessionId, now: Millis) -> Result<Meta, Problem> {
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
    Ok(Meta {
        plugins: plugins(body)?,
        title: bounded(body, "title", 256)?.map(str::to_owned),
        model: bounded(body, "model", 128)?.map(str::to_owned),
        system: bounded(body, "system", 64 * 1024)?.map(str::to_owned),
        metadata: metadata(body)?,
        state_owner: owner,
        backend: backend.map(str::to_owned),
        external_ref: external_ref.map(str::to_owned),
        max_attempts: attempts.unwrap_or(caps::ATTEMPTS_DEFAULT),
        digest: body.digest(),
        ..Meta::native(id, now)
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
    let meta = read_new(&body, id.clone(), edge.ledger.env().now())?;
    let budget = budget(&body)?.unwrap_or_default();
    let head = Head { budget, ..Head::new(meta.state_owner, meta.max_attempts) };
    let at = SessionKey { tenant: caller.tenant, session: id };
    match edge.rows.create(&at, &meta, &head).await? {
        Created::Now(session) => Ok(shown(&edge, StatusCode::CREATED, &session)),
        Created::Before(session) if session.meta.digest == meta.digest => {
            Ok(shown(&edge, StatusCode::OK, &session))
        }
        Created::Before(_) => Err(Problem::new(
            Code::SessionExists,
            "the session id is taken by a session with another description",
        )
        .with_fault(keel_kernel::Fault::new("/sessionId", "is taken"))),
    }
}

/// `GET /v1/sessions/{id}`
pub(crate) async fn show(State(edge): State<Edge>, At(at): At) -> Result<Response, Problem> {
    let session = edge.rows.session(&at).await?.ok_or_else(Problem::no_session)?;
    Ok(shown(&edge, StatusCode::OK, &session))
}

/// `PATCH /v1/sessions/{id}`: a JSON merge patch of what people may change.
pub(crate) async fn patch(
    State(edge): State<Edge>,
    At(at): At,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    body.only(&["title", "model", "system", "metadata", "plugins", "budget"])?;
    let budget = budget(&body)?;
    let if_match = headers.get(header::IF_MATCH).map(|tag| tag.to_str().unwrap_or("").trim().to_owned());
    let has = |name: &str| body.object().contains_key(name);
    for _ in 0..8 {
        let mut session = edge.rows.session(&at).await?.ok_or_else(Problem::no_session)?;
        let meta = &mut session.meta;
        if let Some(tag) = &if_match
            && tag != "*"
            && !tag.split(',').any(|one| one.trim() == view::etag(meta))
        {
            return Err(Problem::new(Code::PreconditionFailed, "If-Match names another revision")
                .with("etag", view::etag(meta)));
        }
        if has("title") {
            meta.title = bounded(&body, "title", 256)?.map(str::to_owned);
        }
        if has("model") {
            meta.model = bounded(&body, "model", 128)?.map(str::to_owned);
        }
        if has("system") {
            meta.system = bounded(&body, "system", 64 * 1024)?.map(str::to_owned);
        }
        if has("metadata") {
            meta.metadata = metadata(&body)?;
        }
        if has("plugins") {
            meta.plugins = plugins(&body)?;
        }
        meta.revision += 1;
        match edge.rows.patch(&at, meta).await? {
            Patched::Now(_) => {
                // Behind the description, whose If-Match guards it: a budget that is raised lets a run go on (H5).
                if has("budget") {
                    session.head = edge.ledger.set_budget(&at, budget.unwrap_or_default()).await?;
                }
                return Ok(shown(&edge, StatusCode::OK, &session));
            }
            Patched::Stale(_) => {} // somebody else's change came between: look again
        }
    }
    Err(keel_ledger::LedgerError::Busy.into())
}

/// `POST /v1/sessions/{id}/close`
pub(crate) async fn close(State(edge): State<Edge>, At(at): At) -> Result<Response, Problem> {
    edge.ledger.close_all(&edge.rows, &at).await?;
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
        let page = edge.rows.list(&caller.tenant, after.as_deref(), limit - sessions.len()).await?;
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
