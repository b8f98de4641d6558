//! The worker as a Lambda function on the queue of hints, with partial batch responses.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lambda_events::event::sqs::{BatchItemFailure, SqsBatchResponse, SqsEvent};
use keel_agent::tool::builtin::Builtin;
use keel_env::Env as _;
use keel_fn_worker::batch::{MessageQueue, Received, answer_batch};
use keel_fn_worker::{FixedResources, TenantResources, Worker, WorkerConfig};
use keel_lambda::{Setup, Shutdown};
use keel_ledger::hints::SqsHints;
use keel_models::ProviderConfig;
use keel_plugins::{EgressPolicy, PluginClient};
use keel_settings::Settings;
use keel_settings::secrets::AwsSecrets;
use lambda_runtime::{Error, LambdaEvent, service_fn};
use secrecy::SecretString;
use tokio::time::Instant;

/// The queue of hints, for the consumer of its messages.
struct Queue(SqsHints);

#[async_trait::async_trait]
impl MessageQueue for Queue {
    async fn keep(&self, receipt: &str, seconds: u64) {
        self.0.keep(receipt, seconds).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let setup = Setup::from_env().await?;
    let shutdown = Shutdown::announced().await;
    let worker = Worker {
        ledger: setup.ledger(),
        tenants: setup.tenants(),
        resources: Arc::new(resources(&setup).await?),
        config: WorkerConfig::default(),
        drain: shutdown.drain(),
    };
    let queue: Arc<dyn MessageQueue> = Arc::new(Queue(setup.hints.clone()));
    let handler = service_fn(|event: LambdaEvent<SqsEvent>| {
        let (worker, queue) = (worker.clone(), queue.clone());
        async move { Ok::<_, Error>(handle(&worker, &queue, event).await) }
    });
    tokio::select! {
        ended = lambda_runtime::run(handler) => ended,
        () = shutdown.over() => Ok(()),
    }
}

/// Models and tools from the tenants' settings; the deployment's own model where a tenant has set none.
async fn resources(setup: &Setup) -> Result<TenantResources, Error> {
    let manager = aws_sdk_secretsmanager::Client::new(&setup.aws);
    let secrets = Arc::new(AwsSecrets::new(manager, setup.required("KEEL_SECRETS_PREFIX")?));
    let egress = EgressPolicy { loopback: false, private: setup.flag("KEEL_PRIVATE_TOOLS") };
    let lambda = aws_sdk_lambda::Client::new(&setup.aws);
    let caller = Arc::new(PluginClient::new(egress, secrets.clone(), Some(lambda))?);
    let own = FixedResources {
        provider: model(setup).await?.connect()?,
        tools: Arc::new(Builtin::new(|| keel_env::SystemEnv.now().to_string())),
    };
    let bedrock = aws_sdk_bedrockruntime::Client::new(&setup.aws);
    let configure = Box::new(move |choice| ProviderConfig { bedrock: Some(bedrock.clone()), ..choice });
    Ok(TenantResources::new(Settings::new(setup.tenants()), secrets, caller, egress, own, configure))
}

/// The deployment's own model: `KEEL_PROVIDER`, `KEEL_PROVIDER_URL`, `KEEL_MODEL`, and the key in the secret that
/// `KEEL_PROVIDER_SECRET` names. The secret is read at a cold start alone, so a rotated key is used from the next one on.
async fn model(setup: &Setup) -> Result<ProviderConfig, Error> {
    let key = match setup.text("KEEL_PROVIDER_SECRET") {
        None => None,
        Some(id) => {
            let secrets = aws_sdk_secretsmanager::Client::new(&setup.aws);
            secrets.get_secret_value().secret_id(id).send().await?.secret_string.map(SecretString::from)
        }
    };
    Ok(ProviderConfig {
        provider: setup.text("KEEL_PROVIDER").unwrap_or_else(|| "fake".to_owned()),
        url: setup.text("KEEL_PROVIDER_URL"),
        model: setup.text("KEEL_MODEL"),
        key,
        bedrock: Some(aws_sdk_bedrockruntime::Client::new(&setup.aws)),
        ..ProviderConfig::default()
    })
}

async fn handle(
    worker: &Worker,
    queue: &Arc<dyn MessageQueue>,
    event: LambdaEvent<SqsEvent>,
) -> SqsBatchResponse {
    let left = event.context.deadline().duration_since(SystemTime::now()).unwrap_or(Duration::ZERO);
    let received = event.payload.records.into_iter().map(|record| Received {
        id: record.message_id.unwrap_or_default(),
        receipt: record.receipt_handle.unwrap_or_default(),
        body: record.body.unwrap_or_default(),
    });
    let failed = answer_batch(worker, queue, received.collect(), Instant::now() + left).await;
    let failure = |id| {
        let mut failure = BatchItemFailure::default();
        failure.item_identifier = id;
        failure
    };
    let mut response = SqsBatchResponse::default();
    response.batch_item_failures = failed.into_iter().map(failure).collect();
    response
}
