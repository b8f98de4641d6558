//! What the Lambda programs share: configuration read once at start, clients made once, at init, where a cold start can pay
//! for them, and an end that is announced.
//!
//! A variable that is missing or does not read is an error that names it, before the first request. For writes the ledger is
//! the only retry loop: the clients of [`Setup`] send nothing twice by themselves.
//!
//! ```no_run
//! use axum::Router;
//! use axum::routing::get;
//! use keel_lambda::{Setup, behind_gateway};
//! use keel_web::service::finish;
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), lambda_http::Error> {
//!     let setup = Setup::from_env().await?;
//!     let name = setup.required("KEEL_NAME")?;
//!     let routes = Router::new().route("/v1/name", get(async || name));
//!     lambda_http::run(behind_gateway(finish(routes))).await
//! }
//! ```
//!
//! | to know | read |
//! |---|---|
//! | what is read from the environment, and what is made of it | [`Setup`], [`BadConfig`] |
//! | why a stage is no part of a path | [`behind_gateway`] |
//! | how a program learns that it ends, and who may finish | [`Shutdown`] |

mod gateway;
mod shutdown;

use std::sync::Arc;
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, SdkConfig};
use keel_env::SystemEnv;
use keel_ledger::dynamo::{Dynamo, Tables};
use keel_ledger::hints::SqsHints;
use keel_ledger::notifier::CommitNotifier;
use keel_ledger::{Ledger, LedgerConfig, TenantStore};
use keel_web::{Auth, telemetry};

pub use gateway::{Behind, behind_gateway};
pub use shutdown::Shutdown;

/// A variable is missing or cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the environment variable {name} {problem}")]
pub struct BadConfig {
    name: &'static str,
    problem: &'static str,
}

/// One attempt of one call. The ledger sends it again; the runtime's own limit is minutes away.
const ATTEMPT: Duration = Duration::from_secs(3);
/// How long opening a connection may take.
const CONNECT: Duration = Duration::from_secs(2);

/// A function's clients and configuration.
#[derive(Clone, Debug)]
pub struct Setup {
    dynamo: Dynamo,
    /// The queue of hints.
    pub hints: SqsHints,
    /// What further clients are made from.
    pub aws: SdkConfig,
    config: LedgerConfig,
}

#[expect(clippy::disallowed_methods, reason = "this is where configuration is read")]
fn var(name: &'static str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Setup {
    /// Starts logging, reads `KEEL_TABLE_PREFIX`, `KEEL_QUEUE_URL`, `KEEL_LEASE_MS`, `KEEL_LOG` and `KEEL_STAGE`, and
    /// makes the clients.
    pub async fn from_env() -> Result<Self, BadConfig> {
        let stage = var("KEEL_STAGE").unwrap_or_else(|| "unnamed".to_owned());
        telemetry::start(telemetry::Reader::Machine { stage }, &var("KEEL_LOG").unwrap_or_default());
        let required = |name| var(name).ok_or(BadConfig { name, problem: "is missing" });
        let prefix = required("KEEL_TABLE_PREFIX")?;
        let queue = required("KEEL_QUEUE_URL")?;
        let mut config = LedgerConfig::default();
        if let Some(ms) = var("KEEL_LEASE_MS") {
            let bad = |_| BadConfig { name: "KEEL_LEASE_MS", problem: "is not a number of milliseconds" };
            config.lease_ms = ms.parse().map_err(bad)?;
        }
        let timeouts =
            TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT).connect_timeout(CONNECT).build();
        let aws = aws_config::defaults(BehaviorVersion::latest())
            .retry_config(RetryConfig::disabled()) // for writes the ledger is the only retry loop
            .timeout_config(timeouts)
            .load()
            .await;
        Ok(Self {
            dynamo: Dynamo::new(aws_sdk_dynamodb::Client::new(&aws), Tables::with_prefix(&prefix))
                .retrying(RetryConfig::standard()),
            hints: SqsHints::new(aws_sdk_sqs::Client::new(&aws), queue),
            aws,
            config,
        })
    }

    /// The ledger.
    pub fn ledger(&self) -> Ledger {
        let store = Arc::new(self.dynamo.clone());
        Ledger::new(
            store,
            Arc::new(self.hints.clone()),
            CommitNotifier::none(),
            Arc::new(SystemEnv),
            self.config,
        )
    }

    /// What belongs to tenants.
    pub fn tenants(&self) -> TenantStore {
        TenantStore::new(self.dynamo.clone())
    }

    /// Credentials.
    pub fn auth(&self) -> Auth {
        Auth::new(self.tenants())
    }

    /// A variable's text; it must be set.
    pub fn required(&self, name: &'static str) -> Result<String, BadConfig> {
        var(name).ok_or(BadConfig { name, problem: "is missing" })
    }

    /// A variable's text, if it is set and not empty.
    pub fn text(&self, name: &'static str) -> Option<String> {
        var(name)
    }

    /// A variable that is `1` or `true`.
    pub fn flag(&self, name: &'static str) -> bool {
        matches!(var(name).as_deref(), Some("1" | "true"))
    }

    /// A variable's number; `absent` if it is not set.
    pub fn number(&self, name: &'static str, absent: u64) -> Result<u64, BadConfig> {
        match var(name) {
            None => Ok(absent),
            Some(text) => text.parse().map_err(|_| BadConfig { name, problem: "is not a number" }),
        }
    }
}
