//! The wire between the SDK and the store, for tests that put something on it: faults, counts, a request held back.

use std::fmt;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use serde_json::{Value, json};

use crate::connector::CONTENT_TYPE;

/// How a request ended: the answer, or no answer at all.
pub type Answered = Result<HttpResponse, ConnectorError>;

/// The same client with `hook` on its wire. The hook gets each request and the connector behind it: it may send the
/// request on, before or after something else, more than once, or never.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// use aws_smithy_runtime_api::client::http::HttpConnector as _;
/// use keel_embedded::{Embedded, client_over, wire};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (store, seen) = (Embedded::memory()?, Arc::new(AtomicUsize::new(0)));
/// let counter = seen.clone();
/// let client = client_over(wire::tapped(store.http_client(), move |request, inner| {
///     counter.fetch_add(1, Ordering::Relaxed);
///     inner.call(request)
/// }));
/// client.list_tables().send().await?;
/// assert_eq!(seen.load(Ordering::Relaxed), 1);
/// # Ok(())
/// # }
/// ```
pub fn tapped<Hook, Call>(client: SharedHttpClient, hook: Hook) -> SharedHttpClient
where
    Hook: Fn(HttpRequest, SharedHttpConnector) -> Call + Clone + Send + Sync + 'static,
    Call: Future<Output = Answered> + Send + 'static,
{
    SharedHttpClient::new(Tapped { inner: client, hook })
}

#[derive(Clone)]
struct Tapped<Inner, Hook> {
    inner: Inner,
    hook: Hook,
}

impl<Inner: fmt::Debug, Hook> fmt::Debug for Tapped<Inner, Hook> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tapped").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<Hook, Call> HttpClient for Tapped<SharedHttpClient, Hook>
where
    Hook: Fn(HttpRequest, SharedHttpConnector) -> Call + Clone + Send + Sync + 'static,
    Call: Future<Output = Answered> + Send + 'static,
{
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(Tapped { inner, hook: self.hook.clone() })
    }
}

impl<Hook, Call> HttpConnector for Tapped<SharedHttpConnector, Hook>
where
    Hook: Fn(HttpRequest, SharedHttpConnector) -> Call + Send + Sync + 'static,
    Call: Future<Output = Answered> + Send + 'static,
{
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new((self.hook)(request, self.inner.clone()))
    }
}

/// The operation that a request asks for, `GetItem` for example.
pub fn operation(request: &HttpRequest) -> String {
    let target = request.headers().get("x-amz-target").unwrap_or_default();
    target.rsplit('.').next().unwrap_or_default().to_owned()
}

/// A body as JSON; null where it is none.
pub fn json_of(body: &SdkBody) -> Value {
    body.bytes().and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default()
}

/// An answer as DynamoDB gives it.
///
/// # Panics
/// If there is no such status.
pub fn answer(status: u16, body: &Value) -> HttpResponse {
    let status = StatusCode::try_from(status).expect("a status of HTTP's");
    let mut response = HttpResponse::new(status, SdkBody::from(body.to_string()));
    response.headers_mut().insert("content-type", CONTENT_TYPE);
    response
}

fn error_type(code: &str) -> String {
    format!("com.amazonaws.dynamodb.v20120810#{code}")
}

/// DynamoDB's refusal with this code.
pub fn refusal(status: u16, code: &str) -> HttpResponse {
    answer(status, &json!({ "__type": error_type(code), "message": "injected" }))
}

/// The refusal of a write that met another transaction at the same items: of a transaction, at its first item.
pub fn conflict(request: &HttpRequest) -> HttpResponse {
    if operation(request) != "TransactWriteItems" {
        return refusal(400, "TransactionConflictException");
    }
    let items = json_of(request.body())["TransactItems"].as_array().map_or(1, Vec::len);
    let reasons: Vec<Value> = (0..items)
        .map(|at| json!({ "Code": if at == 0 { "TransactionConflict" } else { "None" } }))
        .collect();
    let body = json!({
        "__type": error_type("TransactionCanceledException"), "Message": "injected", "CancellationReasons": reasons,
    });
    answer(400, &body)
}

/// The same cancellation with one failing reason told, for DynamoDB need not name them all. `pick` gets the failing ones'
/// places and chooses. An answer that is no cancellation stays as it is.
pub fn with_one_reason(answered: HttpResponse, pick: impl FnOnce(&[usize]) -> usize) -> HttpResponse {
    let mut body = json_of(answered.body());
    let Some(reasons) = body.get_mut("CancellationReasons").and_then(Value::as_array_mut) else {
        return answered;
    };
    let failing: Vec<usize> = (0..reasons.len()).filter(|at| reasons[*at]["Code"] != "None").collect();
    if failing.is_empty() {
        return answered;
    }
    let told = pick(&failing);
    for (at, reason) in reasons.iter_mut().enumerate() {
        if at != told {
            *reason = json!({ "Code": "None" });
        }
    }
    answer(answered.status().as_u16(), &body)
}
