//! The figures that do not vary: capacity units and round trips, beside the least that DynamoDB's rules allow.
//!
//! The rules: a write costs 1 WRU for each KB begun, twice that in a transaction, and 1 more for each change of an index
//! entry. A strong read costs 1 RRU for each 4 KB begun, an eventual one half; a query adds its items up before it rounds,
//! and gives at most 1 MB. Reading nothing costs the smallest unit. The least is
//! the least for the same promises: each event and each key is an item of its own, put if absent (L1, I2), in one write with
//! the head (C2, S4).

use std::fmt;
use std::time::Duration;

use keel_agent::partials::Chunker;
use keel_fn_stream::{HEARTBEAT, Pace, StreamConfig};
use keel_kernel::partial::PartialChunk;
use keel_kernel::run::Outcome;
use keel_kernel::{Head, LeaseToken, Seq};
use keel_ledger::SessionKey;
use keel_ledger::port::Consistency;

use crate::world::{World, assistant_message, finished, note};

/// Units and round trips.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Write request units.
    pub write: f64,
    /// Read request units.
    pub read: f64,
    /// Round trips.
    pub trips: f64,
}

const fn cost(write: f64, read: f64, trips: f64) -> Cost {
    Cost { write, read, trips }
}

/// An operation, what it cost and what it must cost.
#[derive(Clone, Debug)]
pub struct Line {
    /// The operation.
    pub name: &'static str,
    /// What it cost.
    pub measured: Cost,
    /// The least that the rules allow.
    pub least: Cost,
    /// Why it is that.
    pub rule: &'static str,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.write, self.read, self.trips)
    }
}

/// The events of the session that is replayed.
const REPLAYED: usize = 1_000;
/// The page of a stream.
const PAGE: usize = 100;

/// Every line of the table.
pub async fn lines() -> Vec<Line> {
    let mut lines = writes().await;
    lines.extend(partials().await);
    lines.extend(reads().await);
    lines.extend(hours());
    lines
}

fn measured(world: &World) -> Cost {
    let units = world.tables.meter().take();
    let trips = world.trips.take();
    assert_eq!(units.calls, trips, "the meter and the connector count the same");
    cost(units.write, units.read, trips as f64)
}

/// Resets the meters after the preparation.
fn forget(world: &World) {
    world.tables.meter().take();
    world.trips.take();
}

async fn writes() -> Vec<Line> {
    let w = World::memory().await;
    let mut lines = Vec::new();
    let mut line = |name, least, rule| lines.push(Line { name, measured: measured(&w), least, rule });
    let at = w.session("s").await;
    forget(&w);
    w.input(&at, "first").await;
    line(
        "input that starts a run",
        cost(7.0, 0.5, 2.0),
        "2 × (head + event + key) + 1 for the index of due runs; an eventual read of the head",
    );
    w.input(&at, "second").await;
    line(
        "input into a live run",
        cost(6.0, 0.5, 2.0),
        "2 × (head + event + key); an eventual read of the head",
    );
    let (token, head) = w.claim(&at).await;
    line("claim", cost(1.0, 0.5, 2.0), "1 write of the head; an eventual read of it");
    let head = w.commit(&at, head, &token, vec![assistant_message("g1", &[])]).await;
    line("owner commit, 1 event with its key", cost(6.0, 0.0, 1.0), "2 × (head + event + key)");
    let eight = (0..8).map(|n| assistant_message(&format!("h{n}"), &[])).collect();
    let head = w.commit(&at, head, &token, eight).await;
    line("owner commit, 8 events with their keys", cost(34.0, 0.0, 1.0), "2 × (head + 8 events + 8 keys)");
    let head = w.commit(&at, head, &token, (0..8).map(|_| note()).collect()).await;
    line("owner commit, 8 events without keys", cost(18.0, 0.0, 1.0), "2 × (head + 8 events)");
    let head = w.ledger.renew(&at, Some(head), &token).await.expect("the lease is ours");
    line("renew", cost(1.0, 0.0, 1.0), "1 write of the head");
    let last = vec![assistant_message("g2", &[1, 2]), finished()];
    w.ledger.settle(&at, Some(head), &token, Outcome::Succeeded, last, None).await.expect("it settles");
    line(
        "settle with answer and run.finished",
        cost(9.0, 0.0, 1.0),
        "2 × (head + 2 events + key) + 1 for the index of due runs",
    );
    lines
}

