//! The parts of Lambda's Runtime API and Extensions API that a function's program uses. It hands out invocations, and shows
//! each response piece by piece, as it comes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path as At, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::{TIMEOUT, var};

/// The programs.
pub const PROGRAMS: [&str; 5] = ["keel-edge", "keel-kernel", "keel-sweep", "keel-worker", "keel-stream"];

/// What `state` is behind the routes.
struct Inner {
    invocations: tokio::sync::Mutex<mpsc::UnboundedReceiver<(String, Value, Duration)>>,
    answers: Mutex<HashMap<String, mpsc::UnboundedSender<ReplyPart>>>,
    asked: mpsc::UnboundedSender<Instant>,
    extensions: Mutex<Vec<String>>,
}

/// A part of a response.
enum ReplyPart {
    /// Its headers.
    Begins(HeaderMap),
    /// A piece of its body.
    Piece(Bytes),
    /// The program says that the invocation failed.
    Failed(Bytes),
}

/// The API of one environment.
pub struct RuntimeApi {
    /// `AWS_LAMBDA_RUNTIME_API`.
    pub address: String,
    inner: Arc<Inner>,
    invoke: mpsc::UnboundedSender<(String, Value, Duration)>,
    asked: mpsc::UnboundedReceiver<Instant>,
    sent: usize,
}

impl RuntimeApi {
    /// Starts it, without invocations.
    pub async fn start() -> Self {
        let (invoke, invocations) = mpsc::unbounded_channel();
        let (sender, asked) = mpsc::unbounded_channel();
        let inner = Arc::new(Inner {
            invocations: tokio::sync::Mutex::new(invocations),
            answers: Mutex::default(),
            asked: sender,
            extensions: Mutex::default(),
        });
        let router = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(response))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(error))
            .route("/2020-01-01/extension/register", post(register))
            .route("/2020-01-01/extension/event/next", get(std::future::pending::<()>))
            .with_state(inner.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has one").to_string();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, inner, invoke, asked, sent: 0 }
    }

    /// Waits until a program asks for its next invocation; the moment when it asked.
    pub async fn asked(&mut self) -> Instant {
        let asked = tokio::time::timeout(TIMEOUT, self.asked.recv()).await;
        asked.expect("it asks for work").expect("the API lives")
    }

    /// Invokes with an event and a deadline after `time`.
    pub fn invoke(&mut self, event: Value, time: Duration) -> Invocation {
        self.sent += 1;
        let id = format!("00000000-0000-4000-8000-{:012}", self.sent);
        let (sender, parts) = mpsc::unbounded_channel();
        self.inner.answers.lock().unwrap().insert(id.clone(), sender);
        self.invoke.send((id, event, time)).expect("the API lives");
        Invocation { parts }
    }

    /// The extensions that were registered: without one, SIGTERM would not come.
    pub fn extensions(&self) -> Vec<String> {
        self.inner.extensions.lock().unwrap().clone()
    }
}

async fn next(State(api): State<Arc<Inner>>) -> Response {
    let _ = api.asked.send(Instant::now());
    let work = api.invocations.lock().await.recv().await;
    let Some((id, event, time)) = work else { return std::future::pending().await };
    let deadline = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970") + time;
    let headers = [
        ("lambda-runtime-aws-request-id", id),
        ("lambda-runtime-deadline-ms", deadline.as_millis().to_string()),
        ("lambda-runtime-invoked-function-arn", "arn:aws:lambda:eu-central-1:0:function:f".to_owned()),
        ("content-type", "application/json".to_owned()),
    ];
    (headers, event.to_string()).into_response()
}

async fn response(State(api): State<Arc<Inner>>, At(id): At<String>, request: Request) -> StatusCode {
    let sender = api.answers.lock().unwrap().remove(&id).expect("an invocation is answered once");
    let _ = sender.send(ReplyPart::Begins(request.headers().clone()));
    let mut body: axum::body::BodyDataStream = request.into_body().into_data_stream();
    while let Some(piece) = body.next().await {
        // The response of a program that is killed breaks off.
        let Ok(piece) = piece else { break };
        let _ = sender.send(ReplyPart::Piece(piece));
    }
    StatusCode::ACCEPTED
}

async fn error(State(api): State<Arc<Inner>>, At(id): At<String>, body: Bytes) -> StatusCode {
    let sender = api.answers.lock().unwrap().remove(&id).expect("an invocation is answered once");
    let _ = sender.send(ReplyPart::Failed(body));
    StatusCode::ACCEPTED
}

async fn register(State(api): State<Arc<Inner>>, headers: HeaderMap) -> Response {
    let name = headers["lambda-extension-name"].to_str().unwrap().to_owned();
    api.extensions.lock().unwrap().push(name);
    ([("lambda-extension-identifier", "00000000-0000-4000-8000-000000000000")], Body::from("{}"))
        .into_response()
}

