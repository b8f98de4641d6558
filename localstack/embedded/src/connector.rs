//! The SDK's transport, without a transport: one HTTP request in, one HTTP response out, as DynamoDB would give it.
//!
//! A refusal by the store is a response (status and JSON body), so the SDK parses it into its typed errors. Only what
//! no server could answer (a streaming body, a dead blocking task) is a connector error.

use std::fmt;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use dynoxide::Database;

use crate::Dispatch;
use crate::operations::{self, ApiResponse};

/// The header that names the operation, and what stands before its name.
const TARGET: &str = "x-amz-target";
const TARGET_PREFIX: &str = "DynamoDB_20120810.";

/// DynamoDB's own media type; the SDK parses errors by it.
pub(crate) const CONTENT_TYPE: &str = "application/x-amz-json-1.0";

#[derive(Clone)]
pub(crate) struct Connector {
    database: Database,
    dispatch: Dispatch,
}

impl Connector {
    pub(crate) fn new(database: Database, dispatch: Dispatch) -> Self {
        Self { database, dispatch }
    }

    async fn respond(self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let target = request.headers().get(TARGET).unwrap_or_default();
        let operation = target.strip_prefix(TARGET_PREFIX).unwrap_or_default().to_owned();
        let body =
            request.body().bytes().ok_or_else(|| ConnectorError::user(Unanswerable::Streaming.into()))?;
        let response = match self.dispatch {
            Dispatch::Inline => operations::run(&self.database, &operation, body),
            Dispatch::Blocking => {
                let (database, body) = (self.database, body.to_vec());
                tokio::task::spawn_blocking(move || operations::run(&database, &operation, &body))
                    .await
                    // Not `io`: the SDK's retry rules, where somebody turns them on, would take it for a lost connection.
                    .map_err(|cause| ConnectorError::other(Unanswerable::Ended(cause).into(), None))?
            }
        };
        Ok(http_response(response))
    }
}

fn http_response(response: ApiResponse) -> HttpResponse {
    let status = StatusCode::try_from(response.status).expect("the store's statuses are HTTP's");
    let mut response = HttpResponse::new(status, SdkBody::from(response.body));
    response.headers_mut().insert("content-type", CONTENT_TYPE);
    response
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new(self.clone().respond(request))
    }
}

impl HttpClient for Connector {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("dispatch", &self.dispatch).finish_non_exhaustive()
    }
}

/// What no server could answer.
#[derive(Debug, thiserror::Error)]
enum Unanswerable {
    #[error("a streaming body cannot be a DynamoDB request")]
    Streaming,
    #[error("the store's task was ended before it answered")]
    Ended(#[source] tokio::task::JoinError),
}
