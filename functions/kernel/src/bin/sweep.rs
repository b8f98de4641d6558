//! The sweep as a Lambda function on a schedule: once a minute.

use std::sync::Arc;

use keel_fn_kernel::sweep::Sweeper;
use keel_lambda::Setup;
use lambda_runtime::{Error, LambdaEvent, service_fn};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let setup = Setup::from_env().await?;
    // Kept between invocations: one that stopped at its bound is continued by the next.
    let sweeper = Arc::new(Sweeper::new(setup.ledger()));
    let handler = |_: LambdaEvent<serde_json::Value>| {
        let sweeper = sweeper.clone();
        async move {
            let swept = sweeper.sweep().await?;
            Ok::<_, Error>(serde_json::json!({
                "lookedAt": swept.looked_at, "hinted": swept.hinted, "more": swept.more,
            }))
        }
    };
    lambda_runtime::run(service_fn(handler)).await
}
