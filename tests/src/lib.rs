//! What the tests from outside share: a Keel under test, and a client for it.
//!
//! With `KEEL_BASE_URL` and `KEEL_API_KEY` set, the contract tests run against that deployment; otherwise each test
//! starts a `keel-local` of its own, in memory, on a free port.

#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a helper of tests fails by panicking")]

pub mod local;
pub mod runtime;
pub mod sse;

use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Method};
use serde_json::{Value, json};

use local::Local;

/// A key of the tenant that most tests use.
pub const KEY: &str = "keel_dev.local_not-a-secret";
/// A key of another tenant.
pub const OTHER_KEY: &str = "keel_other.local_not-a-secret";
/// A key for the client API alone.
pub const CLIENT_KEY: &str = "keel_dev.client_not-a-secret";

/// The longest that a test waits for anything, so that a hang is a failure.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A response.
#[derive(Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body's text.
    pub text: String,
}

impl Reply {
    /// The body, which is JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// The body of a response that must have this status.
    #[track_caller]
    pub fn ok(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }

    /// Asserts a problem document with this status and code, naming a place if `pointer` is not empty (V6).
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str, pointer: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status);
        for member in ["type", "title", "detail", "requestId"] {
            assert!(problem[member].is_string(), "{member}: {problem}");
        }
        if !pointer.is_empty() {
            assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
            assert!(problem["errors"][0]["detail"].is_string());
        }
        problem
    }
}

/// A Keel under test, and a caller of it.
#[derive(Clone)]
pub struct Keel {
    /// Where it is.
    pub base: String,
    key: String,
    client: Client,
    _local: Option<std::sync::Arc<Local>>,
}

impl Keel {
    /// The Keel at an address.
    pub fn connect(base: impl Into<String>, key: &str) -> Self {
        Self { base: base.into(), key: key.to_owned(), client: Client::new(), _local: None }
    }

    /// The Keel under test.
    pub async fn start() -> Self {
        match (var("KEEL_BASE_URL"), var("KEEL_API_KEY")) {
            (Some(base), Some(key)) => Self::connect(base, &key),
            _ => Self::local(&[]).await,
        }
    }

    /// A Keel without a worker: only the test answers its runs.
    pub async fn without_worker() -> Self {
        match (var("KEEL_NO_WORKER_URL"), var("KEEL_API_KEY")) {
            (Some(base), Some(key)) => Self::connect(base, &key),
            _ => Self::local(&["--no-worker"]).await,
        }
    }

    /// The same, with leases of `lease_ms` if it is a local one.
    pub async fn without_worker_leasing_for(lease_ms: u64) -> Self {
        match var("KEEL_NO_WORKER_URL") {
            Some(_) => Self::without_worker().await,
            None => Self::local(&["--no-worker", "--lease-ms", &lease_ms.to_string()]).await,
        }
    }

    /// Whether the Keel under test is a local one, whose intervals a test can set.
    pub fn is_ours() -> bool {
        var("KEEL_BASE_URL").is_none()
    }

    /// A `keel-local` with these arguments, gone with its last clone.
    pub async fn local(arguments: &[&str]) -> Self {
        let local = Local::start(arguments).await;
        Self { _local: Some(std::sync::Arc::new(local)), ..Self::connect("", KEY) }.with_base()
    }

    fn with_base(mut self) -> Self {
        self.base = self._local.as_ref().unwrap().base.clone();
        self
    }

