//! From an input to its answer on a screen: keel-local over HTTP, with a model that answers at once.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use keel_tests::local::Local;
use keel_tests::{KEY, Keel};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::stats::Sample;

/// Inputs that warm everything up.
const WARM: usize = 20;
/// Inputs that are measured.
const INPUTS: usize = 200;

/// Milliseconds since the input was sent, and since the answer's commit.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Until the input's response came: the input is in the ledger.
    pub accepted: Sample,
    /// Until the first partial was seen.
    pub partial: Option<Sample>,
    /// How many answers had a partial.
    pub with_partial: usize,
    /// Until the answer's frame was seen.
    pub answered: Sample,
    /// From the moment in the answer's `ts`, which is taken right before its write, to its frame.
    pub commit_to_frame: Sample,
}

/// The time of day in milliseconds.
pub fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64() * 1e3
}

/// A `ts` in milliseconds.
pub fn read_ts(ts: &str) -> f64 {
    OffsetDateTime::parse(ts, &Rfc3339).expect("a date and time").unix_timestamp_nanos() as f64 / 1e6
}

/// One input after another in one session, each when the one before is settled.
pub async fn latencies() -> Latencies {
    let local = Local::start(&[]).await;
    let keel = Keel::connect(&local.base, KEY);
    let session = keel.session().await;
    let mut stream = keel.stream(&format!("{session}/events/stream?partials=1"), None).await;
    let (mut accepted, mut partial, mut answered, mut framed) = (vec![], vec![], vec![], vec![]);
    for n in 0..WARM + INPUTS {
        let started = Instant::now();
        let since = || started.elapsed().as_secs_f64() * 1e3;
        let saying = async {
            keel.say(&session, &format!("input {n}")).await;
            since()
        };
        let reading = async {
            let (mut first, mut seen, mut frame_ms) = (None, 0.0, 0.0);
            loop {
                let frame = stream.next().await.expect("the stream goes on");
                match frame.data["kind"].as_str() {
                    None if frame.event == "partial" => {
                        first.get_or_insert_with(since);
                    }
                    Some("assistant.message") => {
                        seen = since();
                        frame_ms = now_ms() - read_ts(frame.data["ts"].as_str().expect("a text"));
                    }
                    Some("run.finished") => return (first, seen, frame_ms),
                    _ => {}
                }
            }
        };
        let (accepted_ms, (first, seen, frame_ms)) = tokio::join!(saying, reading);
        if n >= WARM {
            accepted.push(accepted_ms);
            partial.extend(first);
            answered.push(seen);
            framed.push(frame_ms);
        }
    }
    Latencies {
        accepted: Sample::new(accepted),
        with_partial: partial.len(),
        partial: (!partial.is_empty()).then(|| Sample::new(partial)),
        answered: Sample::new(answered),
        commit_to_frame: Sample::new(framed),
    }
}
