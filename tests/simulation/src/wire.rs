//! The wire between a process's AWS SDK and the store, and what can happen on it.
//!
//! Every request is a real one, serialised by the SDK and answered by the embedded store in this thread, so its place
//! in the order of all requests is decided by virtual time alone. A fault is drawn for each request: it may never
//! arrive, arrive after its caller has given up, be carried out and its answer lost, be refused before anything is done, or
//! take long. An eventual read may get an answer that is out of date.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_smithy_runtime_api::client::http::{HttpConnector as _, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use keel_embedded::wire::{Answered, answer, conflict, json_of, operation, refusal, tapped, with_one_reason};
use keel_embedded::{Embedded, client_over};
use serde_json::Value;

use crate::history::History;
use crate::journal;
use crate::rng::{Rng, Shared};
use crate::stale;

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    LostRequest,
    /// It arrives, after its caller has given up.
    LateRequest,
    LostAnswer,
    Throttled,
    Conflict,
    InProgress,
    InternalBefore,
    InternalAfter,
    OneReason,
    Slow,
}

const FAULTS: [(Fault, &str); 10] = [
    (Fault::LostRequest, "a request was lost"),
    (Fault::LateRequest, "a request came late"),
    (Fault::LostAnswer, "an answer was lost"),
    (Fault::Throttled, "a request was throttled"),
    (Fault::Conflict, "a transaction met another"),
    (Fault::InProgress, "a token was in progress"),
    (Fault::InternalBefore, "an internal error before"),
    (Fault::InternalAfter, "an internal error after"),
    (Fault::OneReason, "one reason was told"),
    (Fault::Slow, "a request was slow"),
];

/// Requests that one world may make. The busiest world needs a tenth of them.
const BUDGET: u64 = 15_000;

/// A process's wire.
#[derive(Debug)]
pub(crate) struct Wire {
    chance: Shared,
    /// Faults in a thousand requests.
    faults: u64,
    /// No more faults, anywhere.
    calm: Arc<AtomicBool>,
    history: Arc<History>,
    /// The item of each key as it was last read, for answers that are out of date.
    seen: Mutex<BTreeMap<String, Value>>,
}

impl Wire {
    /// A client of the store through a wire of its own.
    pub(crate) fn client(
        store: &Embedded,
        faults: u64,
        calm: Arc<AtomicBool>,
        history: Arc<History>,
        rng: Rng,
    ) -> Client {
        let wire = Arc::new(Wire { chance: Shared::new(rng), faults, calm, history, seen: Mutex::default() });
        client_over(tapped(store.http_client(), move |request, inner| wire.clone().call(inner, request)))
    }

    fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    fn draw(&self, operation: &str) -> Option<Fault> {
        if self.is_calm() || !self.chance.draw(|rng| rng.chance(self.faults)) {
            return None;
        }
        let (fault, name) = self.chance.draw(|rng| *rng.one_of(&FAULTS));
        let transact = operation == "TransactWriteItems";
        let applies = match fault {
            Fault::Conflict => transact || operation == "UpdateItem",
            Fault::InProgress | Fault::OneReason => transact,
            _ => true,
        };
        applies.then(|| {
            self.history.count(name);
            fault
        })
    }

    async fn wait(&self, ms: std::ops::RangeInclusive<u64>) {
        let ms = self.chance.draw(|rng| rng.pick(ms));
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// Has the store carry out a request, and records what it wrote.
    async fn carry_out(
        &self,
        inner: &SharedHttpConnector,
        operation: &str,
        request: HttpRequest,
    ) -> Answered {
        let writes = !matches!(operation, "GetItem" | "Query" | "BatchGetItem" | "DescribeTable");
        let body = if writes || !self.is_calm() { json_of(request.body()) } else { Value::Null };
        let answered = inner.call(request).await?;
        if writes && answered.status().is_success() {
            journal::record(&self.history, operation, &body);
        }
        if writes || self.is_calm() || !answered.status().is_success() || body["ConsistentRead"] == true {
            return Ok(answered);
        }
        let now = json_of(answered.body());
        let mut seen = self.seen.lock();
        let past = self.chance.draw(|rng| stale::answer(rng, operation, &body, &now, &mut seen));
        Ok(match past {
            None => answered,
            Some(past) => {
                self.history.count("a read was stale");
                answer(200, &past)
            }
        })
    }

    /// Bounds the requests of a world. A loop without an end would run for ever, since virtual time makes each turn cheap.
    /// Past the bound nothing is answered any more, and the world ends with what was found.
    async fn within_budget(&self) {
        self.history.count("requests");
        let asked = self.history.records().counts["requests"];
        if asked == BUDGET {
            self.history.violated("R6", "the functions ask without end");
        }
        if asked >= BUDGET {
            std::future::pending::<()>().await;
        }
    }

    async fn call(self: Arc<Self>, inner: SharedHttpConnector, request: HttpRequest) -> Answered {
        let operation = operation(&request);
        let lost = |what: &'static str| Err(ConnectorError::timeout(what.into()));
        self.within_budget().await;
        // One in six takes so long that two calls of another process can come between. Races need such differences.
        let long = !self.is_calm() && self.chance.draw(|rng| rng.chance(170));
        self.wait(if long { 5..=60 } else { 1..=5 }).await;
        match self.draw(&operation) {
            None => self.carry_out(&inner, &operation, request).await,
            Some(Fault::LostRequest) => {
                self.wait(100..=2_000).await;
                lost("the request was lost")
            }
            Some(Fault::LateRequest) => {
                let this = self.clone();
                tokio::spawn(async move {
                    this.wait(50..=8_000).await;
                    drop(this.carry_out(&inner, &operation, request).await);
                });
                self.wait(50..=2_000).await;
                lost("the request is late")
            }
            Some(Fault::LostAnswer) => {
                drop(self.carry_out(&inner, &operation, request).await);
                self.wait(50..=2_000).await;
                lost("the answer was lost")
            }
            Some(Fault::Throttled) => Ok(refusal(400, "ThrottlingException")),
            Some(Fault::Conflict) => Ok(conflict(&request)),
            Some(Fault::InProgress) => Ok(refusal(400, "TransactionInProgressException")),
            Some(Fault::InternalBefore) => Ok(refusal(500, "InternalServerError")),
            Some(Fault::InternalAfter) => {
                drop(self.carry_out(&inner, &operation, request).await);
                Ok(refusal(500, "InternalServerError"))
            }
            Some(Fault::OneReason) => {
                let answered = self.carry_out(&inner, &operation, request).await?;
                Ok(with_one_reason(answered, |failing| self.chance.draw(|rng| *rng.one_of(failing))))
            }
            Some(Fault::Slow) => {
                self.wait(10..=1_500).await;
                let answered = self.carry_out(&inner, &operation, request).await;
                self.wait(10..=1_500).await;
                answered
            }
        }
    }
}
