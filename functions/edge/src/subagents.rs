//! The route of child sessions (H4), which the API calls subagents.

use axum::Json;
use axum::extract::State;
use keel_web::Problem;
use keel_web::params::{At, Query};
use serde_json::{Value, json};

use crate::{Edge, view};

/// `GET /v1/sessions/{id}/subagents`: all of a session's children on one page, since a session has few.
pub(crate) async fn list(State(edge): State<Edge>, At(at): At, query: Query) -> Result<Json<Value>, Problem> {
    query.only(&[])?;
    edge.ledger.head(&at).await?;
    let sessions = edge.ledger.children(&at).await?;
    let now = edge.ledger.env().now();
    let rows: Vec<Value> =
        sessions.iter().map(|session| view::session(session, now, edge.ledger.lease_ms())).collect();
    Ok(Json(json!({ "subagents": rows })))
}
