//! The stream as a Lambda function whose responses are streamed. It serves this route alone: under this runtime a buffered
//! response would come back empty.

use std::time::{Duration, SystemTime};

use axum::extract::Request;
use keel_fn_stream::{Deadline, StreamConfig, Streams, router};
use keel_lambda::{Setup, Shutdown, behind_gateway};
use keel_web::service::finish;
use lambda_http::{Context, RequestExt as _, run_with_streaming_response};
use tokio::time::Instant;

/// Puts the invocation's deadline into the request, for the handler.
fn deadline(mut request: Request) -> Request {
    let context: Option<Context> = request.lambda_context_ref().cloned();
    if let Some(context) = context {
        let left = context.deadline().duration_since(SystemTime::now()).unwrap_or(Duration::ZERO);
        request.extensions_mut().insert(Deadline(Instant::now() + left));
    }
    request
}

#[tokio::main]
async fn main() -> Result<(), lambda_http::Error> {
    let setup = Setup::from_env().await?;
    let shutdown = Shutdown::announced().await;
    let streams = Streams {
        ledger: setup.ledger(),
        auth: setup.auth(),
        config: StreamConfig::default(),
        drain: shutdown.drain(),
    };
    let router =
        finish(router(streams)).layer(axum::middleware::map_request(|request| async { deadline(request) }));
    tokio::select! {
        ended = run_with_streaming_response(behind_gateway(router)) => ended,
        () = shutdown.over() => Ok(()),
    }
}
