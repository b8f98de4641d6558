//! `GET /v1/capabilities` (W1, W2): the features and limits of this deployment, so that a client need not guess them from a
//! version. A flag is true only where the feature works here.

use axum::Json;
use axum::extract::State;
use keel_kernel::caps;
use keel_web::body;
use serde_json::{Value, json};

use crate::{Edge, events, sessions};

/// The features that depend on the deployment.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// The stream function is deployed.
    pub stream: bool,
    /// The owner API is deployed.
    pub owners: bool,
}

pub(crate) async fn show(State(edge): State<Edge>) -> Json<Value> {
    let Features { stream, owners } = edge.features;
    Json(json!({
        "apiVersion": "v1",
        "serviceVersion": concat!("keel/", env!("CARGO_PKG_VERSION")),
        "features": {
            "budgets": true,
            "compaction": true,
            "decisions": true,
            "events.stream": stream,
            "events.wait": true,
            "export": false,
            "fork": false,
            "hooks": false,
            "owners": owners,
            "partials": stream,
            "plugins": true,
            "sessions.cancel": true,
            "sessions.external": true,
            "sessions.list": true,
            "settings.models": true,
            "settings.secrets": true,
            "subagents": true,
            "transcript": true,
            "triggers": false,
        },
        "limits": {
            "bodyBytes": body::LIMIT,
            "childDepth": caps::CHILD_DEPTH,
            "children": caps::CHILDREN,
            "childTaskBytes": caps::TASK_BYTES,
            "payloadBytes": caps::PAYLOAD_BYTES,
            "payloadDepth": caps::PAYLOAD_DEPTH,
            "eventsPerCommit": caps::EVENTS_PER_COMMIT,
            "eventsPageDefault": events::PAGE_DEFAULT,
            "eventsPageMax": events::PAGE_MAX,
            "eventsWaitSecondsMax": events::WAIT_MAX_S,
            "maxAttemptsDefault": caps::ATTEMPTS_DEFAULT,
            "maxAttemptsMax": caps::ATTEMPTS_MAX,
            "requestIdLength": 128,
            "sessionIdLength": 64,
            "sessionsPageDefault": sessions::PAGE_DEFAULT,
            "sessionsPageMax": sessions::PAGE_MAX,
            "toolCallsPerMessage": caps::CALLS_PER_MESSAGE,
            "unansweredInputs": caps::UNANSWERED,
        },
        "hooks": [],
    }))
}
