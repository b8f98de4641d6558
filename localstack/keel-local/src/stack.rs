//! Puts the functions together and takes them down again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use keel_agent::Provider;
use keel_agent::tool::builtin::Builtin;
use keel_embedded::Embedded;
use keel_env::{Env as _, SystemEnv};
use keel_fn_edge::{Edge, Features};
use keel_fn_kernel::Owners;
use keel_fn_kernel::sweep::Sweeper;
use keel_fn_stream::{StreamConfig, Streams};
use keel_fn_worker::batch::answer_hint;
use keel_fn_worker::{FixedResources, NoMessage, TenantResources, Worker, WorkerConfig};
use keel_ledger::hints::{Hint, LocalHints};
use keel_ledger::notifier::CommitNotifier;
use keel_ledger::tenant_store::ApiKeyRow;
use keel_ledger::{Ledger, LedgerConfig, TenantStore};
use keel_models::{BadProviderConfig, ProviderConfig};
use keel_plugins::{EgressPolicy, PluginClient};
use keel_settings::Settings;
use keel_settings::secrets::FileSecrets;
use keel_web::Auth;
use keel_web::auth::ApiKey;
use keel_web::service::finish;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::banner;
use crate::dynamodb::{self, Store};
use crate::error::StartError;
use crate::options::Options;

/// Tools and models on this machine are allowed: they are what Keel is tried out with.
const EGRESS: EgressPolicy = EgressPolicy { loopback: true, private: false };
/// How long open requests and runs may take to end after SIGTERM.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between two deletions of expired partials.
const EXPIRY: Duration = Duration::from_secs(60);

/// Runs until SIGTERM or Ctrl-C.
pub(crate) async fn run(options: &Options) -> Result<(), StartError> {
    let opened = Store::open(options)?;
    opened.prepare().await?;
    let tables = opened.tables();
    let tenants = TenantStore::new(tables.clone());
    write_keys(&tenants, &options.keys).await?;

    let (hints, hinted) = LocalHints::channel();
    let config = LedgerConfig { lease_ms: options.lease_ms, ..LedgerConfig::default() };
    let store = Arc::new(tables);
    let ledger =
        Ledger::new(store, Arc::new(hints), CommitNotifier::in_process(), Arc::new(SystemEnv), config);
    let secrets = secrets(options)?;
    let (stop, drain) = watch::channel(false);

    let mut work = JoinSet::new();
    if options.no_worker {
        work.spawn(drop_hints(hinted, drain.clone()));
    } else {
        let resources = resources(options, &tenants, &secrets)?;
        work.spawn(answer_hints(
            worker(options, resources, &ledger, &tenants, &drain),
            hinted,
            options.invocation_ms,
        ));
    }
    let sweeper = Sweeper::new(ledger.clone());
    sweeper.recover().await.map_err(StartError::Recover)?;
    work.spawn(sweep_on(sweeper, Duration::from_millis(options.sweep_ms), drain.clone()));
    let mut dynamodb = None;
    if let Some(embedded) = &opened.embedded {
        work.spawn(expire(embedded.clone(), drain.clone()));
        if let Some(port) = options.dynamodb_port {
            dynamodb = Some(dynamodb::serve(embedded.clone(), port).await?);
        }
    }

    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], options.port)))
        .await
        .map_err(|source| StartError::Listen { port: options.port, source })?;
    let address = listener.local_addr().map_err(StartError::Serve)?;
    let router = finish(routes(options, &ledger, &tenants, &secrets, &drain));
    banner::ready(address, &opened.place(options), dynamodb);

    let mut draining = drain.clone();
    let serving = axum::serve(listener, router).with_graceful_shutdown(async move {
        told_to_stop().await;
        let _ = stop.send(true); // streams drain, runs are handed over
    });
    let end = async {
        let _ = draining.wait_for(|drain| *drain).await;
        tokio::time::sleep(END_TIMEOUT).await;
    };
    tokio::select! {
        served = serving.into_future() => served.map_err(StartError::Serve)?,
        () = end => tracing::warn!("some requests did not end in time and are dropped"),
    }
    let _ = tokio::time::timeout(END_TIMEOUT, async { while work.join_next().await.is_some() {} }).await;
    Ok(())
}

fn routes(
    options: &Options,
    ledger: &Ledger,
    tenants: &TenantStore,
    secrets: &Arc<FileSecrets>,
    drain: &watch::Receiver<bool>,
) -> Router {
    let auth = Auth::new(tenants.clone());
    let edge = Edge {
        ledger: ledger.clone(),
        tenants: tenants.clone(),
        settings: Settings::new(tenants.clone()),
        secrets: secrets.clone(),
        egress: EGRESS,
        auth: auth.clone(),
        features: Features { stream: true, owners: true },
    };
    let config = StreamConfig {
        life: Duration::from_millis(options.stream_ms),
        idle_life: Duration::from_millis(options.stream_ms),
        bytes: usize::MAX,
        look_live_ms: (500, 1_000), // commits notify the streams; polling is the backstop
        ..StreamConfig::default()
    };
    let owners = Owners { ledger: ledger.clone(), auth: auth.clone() };
    let streams = Streams { ledger: ledger.clone(), auth, config, drain: drain.clone() };
    keel_fn_edge::router(edge).merge(keel_fn_kernel::router(owners)).merge(keel_fn_stream::router(streams))
}

