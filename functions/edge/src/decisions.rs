//! The routes of decisions (H2): a person lists them, reads them and answers them.

use axum::Json;
use axum::extract::{Path, State};
use keel_kernel::Refusal;
use keel_kernel::decision::{Decision, DecisionAnswer, DecisionState, Verdict};
use keel_ledger::SessionKey;
use keel_ledger::keys::OPEN_PREFIX;
use keel_ledger::port::Consistency;
use keel_web::decision::view;
use keel_web::params::{At, Query};
use keel_web::{Body, Caller, Problem, cursor};
use serde_json::{Value, json};

use crate::Edge;

/// Decisions on a page: by default, and at most.
const PAGE: (u64, u64) = (50, 100);
/// The longest comment, in bytes.
const COMMENT_MAX: usize = 4_096;

fn place(caller: &Caller, id: &str) -> Result<SessionKey, Problem> {
    let session = Decision::session_of(id).ok_or(Refusal::NotFound)?;
    Ok(SessionKey { tenant: caller.tenant.clone(), session })
}

/// `GET /v1/decisions`: the tenant's open decisions, oldest first.
pub(crate) async fn list(
    State(edge): State<Edge>,
    caller: Caller,
    query: Query,
) -> Result<Json<Value>, Problem> {
    query.only(&["limit", "cursor"])?;
    let limit = query.number("limit", 1..=PAGE.1)?.unwrap_or(PAGE.0) as usize;
    let after = query.text("cursor").map(|text| cursor::read_list_of(&caller.tenant, OPEN_PREFIX, text));
    let after = after.transpose()?;
    let (ids, next) = edge.tenants.open_decisions(&caller.tenant, after.as_deref(), limit).await?;
    let now = edge.ledger.env().now();
    let mut decisions = Vec::new();
    for id in ids {
        let found = edge.ledger.decision(&place(&caller, &id)?, &id, Consistency::Strong).await?;
        // A decision that has expired stays on the list until an owner looks at its run.
        let is_open = |decision: &Decision| matches!(decision.state(now), DecisionState::Open(_));
        decisions.extend(found.filter(is_open).map(|decision| view(&decision, now)));
    }
    let cursor = next.map(|sk| cursor::write_list(&caller.tenant, &sk));
    Ok(Json(json!({ "decisions": decisions, "cursor": cursor, "hasMore": cursor.is_some() })))
}

/// `GET /v1/sessions/{id}/decisions`: all decisions of a session, answered ones too.
pub(crate) async fn of_session(
    State(edge): State<Edge>,
    At(at): At,
    query: Query,
) -> Result<Json<Value>, Problem> {
    query.only(&[])?;
    edge.ledger.head(&at).await?;
    let mut decisions = edge.ledger.decisions(&at).await?;
    decisions.sort_by(|a, b| (a.opened_ms, &a.id).cmp(&(b.opened_ms, &b.id)));
    let now = edge.ledger.env().now();
    let decisions: Vec<Value> = decisions.iter().map(|decision| view(decision, now)).collect();
    Ok(Json(json!({ "decisions": decisions })))
}

/// `GET /v1/decisions/{id}`
pub(crate) async fn show(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let found = edge
        .ledger
        .decision(&place(&caller, &id)?, &id, Consistency::Strong)
        .await?
        .ok_or(Refusal::NotFound)?;
    Ok(Json(view(&found, edge.ledger.env().now())))
}

/// `POST /v1/decisions/{id}`: `{answer: allow|deny|edit, digest, arguments?, comment?}`
pub(crate) async fn answer(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
    body: Body,
) -> Result<Json<Value>, Problem> {
    body.only(&["answer", "digest", "arguments", "comment"])?;
    let edited =
        body.optional("arguments", "must be an object", |value| value.is_object().then(|| value.clone()))?;
    let verdict = match (body.text("answer")?, edited) {
        (Some("allow"), None) => Verdict::Allow,
        (Some("deny"), None) => Verdict::Deny,
        (Some("edit"), Some(arguments)) => Verdict::Edit { arguments },
        (Some("edit"), None) => {
            return Err(Problem::member("/arguments", "is required with the answer edit"));
        }
        (Some("allow" | "deny"), Some(_)) => {
            return Err(Problem::member("/arguments", "is only for the answer edit"));
        }
        (_, _) => return Err(Problem::member("/answer", "must be allow, deny or edit")),
    };
    let digest = body.text("digest")?.ok_or_else(|| Problem::member("/digest", "is required"))?;
    let comment =
        body.optional("comment", &format!("must be a string of at most {COMMENT_MAX} bytes"), |value| {
            value.as_str().filter(|text| text.len() <= COMMENT_MAX).map(str::to_owned)
        })?;
    let at = place(&caller, &id)?;
    let now = edge.ledger.env().now();
    let answer = DecisionAnswer { verdict, comment, by: caller.key.clone(), at_ms: now.0 };
    let (decision, created) = edge.ledger.answer_decision(&at, &id, digest, &answer).await?;
    let mut shown = view(&decision, now);
    shown["created"] = json!(created);
    Ok(Json(shown))
}
