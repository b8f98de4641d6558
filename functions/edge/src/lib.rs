//! The client API: it takes input, says what became of it, and hands out the ledger.
//!
//! A thin crate: routes, parsing, rendering. Whatever is allowed or refused is decided in `keel-kernel`.

mod capabilities;
mod events;
mod input;
mod sessions;
mod transcript;
mod view;

use axum::Router;
use axum::routing::{get, post};
use keel_ledger::Ledger;
use keel_ledger::dynamo::Dynamo;
use keel_web::service::gated;
use keel_web::{Auth, Scope};

pub use capabilities::Features;

/// What the routes work with.
#[derive(Clone)]
pub struct Edge {
    /// The ledger's verbs.
    pub ledger: Ledger,
    /// Rows that no rule depends on.
    pub rows: Dynamo,
    /// Who calls.
    pub auth: Auth,
    /// What works in this deployment (W2).
    pub features: Features,
}

/// The routes, behind the `client` scope. `GET /v1/capabilities` is open: a client asks it before it has a key.
pub fn router(edge: Edge) -> Router {
    let auth = edge.auth.clone();
    let open = Router::new().route("/v1/capabilities", get(capabilities::show)).with_state(edge.clone());
    let routes = Router::new()
        .route("/v1/sessions", post(sessions::create).get(sessions::list))
        .route("/v1/sessions/{id}", get(sessions::show).patch(sessions::patch))
        .route("/v1/sessions/{id}/close", post(sessions::close))
        .route("/v1/sessions/{id}/input", post(input::input))
        .route("/v1/sessions/{id}/events", post(input::event).get(events::page))
        .route("/v1/sessions/{id}/external-events", post(input::external))
        .route("/v1/sessions/{id}/run", post(input::run))
        .route("/v1/sessions/{id}/cancel", post(input::cancel))
        .route("/v1/sessions/{id}/inputs", get(events::inputs))
        .route("/v1/sessions/{id}/transcript", get(transcript::show))
        .with_state(edge);
    gated(routes, &auth, Scope::Client).merge(open)
}
