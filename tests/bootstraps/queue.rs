//! The part of SQS that functions call.

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use keel_tests::TIMEOUT;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// A queue that records its calls.
pub(crate) struct Queue {
    pub(crate) url: String,
    calls: mpsc::UnboundedReceiver<(String, Value)>,
}

impl Queue {
    pub(crate) async fn start() -> Self {
        let (sender, calls) = mpsc::unbounded_channel();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(
            async move { axum::serve(listener, Router::new().fallback(call).with_state(sender)).await },
        );
        Self { url, calls }
    }

    /// The next call of this name.
    pub(crate) async fn called(&mut self, name: &str) -> Value {
        loop {
            let call = tokio::time::timeout(TIMEOUT, self.calls.recv()).await.expect("it is called");
            let (called, call) = call.expect("the queue lives");
            if called == name {
                return call;
            }
        }
    }

    /// The next hint that is sent.
    pub(crate) async fn hint(&mut self) -> Value {
        let sent = self.called("SendMessage").await;
        serde_json::from_str(sent["MessageBody"].as_str().unwrap()).unwrap()
    }
}

async fn call(
    State(sender): State<mpsc::UnboundedSender<(String, Value)>>,
    headers: HeaderMap,
    call: Bytes,
) -> Response {
    let target = headers["x-amz-target"].to_str().unwrap();
    let name = target.strip_prefix("AmazonSQS.").unwrap().to_owned();
    let call = serde_json::from_slice(&call).unwrap();
    let answer = json!({ "MessageId": "m", "MD5OfMessageBody": "unknown" });
    let _ = sender.send((name, call));
    ([("content-type", "application/x-amz-json-1.0")], answer.to_string()).into_response()
}
