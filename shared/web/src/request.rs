//! One id for each request: the caller's if it is 1 to 128 visible ASCII characters, else ours. It is in the response's
//! header, in a problem's body and in every log line of the request. The log lines also name the request's trace: the
//! caller's (`traceparent`), else a new one. One span has all of this, with the tenant and the session once they are known.

use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderName, HeaderValue};
use keel_env::trace::Trace;
use keel_env::{Env as _, SystemEnv};
use tracing::Instrument as _;

/// The header that carries the id, both ways.
pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    static CURRENT: String;
}

/// The id of the request being answered.
pub(crate) fn current_id() -> Option<String> {
    CURRENT.try_with(String::clone).ok()
}

/// Gives each request its id, its span, and one line in the log.
pub async fn identify(request: Request, next: Next) -> Response {
    let sent = request.headers().get(HEADER).and_then(|id| id.to_str().ok());
    let id = match sent {
        Some(id) if (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic()) => {
            id.to_owned()
        }
        _ => SystemEnv.unique(),
    };
    let sent = request.headers().get("traceparent").and_then(|trace| trace.to_str().ok());
    let trace = Trace::continued(sent);
    // The route, not the path: a path may hold what a log must not.
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    // At the level of errors, so that no filter leaves it out where it lets an error through.
    let span = tracing::error_span!(
        "request",
        request_id = %id,
        trace = %trace.id(),
        method = %request.method(),
        route,
        tenant = tracing::field::Empty,
        session = tracing::field::Empty,
    );
    let start = Instant::now();
    let response = trace.within(CURRENT.scope(id.clone(), next.run(request)));
    let mut response = async move {
        let response = response.await;
        let (status, ms) = (response.status().as_u16(), start.elapsed().as_millis());
        tracing::info!(status, ms, "a request was answered");
        response
    }
    .instrument(span)
    .await;
    let value = HeaderValue::from_str(&id).expect("visible ASCII");
    response.headers_mut().insert(HEADER, value);
    response
}
