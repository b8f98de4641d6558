//! The edge as a Lambda function behind the gateway.

use keel_fn_edge::{Edge, Features, router};
use keel_lambda::{Setup, behind_gateway};
use keel_web::service::finish;

#[tokio::main]
async fn main() -> Result<(), lambda_http::Error> {
    let setup = Setup::from_env().await?;
    let edge = Edge {
        ledger: setup.ledger(),
        rows: setup.dynamo.clone(),
        auth: setup.auth(),
        features: Features { stream: setup.flag("KEEL_STREAM"), owners: setup.flag("KEEL_OWNERS") },
    };
    lambda_http::run(behind_gateway(finish(router(edge)))).await
}
