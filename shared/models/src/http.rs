//! One request to a model over HTTP: sent, streamed, and retried while no text of its answer has come.

use std::sync::Arc;
use std::time::Duration;

use eventsource_stream::Eventsource as _;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use keel_agent::Provider;
use keel_agent::provider::{Delta, ModelAnswer, Request};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::Value;

use crate::RetryPolicy;
use keel_egress::{EgressPolicy, Resolver};

/// How much of a provider's error message goes into the ledger, in characters.
const WORDS_MAX: usize = 500;

/// A protocol: how a request is written, and how its stream is read.
pub trait Wire: Send + Sync + 'static {
    /// Reads one stream.
    type Reader: Reader;
    /// The provider's name.
    fn name(&self) -> &str;
    /// The model for a request that wants this one, or none.
    fn model(&self, wanted: Option<&str>) -> String;
    /// The request.
    fn request(&self, client: &Client, request: &Request) -> RequestBuilder;
    /// A reader for its answer.
    fn reader(&self) -> Self::Reader;
}

/// The meaning of one event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamStep {
    /// Text for readers.
    Text(String),
    /// Nothing for readers yet.
    Nothing,
    /// The answer is complete.
    End,
}

/// Assembles an answer from the events of a stream.
pub trait Reader: Send {
    /// Takes an event.
    fn read_event(&mut self, event: &str, data: &str) -> Result<StreamStep, Failure>;
    /// The answer, once [`StreamStep::End`] was read.
    fn finish(self) -> ModelAnswer;
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// What happened, in words for the ledger, without secrets.
    pub what: String,
    /// Another try may succeed.
    pub is_transient: bool,
    /// How long the server asked to wait.
    pub after: Option<Duration>,
    /// The request was longer than the model's window.
    pub overflow: bool,
}

impl Failure {
    /// A failure that would happen again.
    pub fn permanent(what: impl Into<String>) -> Self {
        Self { what: what.into(), is_transient: false, after: None, overflow: false }
    }

    /// A failure that another try may not meet.
    pub fn transient(what: impl Into<String>) -> Self {
        Self { what: what.into(), is_transient: true, after: None, overflow: false }
    }
}

/// The provider's message in an error body, shortened.
pub(crate) fn words(body: &Value) -> String {
    let error = &body["error"];
    let text = error["message"].as_str().or(error.as_str()).or(body["message"].as_str()).unwrap_or_default();
    text.chars().take(WORDS_MAX).collect()
}

/// A model behind a protocol.
pub struct Http<W> {
    wire: Arc<W>,
    client: Client,
    retry_policy: RetryPolicy,
}

impl<W: Wire> Http<W> {
    /// A model behind `wire`. With an egress policy, names resolve only to addresses that it allows.
    ///
    /// # Errors
    /// When the TLS stack cannot be set up.
    pub fn new(
        wire: W,
        retry_policy: RetryPolicy,
        egress: Option<EgressPolicy>,
    ) -> Result<Self, reqwest::Error> {
        let mut client = Client::builder()
            .connect_timeout(retry_policy.connect)
            .read_timeout(retry_policy.idle)
            .redirect(reqwest::redirect::Policy::none()); // the key is sent only to the configured address
        if let Some(egress) = egress {
            client = client.no_proxy().dns_resolver(Arc::new(Resolver(egress)));
        }
        let client = client.build()?;
        Ok(Self { wire: Arc::new(wire), client, retry_policy })
    }
}

impl<W: Wire> Provider for Http<W> {
    fn name(&self) -> &str {
        self.wire.name()
    }

