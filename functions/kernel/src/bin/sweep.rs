//! The sweep as a Lambda function on a schedule: once a minute.

use keel_fn_kernel::sweep::sweep;
use keel_lambda::Setup;
use lambda_runtime::{Error, LambdaEvent, service_fn};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let setup = Setup::from_env().await?;
    let (ledger, rows) = (setup.ledger(), setup.dynamo.clone());
    let handler = |_: LambdaEvent<serde_json::Value>| {
        let (ledger, rows) = (ledger.clone(), rows.clone());
        async move {
            let swept = sweep(&ledger, &rows).await?;
            Ok::<_, Error>(serde_json::json!({ "lookedAt": swept.looked_at, "hinted": swept.hinted }))
        }
    };
    lambda_runtime::run(service_fn(handler)).await
}