/// An invocation under way.
pub struct Invocation {
    parts: mpsc::UnboundedReceiver<ReplyPart>,
}

impl Invocation {
    async fn next(&mut self) -> Option<ReplyPart> {
        tokio::time::timeout(TIMEOUT, self.parts.recv()).await.expect("an answer, or its end")
    }

    /// Waits until the answer begins; its headers.
    pub async fn begins(&mut self) -> HeaderMap {
        match self.next().await.expect("an answer") {
            ReplyPart::Begins(headers) => headers,
            ReplyPart::Piece(_) => panic!("it had begun"),
            ReplyPart::Failed(body) => panic!("it failed: {}", String::from_utf8_lossy(&body)),
        }
    }

    /// The next piece of the answer as it was sent; `None` when it has ended.
    pub async fn piece(&mut self) -> Option<Bytes> {
        match self.next().await? {
            ReplyPart::Piece(piece) => Some(piece),
            ReplyPart::Begins(_) => panic!("an answer begins once"),
            ReplyPart::Failed(body) => panic!("it failed: {}", String::from_utf8_lossy(&body)),
        }
    }

    /// The whole answer of an invocation that does not stream.
    pub async fn reply(mut self) -> Value {
        self.begins().await;
        let mut whole = Vec::new();
        while let Some(piece) = self.piece().await {
            whole.extend_from_slice(&piece);
        }
        serde_json::from_slice(&whole).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&whole)))
    }
}

/// A function's program, in an environment as Lambda gives it; killed when dropped.
pub struct Bootstrap {
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
}

/// Where the programs are: beside the tests', or in `KEEL_PROGRAMS`.
pub fn programs() -> PathBuf {
    var("KEEL_PROGRAMS").map_or_else(
        || {
            let mut folder = std::env::current_exe().unwrap();
            folder.pop();
            if folder.ends_with("deps") {
                folder.pop();
            }
            folder
        },
        PathBuf::from,
    )
}

impl Bootstrap {
    /// Starts a program against an API, with these variables beside Lambda's own.
    pub fn start(program: &Path, api: &RuntimeApi, variables: &[(&str, &str)]) -> Self {
        assert!(program.exists(), "{} is not built", program.display());
        let mut child = Command::new(program)
            .env_clear()
            .envs([
                ("AWS_LAMBDA_RUNTIME_API", api.address.as_str()),
                ("AWS_LAMBDA_FUNCTION_NAME", "f"),
                ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "512"),
                ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
                ("AWS_LAMBDA_LOG_GROUP_NAME", "f"),
                ("AWS_LAMBDA_LOG_STREAM_NAME", "f"),
                ("AWS_REGION", "eu-central-1"),
                ("AWS_ACCESS_KEY_ID", "not-a-real-key-id"),
                ("AWS_SECRET_ACCESS_KEY", "not-a-real-secret"),
                ("KEEL_TABLE_PREFIX", "keel-"),
                ("KEEL_QUEUE_URL", "http://127.0.0.1:9/queue"),
                ("KEEL_STAGE", "test"),
                ("KEEL_SECRETS_PREFIX", "keel-test/"),
                ("KEEL_LOG", "info"),
            ])
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let (sender, lines) = mpsc::unbounded_channel();
        read(child.stdout.take().unwrap(), sender.clone());
        read(child.stderr.take().unwrap(), sender);
        Self { child, lines }
    }

    /// SIGTERM.
    pub async fn terminate(&self) {
        let pid = self.child.id().expect("it lives").to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    }

    /// SIGKILL.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Waits until it has ended by itself; whether it ended well.
    pub async fn ended(&mut self) -> bool {
        tokio::time::timeout(TIMEOUT, self.child.wait()).await.expect("it ends").unwrap().success()
    }

    /// Waits for a line of its log, or a metric, that `wanted` accepts.
    pub async fn logged(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = tokio::time::timeout(TIMEOUT, self.lines.recv()).await.expect("it logs that");
            let line = line.expect("it logs that before it ends");
            if let Ok(line) = serde_json::from_str(&line)
                && wanted(&line)
            {
                return line;
            }
        }
    }
}

fn read(from: impl AsyncRead + Unpin + Send + 'static, sender: mpsc::UnboundedSender<String>) {
    let mut lines = BufReader::new(from).lines();
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            let _ = sender.send(line);
        }
    });
}

/// How long a program takes from its start until it asks for its first invocation, measured `starts` times.
pub async fn start_times(program: &Path, starts: usize) -> Vec<Duration> {
    let mut taken = Vec::new();
    for _ in 0..starts {
        let mut api = RuntimeApi::start().await;
        let started = Instant::now();
        let bootstrap = Bootstrap::start(program, &api, &[("KEEL_PROVIDER", "fake")]);
        taken.push(api.asked().await.duration_since(started));
        bootstrap.kill().await;
    }
    taken
}
