//! Behind a gateway.

use axum::Router;
use lambda_http::{Request, RequestExt as _, http};
use tower::util::MapRequest;

/// A router as the gateway's requests reach it.
pub type Behind = MapRequest<Router, fn(Request) -> Request>;

/// Takes the stage out of the path: a stage called `prod` is no part of `/v1`, wherever the API is deployed.
pub fn behind_gateway(router: Router) -> Behind {
    MapRequest::new(router, without_stage)
}

fn without_stage(mut request: Request) -> Request {
    let path = match request.uri().query() {
        Some(query) => format!("{}?{query}", request.raw_http_path()),
        None => request.raw_http_path().to_owned(),
    };
    // A path that was read from a request is one; if it were none, the router would say that it is not there.
    if let Ok(path) = path.parse::<http::uri::PathAndQuery>() {
        let mut parts = request.uri().clone().into_parts();
        parts.path_and_query = Some(path);
        if let Ok(uri) = http::Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}
