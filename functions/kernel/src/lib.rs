//! The commit path of owners: the HTTP calls by which a loop in any language claims a run, renews its lease, commits,
//! publishes partials, settles and releases. The sweep is here too: it sends new hints for lost ones.
//!
//! This folder, `functions/kernel` (package `keel-fn-kernel`), is the function that is deployed. It has routes, reads
//! requests and renders responses. The rules are in `shared/kernel` (package `keel-kernel`), a library without I/O.

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
    /// The ledger.
    pub ledger: Ledger,
    /// How callers are recognised.
    pub auth: Auth,
}

/// The routes, which need the scope `owner`.
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