    /// The same Keel, with another caller's key.
    #[must_use]
    pub fn as_caller(&self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self.clone() }
    }

    /// The other tenant's key.
    pub fn other_key() -> String {
        var("KEEL_OTHER_API_KEY").unwrap_or_else(|| OTHER_KEY.to_owned())
    }

    /// The key with the client scope alone.
    pub fn client_key() -> String {
        var("KEEL_CLIENT_API_KEY").unwrap_or_else(|| CLIENT_KEY.to_owned())
    }

    /// Sends a request with a body and headers, as they are.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Reply {
        self.try_send(method, path, headers, body).await.expect("an answer")
    }

    /// The same; `None` if there is no response.
    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Option<Reply> {
        let mut request =
            self.client.request(method, format!("{}{path}", self.base)).timeout(TIMEOUT).body(body);
        if !self.key.is_empty() {
            request = request.bearer_auth(&self.key);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.ok()?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Some(Reply { status, headers, text: response.text().await.ok()? })
    }

    /// `GET`
    pub async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], Vec::new()).await
    }

    /// `POST` with a JSON body.
    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(Method::POST, path, &[], body.to_string().into_bytes()).await
    }

    /// Opens a stream.
    pub async fn stream(&self, path: &str, last_event_id: Option<&str>) -> sse::Stream {
        sse::Stream::new(self.raw_stream(path, last_event_id).await)
    }

    /// Opens a stream; `None` if it could not be opened.
    pub async fn try_stream(&self, path: &str, last_event_id: Option<&str>) -> Option<sse::Stream> {
        let mut request = self.client.get(format!("{}{path}", self.base)).bearer_auth(&self.key);
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.ok().filter(|response| response.status().is_success())?;
        Some(sse::Stream::new(response))
    }

    /// Opens a stream whose bytes the test reads itself.
    pub async fn raw_stream(&self, path: &str, last_event_id: Option<&str>) -> reqwest::Response {
        let mut request = self.client.get(format!("{}{path}", self.base)).bearer_auth(&self.key);
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        response
    }

    /// A new session; its path.
    pub async fn session(&self) -> String {
        self.session_with(json!({})).await
    }

    /// A new session with this description; its path.
    pub async fn session_with(&self, description: Value) -> String {
        let session = self.post("/v1/sessions", description).await.ok(201);
        format!("/v1/sessions/{}", session["sessionId"].as_str().unwrap())
    }

    /// Sends an input; the response's body.
    pub async fn say(&self, session: &str, text: &str) -> Value {
        self.post(&format!("{session}/input"), json!({ "text": text })).await.ok(201)
    }

    /// Sends an input until it is accepted: sending it again to a busy session is safe (I6). The response's body, and how
    /// often the session was busy.
    pub async fn send_until_accepted(&self, session: &str, input: &Value) -> (Value, usize) {
        assert!(input["requestId"].is_string(), "without it a second one would be another");
        let mut busy = 0;
        loop {
            let answer = self.post(&format!("{session}/input"), input.clone()).await;
            match answer.status {
                200 | 201 => return (answer.json(), busy),
                503 => busy += 1,
                status => panic!("{status}: {}", answer.text),
            }
        }
    }

    /// The session's events.
    pub async fn events(&self, session: &str) -> Vec<Value> {
        let mut events: Vec<Value> = Vec::new();
        loop {
            let after = events.last().map_or(json!(0), |event| event["seq"].clone());
            let page = self.get(&format!("{session}/events?after={after}&limit=1000")).await.ok(200);
            events.extend(page["events"].as_array().unwrap().iter().cloned());
            if page["hasMore"] == false {
                return events;
            }
        }
    }

    /// Waits until an event with this seq is there.
    pub async fn wait_for_seq(&self, session: &str, seq: u64) {
        let after = seq - 1;
        let waiting = async {
            loop {
                let page = self.get(&format!("{session}/events?after={after}&wait=5")).await;
                // The event before it may not be committed yet either, and then the call is refused.
                if page.status == 200 && !page.json()["events"].as_array().unwrap().is_empty() {
                    return;
                }
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.expect("the event comes");
    }

    /// Waits until no run is live; the session's row.
    pub async fn settled(&self, session: &str) -> Value {
        self.until(session, |row| {
            !["pending", "running", "waiting"].contains(&row["run"]["status"].as_str().unwrap())
        })
        .await
    }

    /// Waits until `wanted` accepts the session's row.
    pub async fn until(&self, session: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let waiting = async {
            loop {
                let row = self.get(session).await.ok(200);
                if wanted(&row) {
                    return row;
                }
                // Not needed for the result, only to ask less often. TIMEOUT bounds the whole.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.expect("the session comes to be as wanted")
    }

    /// Tries to claim a session's run as an owner.
    pub async fn ask(&self, session: &str, owner: &str) -> Reply {
        let id = session.rsplit('/').next().unwrap();
        self.post("/v1/runs/claim", json!({ "owner": owner, "sessionId": id })).await
    }

    /// Claims a session's run as an owner; the lease.
    pub async fn claim(&self, session: &str, owner: &str) -> Value {
        lease(&self.ask(session, owner).await.ok(200))
    }

    /// Settles a run as an owner.
    pub async fn settle(&self, session: &str, lease: &Value, outcome: &str) -> Reply {
        let body = json!({ "lease": lease, "outcome": outcome, "backoffMs": 0 });
        self.post(&format!("{session}/settle"), body).await
    }

    /// Hands a run over as an owner.
    pub async fn release(&self, session: &str, lease: &Value) -> Reply {
        self.post(&format!("{session}/lease/release"), json!({ "lease": lease, "reason": "drain" })).await
    }

    /// The ledger's first page as it is on the wire, to be compared byte for byte.
    pub async fn ledger(&self, session: &str) -> String {
        let answer = self.get(&format!("{session}/events?limit=1000")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.text
    }

    /// Commits one event as an owner.
    pub async fn commit(&self, session: &str, lease: &Value, event: Value) -> Reply {
        self.post(&format!("{session}/commits"), json!({ "lease": lease, "events": [event] })).await
    }
}

/// An assistant message that answers these inputs.
pub fn assistant_message(generation: &str, text: &str, input_seqs: &[u64]) -> Value {
    json!({
        "kind": "assistant.message",
        "generationId": generation,
        "payload": {
            "role": "assistant",
            "content": [{ "type": "text", "text": text }],
            "inputSeqs": input_seqs,
            "stopReason": "end_turn",
        },
    })
}

/// An assistant message with tool calls of these ids.
pub fn assistant_calls(generation: &str, calls: &[&str], input_seqs: &[u64]) -> Value {
    let mut message = assistant_message(generation, "", input_seqs);
    let block = |id: &&str| json!({ "type": "toolCall", "id": id, "name": "t", "arguments": {} });
    message["payload"]["content"] = calls.iter().map(block).collect();
    message["payload"]["stopReason"] = json!("tool_use");
    message
}

/// A tool's result.
pub fn result(call: &str) -> Value {
    json!({ "kind": "tool.result", "toolCallId": call, "payload": { "toolCallId": call, "content": "ok" } })
}

/// The lease token in a claim's response.
pub fn lease(claimed: &Value) -> Value {
    json!({ "owner": claimed["lease"]["owner"], "epoch": claimed["lease"]["epoch"] })
}

/// The events of a kind.
pub fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["kind"] == kind).collect()
}

/// The inputSeqs of the answers, in order.
pub fn input_seqs(events: &[Value]) -> Vec<&Value> {
    of_kind(events, "assistant.message").iter().map(|answer| &answer["payload"]["inputSeqs"]).collect()
}

/// A message's text.
pub fn text(event: &Value) -> String {
    let blocks = event["payload"]["content"].as_array().unwrap().iter();
    blocks.filter_map(|block| block["text"].as_str()).collect()
}

/// The kinds of events, in order.
pub fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["kind"].as_str().unwrap()).collect()
}

/// Asserts L2 of a ledger.
#[track_caller]
pub fn assert_gap_free(events: &[Value]) {
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
}

/// An environment variable, if it is set and not empty.
#[expect(clippy::disallowed_methods, reason = "a test's configuration is its environment")]
pub fn var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
