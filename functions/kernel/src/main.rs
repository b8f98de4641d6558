//! The owner API as a Lambda function. It is called through the gateway, or invoked directly with the same event.

use keel_fn_kernel::{Owners, router};
use keel_lambda::{Setup, behind_gateway};
use keel_web::service::finish;

#[tokio::main]
async fn main() -> Result<(), lambda_http::Error> {
    let setup = Setup::from_env().await?;
    let owners = Owners { ledger: setup.ledger(), auth: setup.auth() };
    lambda_http::run(behind_gateway(finish(router(owners)))).await
}
