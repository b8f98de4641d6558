//! A replay of a long session: how fast it is, and that the process's memory does not grow.

use std::time::Instant;

use keel_embedded::Embedded;
use keel_kernel::run::Outcome;
use keel_tests::local::Local;
use keel_tests::{KEY, Keel};

use crate::process::resident_kb;
use crate::world::{World, assistant_message, finished};

/// How many bytes of the stream are read between two samples of the process's memory.
const LOOK: usize = 1 << 20;

/// A replay.
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    /// Its events.
    pub events: usize,
    /// Events each second.
    pub events_each_second: f64,
    /// Megabytes of frames each second.
    pub mb_each_second: f64,
    /// The most memory in the first tenth, the first half and the second half of the replay, in MB.
    pub resident_mb: [f64; 3],
}

/// Fills a store through the ledger, serves it and reads it to its end.
pub async fn replay(events: usize) -> Replay {
    let folder = tempfile::tempdir().expect("a folder");
    let last = {
        let embedded = Embedded::open(folder.path().join("ledger.sqlite")).expect("a store opens");
        let w = World::over(&embedded).await;
        let (at, token, head) = w.running("long").await;
        let head = w.fill(&at, head, &token, events - 3).await;
        let end = vec![assistant_message("g", &[1]), finished()];
        let settled = w.ledger.settle(&at, Some(head), &token, Outcome::Succeeded, end, None).await;
        settled.expect("the store works").expect("it settles").head.ledger.seq.0 as usize
    };
    assert_eq!(last, events);
    let data = folder.path().to_str().expect("UTF-8");
    let local = Local::start_with(&["--data", data]).await;
    let keel = Keel::connect(&local.base, KEY);
    let mut stream = keel.raw_stream("/v1/sessions/long/events/stream?until=settled", None).await;
    let started = Instant::now();
    let (mut bytes, mut frames, mut looked, mut resident_mb) = (0, 0, 0, [0.0_f64; 3]);
    let mut before = 0;
    while let Some(chunk) = stream.chunk().await.expect("the stream goes on") {
        bytes += chunk.len();
        // A frame ends in an empty line, and a payload has no line break.
        for byte in &chunk {
            frames += usize::from(before == b'\n' && *byte == b'\n');
            before = *byte;
        }
        if bytes >= looked + LOOK {
            looked = bytes;
            let now = resident_kb(local.id()) / 1e3;
            let part = usize::from(frames > events / 10) + usize::from(frames > events / 2);
            resident_mb[part] = resident_mb[part].max(now);
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    assert_eq!(frames, events + 2, "hello, every event, settled");
    Replay {
        events,
        events_each_second: events as f64 / seconds,
        mb_each_second: bytes as f64 / 1e6 / seconds,
        resident_mb,
    }
}