async fn reads() -> Vec<Line> {
    let w = World::memory().await;
    let (at, token, head) = w.running("s").await;
    let head = w.fill(&at, head, &token, REPLAYED - 1).await;
    let last = head.ledger.seq;
    assert_eq!(last, Seq(REPLAYED as u64));
    let mut lines = Vec::new();
    let mut line = |name, measured, least, rule| lines.push(Line { name, measured, least, rule });

    forget(&w);
    page(&w, &at, last).await;
    line("idle poll of a stream", measured(&w), cost(0.0, 0.5, 1.0), "an eventual query that finds nothing");
    page(&w, &at, last).await;
    w.ledger.partials(&at, "").await.expect("it reads");
    line(
        "idle poll with partials",
        measured(&w),
        cost(0.0, 1.0, 2.0),
        "two eventual queries; no call queries two tables",
    );
    page(&w, &at, Seq(last.0 - 1)).await;
    line("delivered event, alone", measured(&w), cost(0.0, 0.5, 1.0), "an eventual query of less than 4 KB");
    let full = page(&w, &at, Seq::ZERO).await;
    let full_cost = measured(&w);
    assert_eq!(full, PAGE);
    let each = |cost: Cost| Cost { read: cost.read / PAGE as f64, trips: cost.trips / PAGE as f64, ..cost };
    line(
        "delivered event, one of a page of 100",
        each(full_cost),
        each(full_cost),
        "an eventual query rounds once: a page's bytes / 4 KB / 2",
    );
    // The least for a replay: everything in one query.
    w.ledger.events(&at, Seq::ZERO, REPLAYED, Consistency::Eventual).await.expect("it reads");
    let least = measured(&w);
    assert_eq!(least.trips, 1.0);
    let mut after = Seq::ZERO;
    loop {
        let read = page(&w, &at, after).await as u64;
        after = Seq(after.0 + read);
        if read == 0 {
            break;
        }
    }
    line(
        "replay of 1,000 events, as a stream does",
        measured(&w),
        least,
        "one eventual query, up to 1 MB; a stream takes pages of 100 so that its memory stays flat",
    );
    w.ledger.all_events(&at, Seq::ZERO).await.expect("it reads");
    line(
        "replay of 1,000 events, as a worker does",
        measured(&w),
        least,
        "one eventual query; but a worker decides on what it reads, so the ends are read strongly",
    );
    lines
}

/// A stream's query after a seq; how many events it got.
async fn page(w: &World, at: &SessionKey, after: Seq) -> usize {
    w.ledger.events(at, after, PAGE, Consistency::Eventual).await.expect("it reads").events.len()
}

/// An hour of a stream in a function, which is not notified of commits: its polls, with the jitter at its middle, and
/// where a run is live the eventual reads of the head; without what opening a stream costs.
fn hours() -> Vec<Line> {
    let silent = |t| t;
    let talking = |_| 0;
    let rule = "none in one process, where commits notify; a function must poll";
    let line = |name, live, silence: fn(u64) -> u64, queries| {
        let measured = hour(live, silence, queries);
        Line { name, measured, least: cost(0.0, 0.0, 0.0), rule }
    };
    vec![
        line("stream-hour, no run", false, silent, 1.0),
        line("stream-hour, a run live and silent", true, silent, 1.0),
        line("the same with partials", true, silent, 2.0),
        line("stream-hour with partials, a run with news at every poll", true, talking, 2.0),
    ]
}

fn hour(live: bool, silence: fn(u64) -> u64, queries: f64) -> Cost {
    let mut pace = Pace::new(StreamConfig::default());
    let (mut now, mut asked, mut trips) = (0, 0, 0.0);
    while now < 3_600_000 {
        trips += queries;
        if live && silence(now) >= asked + HEARTBEAT.as_millis() as u64 {
            (asked, trips) = (now, trips + 1.0);
        }
        let pause = pace.next(live, Duration::from_millis(silence(now)));
        now += u64::midpoint(*pause.start(), *pause.end());
    }
    cost(0.0, trips / 2.0, trips)
}

/// A model's pace: a token each 20 ms, for ten seconds.
const TOKEN: &str = "token ";
const TOKEN_MS: u64 = 20;
const ANSWER_MS: u64 = 10_000;

/// What the partials of an answer cost, in the worker's own chunks.
async fn partials() -> Vec<Line> {
    let w = World::memory().await;
    let (at, token, head) = w.running("s").await;
    forget(&w);
    let mut chunker = Chunker::default();
    for now in (0..ANSWER_MS).step_by(TOKEN_MS as usize) {
        let due = chunker.due_ms().filter(|due| *due <= now).and_then(|_| chunker.flush());
        for text in due.into_iter().chain(chunker.push(TOKEN, now)) {
            write_partial(&w, &at, &token, &head, text).await;
        }
    }
    if let Some(text) = chunker.flush() {
        write_partial(&w, &at, &token, &head, text).await;
    }
    let measured = measured(&w);
    let least = cost(measured.write.min(4.0), 0.0, measured.trips.min(4.0));
    let rule = "a write a chunk; 3 KB in 4 writes, if no reader had to see it grow";
    vec![Line { name: "partials of an answer of 10 s, 50 tokens/s", measured, least, rule }]
}

async fn write_partial(w: &World, at: &SessionKey, token: &LeaseToken, head: &Head, text: String) {
    let generation = "g".to_owned();
    let chunk = PartialChunk { epoch: token.epoch, generation, index: 0, text, dead: None };
    w.ledger.publish_partial(at, Some(head.clone()), token, &chunk).await.expect("it is written");
}
