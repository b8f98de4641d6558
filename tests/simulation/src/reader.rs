//! Readers of streams: they come and go, and each new stream begins at the last event that they have seen (R2).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures_util::StreamExt as _;
use http::{Request, StatusCode};
use keel_fn_stream::{StreamConfig, Streams};
use keel_ledger::SessionKey;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt as _;

use crate::rng::Rng;
use crate::world::{KEY, Process, World};

/// A partial: its index, its text, whether it was the last one of a dead generation.
pub(crate) type Chunk = (u64, String, bool);

/// What a reader saw, over all its streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) at: String,
    pub(crate) name: String,
    /// Committed frames: their ids and their data.
    pub(crate) events: Vec<(u64, String)>,
    /// Partials by generation; each stream's are kept apart.
    pub(crate) partials: Vec<(String, Vec<Chunk>)>,
}

struct Reader {
    world: Arc<World>,
    at: SessionKey,
    process: Process,
    rng: Rng,
    seen: Seen,
}

/// Reads a session until everything is at rest, and then to its end.
pub(crate) async fn read(world: Arc<World>, at: SessionKey, number: u64) -> Seen {
    let process = world.process("stream", number);
    let rng = world.rng.fork(&format!("reader-{number}"));
    let seen = Seen { at: at.to_string(), name: format!("reader-{number}"), ..Seen::default() };
    let mut reader = Reader { world, at, process, rng, seen };
    loop {
        let last = reader.world.is_at_rest();
        if reader.stream(last).await && last {
            return reader.seen;
        }
        let pause = if last { 1_000 } else { reader.rng.pick(500..=25_000) };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

impl Reader {
    /// One stream. True where it ended because all was settled and read.
    async fn stream(&mut self, last: bool) -> bool {
        let (stop, drain) = watch::channel(false);
        let router = keel_fn_stream::router(Streams {
            ledger: self.process.ledger.clone(),
            auth: self.world.auth.clone(),
            config: StreamConfig {
                life: Duration::from_secs(40),
                idle_life: Duration::from_secs(20),
                bytes: 5_000,
                // It looks seldom, since each look costs two calls.
                look_live_ms: (1_000, 2_000),
                look_silent_ms: 3_000,
                look_idle_ms: 5_000,
            },
            drain,
        });
        let cursor = self.seen.events.last().map_or(0, |(seq, _)| *seq);
        let until = if last { "&until=settled" } else { "" };
        let partials = u64::from(self.rng.chance(600));
        // R2: Last-Event-ID wins, so beside it `after` does not matter.
        let (after, id) =
            if self.rng.chance(500) { (0, cursor.to_string()) } else { (cursor, String::new()) };
        let uri = format!(
            "/v1/sessions/{}/events/stream?after={after}&partials={partials}{until}",
            self.at.session
        );
        let request = Request::get(uri)
            .header("authorization", format!("Bearer {KEY}"))
            .header("last-event-id", id)
            .body(Body::empty())
            .expect("a request");
        let response = router.oneshot(request).await.expect("a router answers");
        match response.status() {
            StatusCode::OK => {}
            status if status.is_server_error() => return false,
            status => {
                self.world.history.violated("R2", format!("{status} to a stream after {cursor}"));
                return false;
            }
        }
        self.world.history.count("a reader connected");
        let leaves = match self.rng.pick(0..=99) {
            _ if last => None,
            0..50 => Some(Instant::now() + Duration::from_millis(self.rng.pick(1..=15_000))),
            50..70 => {
                let drains = Duration::from_millis(self.rng.pick(1..=10_000));
                let mut frames = Frames::default();
                let mut body = response.into_body().into_data_stream();
                let drained = tokio::time::timeout(drains, self.frames(&mut body, &mut frames)).await;
                if let Ok(ended) = drained {
                    return ended;
                }
                stop.send_replace(true);
                self.world.history.count("a stream was drained");
                return self.frames(&mut body, &mut frames).await;
            }
            _ => None,
        };
        let mut body = response.into_body().into_data_stream();
        let mut frames = Frames::default();
        let reading = self.frames(&mut body, &mut frames);
        match leaves {
            None => reading.await,
            Some(at) => match tokio::time::timeout_at(at, reading).await {
                Ok(ended) => ended,
                Err(_) => {
                    self.world.history.count("a reader went away");
                    false
                }
            },
        }
    }

    /// Reads frames until the stream ends. True where its last frame said that all is settled.
    async fn frames(&mut self, body: &mut axum::body::BodyDataStream, frames: &mut Frames) -> bool {
        while let Some(bytes) = body.next().await {
            frames.text.push_str(&String::from_utf8_lossy(&bytes.expect("a body")));
            while let Some(frame) = frames.next() {
                self.frame(&frame, frames);
            }
        }
        frames.last == "settled"
    }

    fn frame(&mut self, frame: &str, frames: &mut Frames) {
        let fields: BTreeMap<&str, &str> = frame.lines().filter_map(|line| line.split_once(": ")).collect();
        let data = *fields.get("data").unwrap_or(&"");
        if let Some(id) = fields.get("id") {
            let name = &self.seen.name;
            self.world.history.note(format_args!("{name} saw {id}"));
            self.seen.events.push((id.parse().unwrap_or(0), data.to_owned()));
        }
        let Some(event) = fields.get("event") else { return };
        frames.last = (*event).to_owned();
        if *event == "drain" {
            self.world.history.count("a stream said drain");
        }
        if *event == "partial" {
            self.world.history.count("a partial was read");
            let value: Value = serde_json::from_str(data).unwrap_or_default();
            let generation = value["generationId"].as_str().unwrap_or_default().to_owned();
            let text = value["delta"].as_str().unwrap_or_default().to_owned();
            let chunk = (value["index"].as_u64().unwrap_or(0), text, value.get("dead").is_some());
            let opened = frames.generations.entry(generation.clone()).or_insert_with(|| {
                self.seen.partials.push((generation, Vec::new()));
                self.seen.partials.len() - 1
            });
            self.seen.partials[*opened].1.push(chunk);
        }
    }
}

/// Frames of one stream, as they come in.
#[derive(Default)]
struct Frames {
    text: String,
    /// The last named frame.
    last: String,
    /// Where each generation's chunks of this stream are kept.
    generations: BTreeMap<String, usize>,
}

impl Frames {
    /// The next whole frame.
    fn next(&mut self) -> Option<String> {
        let end = self.text.find("\n\n")? + 2;
        Some(self.text.drain(..end).collect())
    }
}