/// Secrets: in the ledger's folder, or in memory like the ledger.
fn secrets(options: &Options) -> Result<Arc<FileSecrets>, StartError> {
    let opened = match options.memory || options.dynamodb.is_some() {
        true => FileSecrets::memory(),
        false => FileSecrets::open(&options.data),
    };
    opened.map(Arc::new).map_err(StartError::Secrets)
}

fn resources(
    options: &Options,
    tenants: &TenantStore,
    secrets: &Arc<FileSecrets>,
) -> Result<TenantResources, StartError> {
    let caller = PluginClient::new(EGRESS, secrets.clone(), None).map_err(StartError::Plugins)?;
    let tools = Arc::new(Builtin::new(|| SystemEnv.now().to_string()));
    let own = FixedResources { provider: provider(options)?, tools };
    Ok(TenantResources::new(
        Settings::new(tenants.clone()),
        secrets.clone(),
        Arc::new(caller),
        EGRESS,
        own,
        Box::new(|choice| choice),
    ))
}

fn provider(options: &Options) -> Result<Arc<dyn Provider>, BadProviderConfig> {
    let choice = ProviderConfig {
        provider: options.provider.clone(),
        url: options.provider_url.clone(),
        model: options.model.clone(),
        key: options.provider_key.clone(),
        ..ProviderConfig::default()
    };
    choice.connect()
}

fn worker(
    options: &Options,
    resources: TenantResources,
    ledger: &Ledger,
    tenants: &TenantStore,
    drain: &watch::Receiver<bool>,
) -> Worker {
    let mut config = WorkerConfig { backoff_ms: options.backoff_ms, ..WorkerConfig::default() };
    if options.invocation_ms > 0 {
        // The same fractions of the invocation as of a function's fifteen minutes.
        config.no_new_request = Duration::from_millis(options.invocation_ms / 10);
        config.stop = Duration::from_millis(options.invocation_ms / 30);
    }
    Worker {
        ledger: ledger.clone(),
        tenants: tenants.clone(),
        resources: Arc::new(resources),
        config,
        drain: drain.clone(),
    }
}

async fn write_keys(tenants: &TenantStore, more: &[String]) -> Result<(), StartError> {
    let dev = format!("{}=client,owner,admin", banner::DEV_KEY);
    for given in std::iter::once(&dev).chain(more) {
        let bad = || StartError::Key(given.clone());
        let (key, scopes) = given.split_once('=').ok_or_else(bad)?;
        let key = ApiKey::parse(key).ok_or_else(bad)?;
        let row = ApiKeyRow {
            hash: key.hash(),
            scopes: scopes.split(',').map(str::to_owned).collect(),
            created_ms: SystemEnv.now().0,
        };
        tenants.put_api_key(&key.tenant, &key.id, &row).await.map_err(StartError::WriteKey)?;
    }
    Ok(())
}

/// The queue's event source: one task per hint. The second of two hints fails to claim.
async fn answer_hints(worker: Worker, mut hinted: mpsc::UnboundedReceiver<Hint>, invocation_ms: u64) {
    let mut drain = worker.drain.clone();
    let mut attempts = JoinSet::new();
    loop {
        let hint = tokio::select! {
            _ = drain.wait_for(|drain| *drain) => break,
            Some(_) = attempts.join_next() => continue,
            hint = hinted.recv() => match hint {
                Some(hint) => hint,
                None => break,
            },
        };
        let worker = worker.clone();
        attempts.spawn(async move {
            let deadline = (invocation_ms > 0).then(|| Instant::now() + Duration::from_millis(invocation_ms));
            // One that broke off is found by the sweep once its lease has run out.
            answer_hint(&worker, &hint, deadline, &NoMessage).await;
        });
    }
    while attempts.join_next().await.is_some() {}
}

/// Without a worker nothing waits for hints.
async fn drop_hints(mut hinted: mpsc::UnboundedReceiver<Hint>, mut drain: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            _ = drain.wait_for(|drain| *drain) => return,
            hint = hinted.recv() => if hint.is_none() { return },
        }
    }
}

/// The schedule.
async fn sweep_on(sweeper: Sweeper, every: Duration, mut drain: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            _ = drain.wait_for(|drain| *drain) => return,
            () = tokio::time::sleep(every) => {}
        }
        if let Err(error) = sweeper.sweep().await {
            tracing::error!(error = &error as &dyn std::error::Error, "a sweep failed");
        }
    }
}

/// Deletes expired partials: the embedded store does not by itself.
async fn expire(embedded: Embedded, mut drain: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            _ = drain.wait_for(|drain| *drain) => return,
            () = tokio::time::sleep(EXPIRY) => {}
        }
        if let Err(error) = embedded.sweep_expired().await {
            tracing::warn!(error = &error as &dyn std::error::Error, "expired partials could not be deleted");
        }
    }
}

async fn told_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => drop(terminate.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = terminated => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
