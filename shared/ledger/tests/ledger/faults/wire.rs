//! A connector that fails by script: what a network, a throttled table and a service in trouble do to a request.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_smithy_runtime_api::client::http::{HttpConnector as _, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use keel_embedded::wire::{Answered, conflict, json_of, operation, refusal, tapped, with_one_reason};
use keel_embedded::{Embedded, client_over};

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It never arrives.
    LostRequest,
    /// It is carried out, and its answer is lost.
    LostAnswer,
    /// It is refused with this code before anything is done.
    Throttled(&'static str),
    /// Another transaction holds the same items.
    Conflict,
    /// The same token's first request is still being carried out, as the service says.
    InProgress,
    /// An internal error, before anything is written.
    InternalBefore,
    /// An internal error, after everything is written.
    InternalAfter,
    /// It is cancelled, and only the failing reason with this number is named, or the last one.
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

/// Controls what happens on the wire.
#[derive(Clone, Debug, Default)]
pub(super) struct Wire(Arc<Mutex<Script>>);

impl Wire {
    /// A client of this store through a wire of its own.
    pub(super) fn over(store: &Embedded) -> (Client, Wire) {
        let wire = Wire::default();
        let script = wire.clone();
        let client = tapped(store.http_client(), move |request, inner| script.clone().call(request, inner));
        (client_over(client), wire)
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

    /// Ends all faults. Returns how many of the script are left.
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
        let mut body = json_of(request.body());
        if body.as_object_mut().expect("an object").remove("ClientRequestToken").is_some() {
            *request.body_mut() = SdkBody::from(body.to_string());
        }
    }

    /// Carries out a request, or does to it what the script says.
    async fn call(self, mut request: HttpRequest, inner: SharedHttpConnector) -> Answered {
        let fault = self.next_fault(&operation(&request));
        self.without_token(&mut request);
        match fault {
            None => inner.call(request).await,
            Some(Fault::LostRequest) => Err(ConnectorError::timeout("the request was lost".into())),
            Some(Fault::LostAnswer) => {
                drop(inner.call(request).await);
                Err(ConnectorError::timeout("the answer was lost".into()))
            }
            Some(Fault::Throttled(code)) => Ok(refusal(400, code)),
            Some(Fault::Conflict) => Ok(conflict(&request)),
            Some(Fault::InProgress) => Ok(refusal(400, "TransactionInProgressException")),
            Some(Fault::InternalBefore) => Ok(refusal(500, "InternalServerError")),
            Some(Fault::InternalAfter) => {
                drop(inner.call(request).await);
                Ok(refusal(500, "InternalServerError"))
            }
            Some(Fault::OneReason(told)) => Ok(with_one_reason(inner.call(request).await?, |failing| {
                let mut script = self.script();
                script.failing_reasons = script.failing_reasons.max(failing.len());
                failing[told.min(failing.len() - 1)]
            })),
        }
    }
}
