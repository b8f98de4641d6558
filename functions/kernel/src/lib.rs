//! The owner API: claim, renew, commit, settle, release, for a loop in any language; and the sweep that finds what lost
//! hints left behind.

mod claim;
mod lease;
mod owner;
pub mod sweep;

use axum::Router;
use axum::routing::post;
use keel_ledger::Ledger;
use keel_web::service::gated;
use keel_web::{Auth, Scope};

/// What the routes work with.
#[derive(Clone)]
pub struct Owners {
    /// The ledger's verbs.
    pub ledger: Ledger,
    /// Who calls.
    pub auth: Auth,
}

/// The routes, behind the `owner` scope.
pub fn router(owners: Owners) -> Router {
    let auth = owners.auth.clone();
    let routes = Router::new()
        .route("/v1/runs/claim", post(claim::claim))
        .route("/v1/sessions/{id}/lease/renew", post(owner::renew))
        .route("/v1/sessions/{id}/lease/release", post(owner::release))
        .route("/v1/sessions/{id}/commits", post(owner::commit))
        .route("/v1/sessions/{id}/partials", post(owner::partial))
        .route("/v1/sessions/{id}/settle", post(owner::settle))
        .with_state(owners);
    gated(routes, &auth, Scope::Owner)
}
