//! What every HTTP function has around its routes: an id for each request, a problem document for an unknown path or method,
//! and a 500 without its cause for a handler that panics.

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use tower_http::catch_panic::CatchPanicLayer;

use crate::auth::{Auth, Gate, Scope, pass};
use crate::error::{Code, Problem};
use crate::request;

/// Puts a router behind the gate of a scope.
pub fn gated(router: Router, auth: &Auth, scope: Scope) -> Router {
    router.route_layer(from_fn_with_state(Gate::new(auth.clone(), scope), pass))
}

/// Wraps the routes of one function, or the merged routes of several.
pub fn finish(router: Router) -> Router {
    router
        .fallback(|| async { Problem::new(Code::NotFound, "there is no such path") })
        .method_not_allowed_fallback(|| async {
            Problem::new(Code::MethodNotAllowed, "the path does not take this method")
        })
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(request::identify))
}

fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    tracing::error!("a handler panicked");
    Problem::new(Code::Internal, "something failed; sending the call again is safe").into_response()
}
