//! Many readers of one process: the memory and processor time of each, and how far they lag.

use std::time::Duration;

use futures_util::future::join_all;
use keel_tests::local::Local;
use keel_tests::{KEY, Keel};
use reqwest::Response;
use tokio::sync::mpsc;

use crate::latency::{now_ms, read_ts};
use crate::process::{cpu_seconds, resident_kb};
use crate::stats::Sample;

/// Inputs that the readers wait for.
const INPUTS: usize = 20;
/// How long the readers are idle, to measure what that costs.
const IDLE: Duration = Duration::from_secs(10);

/// Many readers.
#[derive(Clone, Debug)]
pub struct Readers {
    /// KB of the process's memory for each.
    pub kb_each: f64,
    /// Share of one processor while nothing happens.
    pub idle_cpu: f64,
    /// Processor time of one delivered frame, in microseconds.
    pub micros_each_frame: f64,
    /// Milliseconds from an input's `ts` to a reader's frame.
    pub lag: Sample,
}

/// Readers without partials, spread evenly over the sessions. There is no worker: only the readers' cost is measured.
pub async fn readers(readers: usize, sessions: usize) -> Readers {
    let local = Local::start(&["--no-worker"]).await;
    let keel = Keel::connect(&local.base, KEY);
    let mut paths = Vec::new();
    for _ in 0..sessions {
        paths.push(keel.session().await);
    }
    for path in paths.iter().cycle().take(50) {
        drop(open(&keel, path).await); // what the first requests set up is not counted as a reader's memory
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = resident_kb(local.id());
    let (sender, mut lags) = mpsc::unbounded_channel();
    let mut tasks = Vec::new();
    for path in paths.iter().cycle().take(readers) {
        let stream = open(&keel, path).await;
        tasks.push(tokio::spawn(follow(stream, sender.clone())));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let kb_each = (resident_kb(local.id()) - before) / readers as f64;

    let cpu = cpu_seconds(local.id());
    tokio::time::sleep(IDLE).await;
    let idle_cpu = (cpu_seconds(local.id()) - cpu) / IDLE.as_secs_f64();

    let cpu = cpu_seconds(local.id());
    let mut lag = Vec::new();
    for n in 0..INPUTS {
        let text = format!("input {n}");
        join_all(paths.iter().map(|path| keel.say(path, &text))).await;
        for _ in 0..readers {
            lag.push(lags.recv().await.expect("every reader gets every input"));
        }
    }
    let frames = (INPUTS * readers) as f64;
    let micros_each_frame = (cpu_seconds(local.id()) - cpu) * 1e6 / frames;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    Readers { kb_each, idle_cpu, micros_each_frame, lag: Sample::new(lag) }
}

async fn open(keel: &Keel, path: &str) -> Response {
    keel.raw_stream(&format!("{path}/events/stream"), None).await
}

/// Searches only for `"ts":"…"`: parsing whole frames for a thousand readers would distort the measurement.
async fn follow(mut stream: Response, sender: mpsc::UnboundedSender<f64>) {
    const MARK: &str = "\"ts\":\"";
    let mut text = String::new();
    while let Ok(Some(bytes)) = stream.chunk().await {
        let seen = now_ms();
        text.push_str(&String::from_utf8_lossy(&bytes));
        while let Some((frame, rest)) = text.split_once("\n\n") {
            if let Some((_, ts)) = frame.rsplit_once(MARK) {
                let ts = ts.split('"').next().unwrap_or_default();
                if sender.send(seen - read_ts(ts)).is_err() {
                    return;
                }
            }
            text = rest.to_owned();
        }
    }
}
