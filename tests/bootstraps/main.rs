//! The functions' own programs against a Runtime API in the test, over the store of a `keel-local`: what Lambda and a streaming
//! gateway see of them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod queue;
mod startup;
mod stream;
mod worker;

use std::time::Duration;

use keel_tests::local::Local;
use keel_tests::runtime::{Bootstrap, Invocation, RuntimeApi, programs};
use keel_tests::{KEY, Keel};
use serde_json::{Value, json};

use queue::Queue;

/// The time that Lambda gives the worker.
const QUARTER: Duration = Duration::from_secs(900);

/// What functions have around them: a Keel without a worker, and a queue.
struct World {
    keel: Keel,
    local: Local,
    queue: Queue,
}

impl World {
    async fn new() -> Self {
        let local = Local::start(&["--no-worker", "--dynamodb-port", "0", "--sweep-ms", "3600000"]).await;
        Self { keel: Keel::connect(&local.base, KEY), local, queue: Queue::start().await }
    }

    /// An environment of a function in this world.
    async fn environment(&self, program: &str, variables: &[(&str, &str)]) -> (Bootstrap, RuntimeApi) {
        let api = RuntimeApi::start().await;
        let of_the_world = [
            ("AWS_ENDPOINT_URL_DYNAMODB", self.local.dynamodb.as_deref().unwrap()),
            ("AWS_ENDPOINT_URL_SQS", self.queue.url.as_str()),
            ("KEEL_QUEUE_URL", self.queue.url.as_str()),
        ];
        let bootstrap =
            Bootstrap::start(&programs().join(program), &api, &[&of_the_world, variables].concat());
        (bootstrap, api)
    }
}

/// The event of a request, as a REST API sends it.
fn request(method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Value {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let pairs = || query.split('&').filter_map(|pair| pair.split_once('='));
    let authorization = format!("Bearer {KEY}");
    let headers = || headers.iter().copied().chain([("Authorization", authorization.as_str())]);
    let one = |pairs: &mut dyn Iterator<Item = (&str, &str)>| -> Value {
        Value::Object(pairs.map(|(name, value)| (name.to_owned(), json!(value))).collect())
    };
    let many = |pairs: &mut dyn Iterator<Item = (&str, &str)>| -> Value {
        Value::Object(pairs.map(|(name, value)| (name.to_owned(), json!([value]))).collect())
    };
    json!({
        "resource": path,
        "path": path,
        "httpMethod": method,
        "headers": one(&mut headers()),
        "multiValueHeaders": many(&mut headers()),
        "queryStringParameters": one(&mut pairs()),
        "multiValueQueryStringParameters": many(&mut pairs()),
        "pathParameters": null,
        "stageVariables": null,
        "requestContext": {
            "accountId": "0", "apiId": "a", "httpMethod": method, "identity": { "sourceIp": "127.0.0.1" },
            "path": path, "protocol": "HTTP/1.1", "requestId": "r", "resourceId": "r", "resourcePath": path,
            "stage": "test",
        },
        "body": body,
        "isBase64Encoded": false,
    })
}

/// The event of a message on the queue.
fn message(id: &str, body: &str) -> Value {
    json!({ "Records": [{
        "messageId": id, "receiptHandle": format!("receipt-{id}"), "body": body, "attributes": {},
        "messageAttributes": {}, "eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:eu-central-1:0:hints",
        "awsRegion": "eu-central-1",
    }]})
}

/// A hint about a session.
fn hint(session: &str) -> String {
    json!({ "tenant": "dev", "session": session.rsplit('/').next().unwrap() }).to_string()
}

/// The body of a streamed response, frame by frame as it is sent, behind its status, its headers and eight zero bytes.
struct Frames {
    invocation: Invocation,
    bytes: Vec<u8>,
}

impl Frames {
    async fn of(mut invocation: Invocation) -> (Value, Self) {
        let headers = invocation.begins().await;
        assert_eq!(headers["lambda-runtime-function-response-mode"], "streaming");
        let mut frames = Self { invocation, bytes: Vec::new() };
        let prelude = frames.until(&[0; 8]).await.expect("status and headers");
        (serde_json::from_slice(&prelude).unwrap(), frames)
    }

    async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(length) = self.bytes.windows(end.len()).position(|window| window == end) {
                let rest = self.bytes.split_off(length + end.len());
                let mut whole = std::mem::replace(&mut self.bytes, rest);
                whole.truncate(length);
                return Some(whole);
            }
            self.bytes.extend_from_slice(&self.invocation.piece().await?);
        }
    }

    /// The next frame; `None` when the answer has ended.
    async fn next(&mut self) -> Option<String> {
        let frame = self.until(b"\n\n").await?;
        Some(String::from_utf8(frame).unwrap())
    }
}
