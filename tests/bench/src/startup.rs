//! A function's program: how big it is, and how long it takes to ask for its first invocation.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::stats::Sample;

/// The programs.
pub const PROGRAMS: [&str; 5] = ["keel-edge", "keel-kernel", "keel-sweep", "keel-worker", "keel-stream"];
/// Starts of each.
const STARTS: usize = 15;

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Its size in MB, without symbols.
    pub mb: f64,
    /// Milliseconds from its start to its first call.
    pub start_ms: Sample,
}

/// The programs in a folder; none if they are not built.
pub async fn programs(folder: &Path) -> Vec<Program> {
    let mut programs = Vec::new();
    for name in PROGRAMS {
        let path = folder.join(name);
        if path.exists() {
            let start_ms = Sample::new(starts(&path).await);
            programs.push(Program { name, mb: size_mb(&path).await, start_ms });
        }
    }
    programs
}

async fn size_mb(path: &Path) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let stripped = folder.path().join("bootstrap");
    let done = Command::new("strip").arg("-o").arg(&stripped).arg(path).status().await;
    let measured = if done.is_ok_and(|status| status.success()) { &stripped } else { path };
    std::fs::metadata(measured).expect("it is there").len() as f64 / 1e6
}

/// A Runtime API that has no work: it tells when it is first asked, and never answers.
async fn runtime_api() -> (String, mpsc::UnboundedReceiver<Instant>) {
    let (tell, asked) = mpsc::unbounded_channel();
    let next = |State(tell): State<Arc<mpsc::UnboundedSender<Instant>>>| async move {
        let _ = tell.send(Instant::now());
        std::future::pending::<()>().await;
    };
    let router =
        Router::new().route("/2018-06-01/runtime/invocation/next", get(next)).with_state(Arc::new(tell));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it has one").to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, asked)
}

async fn starts(path: &Path) -> Vec<f64> {
    let (address, mut asked) = runtime_api().await;
    let mut taken = Vec::new();
    for _ in 0..STARTS {
        let started = Instant::now();
        let mut child = Command::new(path)
            .env_clear()
            .envs([
                ("AWS_LAMBDA_RUNTIME_API", address.as_str()),
                ("AWS_LAMBDA_FUNCTION_NAME", "bench"),
                ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "512"),
                ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
                ("AWS_LAMBDA_LOG_GROUP_NAME", "bench"),
                ("AWS_LAMBDA_LOG_STREAM_NAME", "bench"),
                ("AWS_REGION", "eu-central-1"),
                ("AWS_ACCESS_KEY_ID", "not-a-real-key-id"),
                ("AWS_SECRET_ACCESS_KEY", "not-a-real-secret"),
                ("KEEL_TABLE_PREFIX", "keel-"),
                ("KEEL_QUEUE_URL", "http://127.0.0.1:9/queue"),
                ("KEEL_PROVIDER", "fake"),
            ])
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let asked = tokio::time::timeout(Duration::from_secs(20), asked.recv()).await;
        let asked = asked.expect("it asks for work").expect("the API lives");
        taken.push(asked.duration_since(started).as_secs_f64() * 1e3);
        child.kill().await.expect("it ends");
    }
    taken
}
