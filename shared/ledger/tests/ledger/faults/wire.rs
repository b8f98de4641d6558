//! A connector that fails by script: what a network, a throttled table and a service in trouble do to a request.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{HttpClient, RuntimeComponents, SharedHttpClient};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use keel_embedded::{Embedded, client_over};
use serde_json::{Value, json};

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It never arrives.
    LostRequest,
    /// It is carried out, and nobody hears of it.
    LostAnswer,
    /// It is refused at the door with this code.
    Throttled(&'static str),
    /// Another transaction is at the same items.
    Conflict,
    /// The same token's first request is still being carried out, as the service says.
    InProgress,
    /// An internal error, before anything is written.
    InternalBefore,
    /// An internal error, after everything is written.
    InternalAfter,
    /// It is cancelled, and only the failing reason with this number is told, or the last one.
    OneReason(usize),
}

#[derive(Debug, Default)]
struct Script {
    faults: VecDeque<Fault>,
    forever: Option<Fault>,
    reads_too: bool,
    forgets_tokens: bool,
    requests: Vec<String>,
    failing_reasons: usize,
}

/// The hand on the wire.
#[derive(Clone, Debug, Default)]
pub(super) struct Wire(Arc<Mutex<Script>>);

impl Wire {
    /// A client of this store through a wire of its own.
    pub(super) fn over(store: &Embedded) -> (Client, Wire) {
        let wire = Wire::default();
        let tapped = Tapped { inner: store.http_client(), wire: wire.clone() };
        (client_over(SharedHttpClient::new(tapped)), wire)
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock()
    }

    /// The next writes meet these faults, one each.
    pub(super) fn writes_meet(&self, faults: &[Fault]) {
        self.script().faults = faults.iter().copied().collect();
    }

    /// The next requests meet these faults, reads too.
    pub(super) fn requests_meet(&self, faults: &[Fault]) {
        self.writes_meet(faults);
        self.script().reads_too = true;
    }

    /// Whatever is not in the script of the next writes meets this fault.
    pub(super) fn then_forever(&self, fault: Fault) {
        self.script().forever = Some(fault);
    }

    /// The service remembers no ClientRequestToken, as after ten minutes.
    pub(super) fn forget_tokens(&self) {
        self.script().forgets_tokens = true;
    }

    /// No more faults. Tells how many of the script were left.
    pub(super) fn heal(&self) -> usize {
        let mut script = self.script();
        script.forever = None;
        script.reads_too = false;
        std::mem::take(&mut script.faults).len()
    }

    /// The operations asked for since the last look.
    pub(super) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.script().requests)
    }

    /// The most failing reasons that one cancelled transaction had so far.
    pub(super) fn failing_reasons(&self) -> usize {
        self.script().failing_reasons
    }

    fn next_fault(&self, operation: &str) -> Option<Fault> {
        let mut script = self.script();
        script.requests.push(operation.to_owned());
        let write = matches!(operation, "TransactWriteItems" | "UpdateItem" | "PutItem");
        if write || script.reads_too { script.faults.pop_front().or(script.forever) } else { None }
    }

    /// The request without its token, where tokens are forgotten.
    fn without_token(&self, request: &mut HttpRequest) {
        if !self.script().forgets_tokens {
            return;
        }
        let mut body: Value =
            serde_json::from_slice(request.body().bytes().expect("no stream")).expect("JSON");
        if body.as_object_mut().expect("an object").remove("ClientRequestToken").is_some() {
            *request.body_mut() = SdkBody::from(body.to_string());
        }
    }

    /// The same cancellation with one reason told.
    fn with_one_reason(&self, answer: HttpResponse, told: usize) -> HttpResponse {
        let mut body: Value =
            serde_json::from_slice(answer.body().bytes().expect("no stream")).expect("JSON");
        let Some(reasons) = body.get_mut("CancellationReasons").and_then(Value::as_array_mut) else {
            return answer;
        };
        let failing: Vec<usize> = (0..reasons.len()).filter(|at| reasons[*at]["Code"] != "None").collect();
        {
            let mut script = self.script();
            script.failing_reasons = script.failing_reasons.max(failing.len());
        }
        let kept = failing[told.min(failing.len() - 1)];
        for (at, reason) in reasons.iter_mut().enumerate() {
            if at != kept {
                *reason = json!({ "Code": "None" });
            }
        }
        response(answer.status().as_u16(), &body)
    }
}

fn response(status: u16, body: &Value) -> HttpResponse {
    let status = StatusCode::try_from(status).expect("a status");
    let mut response = HttpResponse::new(status, SdkBody::from(body.to_string()));
    response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
    response
}

fn error(status: u16, code: &str) -> HttpResponse {
    let of = format!("com.amazonaws.dynamodb.v20120810#{code}");
    response(status, &json!({ "__type": of, "message": "injected" }))
}

fn conflict(operation: &str, request: &HttpRequest) -> HttpResponse {
    if operation != "TransactWriteItems" {
        return error(400, "TransactionConflictException");
    }
    let body: Value = serde_json::from_slice(request.body().bytes().expect("no stream")).expect("JSON");
    let actions = body["TransactItems"].as_array().expect("actions").len();
    let reasons =
        (0..actions).map(|at| json!({ "Code": if at == 0 { "TransactionConflict" } else { "None" } }));
    let of = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
    response(
        400,
        &json!({ "__type": of, "Message": "injected", "CancellationReasons": reasons.collect::<Vec<_>>() }),
    )
}

#[derive(Clone, Debug)]
struct Tapped<Inner> {
    inner: Inner,
    wire: Wire,
}

impl HttpClient for Tapped<SharedHttpClient> {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(Tapped { inner, wire: self.wire.clone() })
    }
}

impl HttpConnector for Tapped<SharedHttpConnector> {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let this = self.clone();
        HttpConnectorFuture::new(async move {
            let target = request.headers().get("x-amz-target").unwrap_or_default().to_owned();
            let operation = target.rsplit('.').next().unwrap_or_default();
            let fault = this.wire.next_fault(operation);
            this.wire.without_token(&mut request);
            match fault {
                None => this.inner.call(request).await,
                Some(Fault::LostRequest) => Err(ConnectorError::timeout("the request was lost".into())),
                Some(Fault::LostAnswer) => {
                    drop(this.inner.call(request).await);
                    Err(ConnectorError::timeout("the answer was lost".into()))
                }
                Some(Fault::Throttled(code)) => Ok(error(400, code)),
                Some(Fault::Conflict) => Ok(conflict(operation, &request)),
                Some(Fault::InProgress) => Ok(error(400, "TransactionInProgressException")),
                Some(Fault::InternalBefore) => Ok(error(500, "InternalServerError")),
                Some(Fault::InternalAfter) => {
                    drop(this.inner.call(request).await);
                    Ok(error(500, "InternalServerError"))
                }
                Some(Fault::OneReason(told)) => {
                    let answer = this.inner.call(request).await?;
                    Ok(this.wire.with_one_reason(answer, told))
                }
            }
        })
    }
}
