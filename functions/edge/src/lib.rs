//! The client API: sessions, input, decisions, settings, and reads of the ledger.
//!
//! A thin crate: it has routes, reads requests and renders responses. What is allowed or refused is decided in
//! `keel-kernel`, and sessions are reached through `keel-ledger` alone.

mod capabilities;
mod decisions;
mod events;
mod input;
mod plugins;
mod sessions;
mod settings;
mod subagents;
mod transcript;
mod view;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post, put};
use keel_ledger::{Ledger, TenantStore};
use keel_plugins::EgressPolicy;
use keel_settings::{Secrets, Settings};
use keel_web::service::gated;
use keel_web::{Auth, Scope};

pub use capabilities::Features;

/// What the routes work with.
#[derive(Clone)]
pub struct Edge {
    /// The ledger.
    pub ledger: Ledger,
    /// The tenants' lists and spending, which are only read.
    pub tenants: TenantStore,
    /// The tenants' settings.
    pub settings: Settings,
    /// The store of the tenants' secrets.
    pub secrets: Arc<dyn Secrets>,
    /// Which networks the addresses of the tenants' models and plugins may be in.
    pub egress: EgressPolicy,
    /// How callers are recognised.
    pub auth: Auth,
    /// The features of this deployment (W2).
    pub features: Features,
}

/// The routes: sessions need the scope `client`, settings and plugins `admin`. `GET /v1/capabilities` needs no key, since a
/// client asks it before it has one.
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
        .route("/v1/sessions/{id}/compact", post(input::compact))
        .route("/v1/sessions/{id}/subagents", get(subagents::list))
        .route("/v1/sessions/{id}/decisions", get(decisions::of_session))
        .route("/v1/decisions", get(decisions::list))
        .route("/v1/decisions/{id}", get(decisions::show).post(decisions::answer))
        .with_state(edge.clone());
    let admin = Router::new()
        .route("/v1/plugins", get(plugins::list))
        .route("/v1/plugins/{name}", get(plugins::show).put(plugins::put).delete(plugins::remove))
        .route("/v1/settings/models", get(settings::models).put(settings::put_models))
        .route("/v1/settings/budget", get(settings::budget).put(settings::put_budget))
        .route("/v1/settings/secrets", get(settings::secrets))
        .route("/v1/settings/secrets/{name}", put(settings::put_secret).delete(settings::remove_secret))
        .with_state(edge);
    gated(routes, &auth, Scope::Client).merge(gated(admin, &auth, Scope::Admin)).merge(open)
}
