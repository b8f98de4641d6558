//! The store: the embedded one, or a DynamoDB at an address. The embedded one can also be served to other programs.

use std::net::SocketAddr;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use keel_embedded::{Embedded, tables};
use keel_ledger::dynamo::{Dynamo, Tables};
use tokio::net::TcpListener;

use crate::error::StartError;
use crate::options::Options;

/// The prefix of the tables' names.
pub(crate) const PREFIX: &str = "keel-";
/// The longest that one request to a DynamoDB at an address may take.
const ATTEMPT: Duration = Duration::from_secs(3);
/// DynamoDB's media type.
const CONTENT_TYPE: &str = "application/x-amz-json-1.0";

/// The store that the options ask for.
pub(crate) struct Store {
    client: Client,
    /// How calls that may safely be carried out twice are retried.
    retries: RetryConfig,
    /// Set if the store is in this process.
    pub(crate) embedded: Option<Embedded>,
}

impl Store {
    pub(crate) fn open(options: &Options) -> Result<Self, StartError> {
        let embedded = match (&options.dynamodb, options.memory) {
            (Some(endpoint), _) => {
                let timeouts = TimeoutConfig::builder()
                    .operation_attempt_timeout(ATTEMPT)
                    .connect_timeout(ATTEMPT)
                    .build();
                let http = aws_smithy_http_client::Builder::new().build_http();
                let client = keel_embedded::client_at(endpoint, http, timeouts);
                let retries = RetryConfig::standard().with_max_attempts(8);
                return Ok(Self { client, retries, embedded: None });
            }
            (None, true) => Embedded::memory()?.with_dispatch(keel_embedded::Dispatch::Blocking),
            (None, false) => Embedded::open(options.data.join("ledger.sqlite"))?,
        };
        // In the process there are no passing failures.
        Ok(Self { client: embedded.client(), retries: RetryConfig::disabled(), embedded: Some(embedded) })
    }

    /// Where the ledger is, in words.
    pub(crate) fn place(&self, options: &Options) -> String {
        match (&options.dynamodb, options.memory) {
            (Some(endpoint), _) => format!("in the DynamoDB at {endpoint}"),
            (None, true) => "in memory".to_owned(),
            (None, false) => format!("kept in {}", options.data.display()),
        }
    }

    /// Makes the tables that are missing.
    pub(crate) async fn prepare(&self) -> Result<(), StartError> {
        let config = self.client.config().to_builder().retry_config(self.retries.clone()).build();
        tables::create_missing(&Client::from_conf(config), PREFIX).await?;
        Ok(())
    }

    /// The connection to the tables.
    pub(crate) fn tables(&self) -> Dynamo {
        Dynamo::new(self.client.clone(), Tables::with_prefix(PREFIX)).retrying(self.retries.clone())
    }
}

/// Serves the store as DynamoDB does: one path, the operation in a header.
pub(crate) async fn serve(embedded: Embedded, port: u16) -> Result<SocketAddr, StartError> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port)))
        .await
        .map_err(|source| StartError::Listen { port, source })?;
    let address = listener.local_addr().map_err(StartError::Serve)?;
    let router = Router::new().route("/", post(call)).with_state(embedded);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

async fn call(State(embedded): State<Embedded>, headers: HeaderMap, body: Bytes) -> Response {
    let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
    let (status, body) = embedded.call(target, body.to_vec()).await;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, CONTENT_TYPE)], body).into_response()
}
