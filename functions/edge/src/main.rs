//! The edge as a Lambda function behind the gateway: it reads the configuration and serves the routes.

use std::sync::Arc;

use aws_sdk_secretsmanager::Client as SecretsManager;
use keel_fn_edge::{Edge, Features, router};
use keel_lambda::{Setup, behind_gateway};
use keel_plugins::EgressPolicy;
use keel_settings::Settings;
use keel_settings::secrets::AwsSecrets;
use keel_web::service::finish;

#[tokio::main]
async fn main() -> Result<(), lambda_http::Error> {
    let setup = Setup::from_env().await?;
    let secrets = AwsSecrets::new(SecretsManager::new(&setup.aws), setup.required("KEEL_SECRETS_PREFIX")?);
    let edge = Edge {
        ledger: setup.ledger(),
        tenants: setup.tenants(),
        settings: Settings::new(setup.tenants()),
        secrets: Arc::new(secrets),
        egress: EgressPolicy { loopback: false, private: setup.flag("KEEL_PRIVATE_TOOLS") },
        auth: setup.auth(),
        features: Features { stream: setup.flag("KEEL_STREAM"), owners: setup.flag("KEEL_OWNERS") },
    };
    lambda_http::run(behind_gateway(finish(router(edge)))).await
}
