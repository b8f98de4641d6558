//! What a router needs behind API Gateway.

use axum::Router;
use lambda_http::{Request, RequestExt as _, http};
use tower::util::MapRequest;

/// A router behind the gateway.
pub type Behind = MapRequest<Router, fn(Request) -> Request>;

/// Removes the stage from the path: routes begin with `/v1`, whatever the stage is called.
pub fn behind_gateway(router: Router) -> Behind {
    MapRequest::new(router, without_stage)
}

fn without_stage(mut request: Request) -> Request {
    let path = match request.uri().query() {
        Some(query) => format!("{}?{query}", request.raw_http_path()),
        None => request.raw_http_path().to_owned(),
    };
    // A path from a request parses. If it did not, the request would stay as it is, and the router would answer 404.
    if let Ok(path) = path.parse::<http::uri::PathAndQuery>() {
        let mut parts = request.uri().clone().into_parts();
        parts.path_and_query = Some(path);
        if let Ok(uri) = http::Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}
