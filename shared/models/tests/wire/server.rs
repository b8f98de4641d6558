//! A provider's server: answers each request with the next of its script, and keeps the requests.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use futures_util::StreamExt as _;
use futures_util::stream;
use keel_agent::Provider;
use keel_agent::provider::{Delta, Message, ModelAnswer, Request};
use keel_agent::tool::ToolSpec;
use keel_models::RetryPolicy;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// What the server does with one request.
#[derive(Clone)]
pub(crate) enum Scripted {
    /// 200, these bytes in pieces of this size, then the end.
    Stream(String, usize),
    /// 200, these bytes, then silence.
    Stalls(String),
    /// A status, a `retry-after` and a body.
    Refuses(u16, Option<&'static str>, Value),
}

/// A request that the server received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) url: String,
    script: Arc<Mutex<Vec<Scripted>>>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Server {
    pub(crate) async fn start(script: Vec<Scripted>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { url, script: Arc::new(Mutex::new(script)), received: Arc::default() };
        let router = Router::new().fallback(serve).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

async fn serve(State(server): State<Server>, request: axum::extract::Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let (path, body) = (parts.uri.path().to_owned(), serde_json::from_slice(&body).unwrap());
    server.received.lock().unwrap().push(Received { path, headers: parts.headers, body });
    let scripted = server.script.lock().unwrap().remove(0);
    let response = Response::builder().header("content-type", "text/event-stream");
    match scripted {
        Scripted::Stream(text, size) => {
            let pieces: Vec<_> = text
                .as_bytes()
                .chunks(size)
                .map(|piece| Ok::<_, Infallible>(Bytes::copy_from_slice(piece)))
                .collect();
            response.body(Body::from_stream(stream::iter(pieces))).unwrap()
        }
        Scripted::Stalls(text) => {
            let first = stream::iter([Ok::<_, Infallible>(Bytes::from(text))]);
            response.body(Body::from_stream(first.chain(stream::pending()))).unwrap()
        }
        Scripted::Refuses(status, after, body) => {
            let response = match after {
                Some(after) => Response::builder().header("retry-after", after),
                None => Response::builder(),
            };
            response.status(StatusCode::from_u16(status).unwrap()).body(Body::from(body.to_string())).unwrap()
        }
    }
}

/// Short times, so that tests end.
pub(crate) fn retry_policy() -> RetryPolicy {
    RetryPolicy {
        connect: Duration::from_secs(5),
        idle: Duration::from_millis(300),
        pauses: vec![Duration::from_millis(5); 3],
        longest_pause: Duration::from_secs(2),
    }
}

pub(crate) fn request(messages: Vec<Message>) -> Request {
    let tool = ToolSpec {
        name: "add".to_owned(),
        description: "Adds.".to_owned(),
        parameters: json!({ "type": "object", "properties": { "a": { "type": "number" } } }),
        policy: keel_agent::tool::Policy::default(),
    };
    Request {
        model: None,
        system: Some("Be kind.".to_owned()),
        messages,
        tools: vec![tool],
        attempt: 1,
        generation_id: "g".to_owned(),
    }
}

pub(crate) fn user(text: &str) -> Message {
    Message::User(json!({ "text": text }))
}

/// Sends a request; the texts that came, joined, and the answer.
pub(crate) async fn ask(provider: &dyn Provider, request: Request) -> (String, ModelAnswer) {
    let deltas: Vec<Delta> = provider.stream(request).collect().await;
    let (last, texts) = deltas.split_last().expect("at least the end");
    let texts = texts.iter().map(|delta| match delta {
        Delta::Text(text) => text.as_str(),
        Delta::Done(_) => panic!("one end"),
    });
    match last {
        Delta::Done(answer) => (texts.collect(), answer.clone()),
        Delta::Text(_) => panic!("a stream ends with its answer"),
    }
}