    fn model(&self, wanted: Option<&str>) -> String {
        self.wire.model(wanted)
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Delta> {
        let (wire, client, retry_policy) =
            (self.wire.clone(), self.client.clone(), self.retry_policy.clone());
        async_stream::stream! {
            let mut pauses = retry_policy.pauses.iter();
            loop {
                let mut reader = wire.reader();
                let mut silent = true;
                let failure = match send(wire.request(&client, &request)).await {
                    Err(failure) => failure,
                    Ok(response) => {
                        let mut events = response.bytes_stream().eventsource();
                        loop {
                            let step = match events.next().await {
                                None => Err(Failure::transient("the stream ended in the middle")),
                                Some(Err(error)) => Err(Failure::transient(broken(&error))),
                                Some(Ok(event)) => reader.read_event(&event.event, &event.data),
                            };
                            match step {
                                Ok(StreamStep::Nothing) => {}
                                Ok(StreamStep::Text(text)) => {
                                    silent = false;
                                    yield Delta::Text(text);
                                }
                                Ok(StreamStep::End) => {
                                    yield Delta::Done(reader.finish());
                                    return;
                                }
                                Err(failure) => break failure,
                            }
                        }
                    }
                };
                let pause = if silent { pause(&failure, &mut pauses, &retry_policy) } else { None };
                let Some(pause) = pause else {
                    let answer = if failure.overflow { ModelAnswer::overflowed } else { ModelAnswer::failed };
                    yield Delta::Done(answer(failure.what));
                    return;
                };
                tracing::info!(
                    provider = wire.name(), pause_ms = pause.as_millis(), why = %failure,
                    "a request to a model failed and is sent again after a pause"
                );
                tokio::time::sleep(pause).await;
            }
        }
        .boxed()
    }
}

/// How long to wait before the next try, if there is to be one.
pub(crate) fn pause<'a>(
    failure: &Failure,
    pauses: &mut impl Iterator<Item = &'a Duration>,
    retry_policy: &RetryPolicy,
) -> Option<Duration> {
    if !failure.is_transient || failure.after.is_some_and(|after| after > retry_policy.longest_pause) {
        return None;
    }
    let ours = pauses.next()?.mul_f64(rand::random_range(0.8..1.2));
    Some(failure.after.map_or(ours, |after| after.max(ours)))
}

/// How much of an error response is read, in bytes.
const REFUSAL_MAX: usize = 64 * 1024;

async fn send(request: RequestBuilder) -> Result<Response, Failure> {
    let mut response = request.send().await.map_err(|error| match error.is_builder() {
        true => Failure::permanent("the request could not be made"),
        false => Failure::transient(if error.is_timeout() {
            "the model did not answer in time"
        } else {
            "the model could not be reached"
        }),
    })?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let after = retry_after(response.headers());
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > REFUSAL_MAX {
            break;
        }
    }
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let is_transient = status.is_server_error()
        || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT, StatusCode::CONFLICT]
            .contains(&status);
    let words = words(&body);
    let overflow = is_overflow(status, &body, &words);
    let what = format!("the model answered {}: {words}", status.as_u16());
    Err(Failure { what, is_transient: is_transient && !overflow, after, overflow })
}

/// Whether an error says that the request is longer than the model's window. There is no common code for it.
fn is_overflow(status: StatusCode, body: &Value, words: &str) -> bool {
    if status == StatusCode::PAYLOAD_TOO_LARGE || body["error"]["code"] == "context_length_exceeded" {
        return true;
    }
    let words = words.to_ascii_lowercase();
    let says = ["prompt is too long", "context length", "context window", "context size", "maximum context"];
    status == StatusCode::BAD_REQUEST && says.iter().any(|phrase| words.contains(phrase))
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| {
        headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok().filter(|n| *n >= 0.0 && *n < 1e9)
    };
    let ms = number("retry-after-ms").map(|ms| Duration::from_secs_f64(ms / 1_000.0));
    ms.or_else(|| number(RETRY_AFTER.as_str()).map(Duration::from_secs_f64))
}

fn broken(error: &eventsource_stream::EventStreamError<reqwest::Error>) -> &'static str {
    match error {
        eventsource_stream::EventStreamError::Transport(error) if error.is_timeout() => "the stream stalled",
        eventsource_stream::EventStreamError::Transport(_) => "the stream broke off",
        _ => "the stream is no event stream",
    }
}
