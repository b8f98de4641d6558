//! One reader's feed: what it has seen, when it looks again, when it ends.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use keel_kernel::{Head, Kind, Seq};
use keel_ledger::SessionKey;
use keel_ledger::port::Consistency;
use keel_ledger::wakes::Listener;
use keel_web::Problem;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::{Streams, frame};

/// Between heartbeats. With the longest look behind it, still at most 10 s (R5).
const HEARTBEAT: Duration = Duration::from_secs(7);
/// Events fetched at once, so that a reader of a long ledger takes no more memory than one of a short.
const PAGE: usize = 100;
/// Left of an invocation's time for the last query and the drain frame.
const MARGIN: Duration = Duration::from_secs(3);
/// How long the store may fail before the stream ends; the client's next one tries again.
const PATIENCE: u32 = 5;

pub(crate) struct Feed {
    streams: Streams,
    at: SessionKey,
    ear: Listener,
    drain: watch::Receiver<bool>,
    cursor: Seq,
    partials: Option<Partials>,
    until_settled: bool,
    live: bool,
    /// When a run was live last.
    live_at: Instant,
    opened: Instant,
    ends: Instant,
    spoke: Instant,
    sent: usize,
    look_ms: u64,
    failures: u32,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Open,
    Over,
}

/// Where a reader is among the token frames.
struct Partials {
    after: String,
    /// The generation being read, and the chunk it comes to next.
    reading: Option<(String, u32)>,
    /// Its final text was delivered: what is left of it is old news.
    committed: Option<String>,
}

impl Feed {
    pub(crate) async fn open(
        streams: Streams,
        at: SessionKey,
        cursor: Seq,
        head: &Head,
        partials: bool,
        until_settled: bool,
        deadline: Option<Instant>,
    ) -> Result<Feed, Problem> {
        let ear = streams.ledger.wakes().subscribe(&at);
        let partials = match partials {
            false => None,
            true => {
                let after = streams.rows.partials_from_now(&at).await?;
                Some(Partials { after, reading: None, committed: None })
            }
        };
        let now = Instant::now();
        let life = now + streams.config.life;
        let ends = deadline.map_or(life, |deadline| life.min(deadline.checked_sub(MARGIN).unwrap_or(now)));
        Ok(Feed {
            drain: streams.drain.clone(),
            look_ms: streams.config.look_live_ms.0,
            live: head.run.status.is_live(),
            live_at: now,
            opened: now,
            ends,
            spoke: now,
            sent: 0,
            failures: 0,
            state: State::New,
            streams,
            at,
            ear,
            cursor,
            partials,
            until_settled,
        })
    }

    /// The next bytes; `None` once the stream is over.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        let mut out = BytesMut::new();
        match self.state {
            State::Over => return None,
            State::New => {
                frame::hello(&mut out);
                self.state = State::Open;
            }
            State::Open => {}
        }
        loop {
            // Taken before looking: what commits after this look is found by the next stream.
            let ending = self.is_ending();
            match self.look(&mut out).await {
                Ok(more) => {
                    self.failures = 0;
                    if !more && ending {
                        frame::drain(&mut out);
                        self.state = State::Over;
                    } else if !more && self.until_settled && !self.live {
                        self.settle(&mut out).await;
                    }
                }
                Err(problem) => {
                    self.failures += 1;
                    tracing::warn!(
                        tenant = %self.at.tenant, session = %self.at.session, code = problem.code().as_str(),
                        "a stream could not look"
                    );
                    if ending || self.failures > PATIENCE {
                        frame::drain(&mut out);
                        self.state = State::Over;
                    }
                }
            }
            if out.is_empty() && self.spoke.elapsed() >= HEARTBEAT {
                frame::heartbeat(&mut out);
            }
            if !out.is_empty() {
                self.spoke = Instant::now();
                self.sent += out.len();
                return Some(out.freeze());
            }
            self.wait().await;
        }
    }

    fn is_ending(&self) -> bool {
        let now = Instant::now();
        let idle = !self.live && now >= self.live_at.max(self.opened) + self.streams.config.idle_life;
        *self.drain.borrow() || now >= self.ends || idle || self.sent >= self.streams.config.bytes
    }

    /// Writes what is new. True where there may be more at once.
    async fn look(&mut self, out: &mut BytesMut) -> Result<bool, Problem> {
        // Token frames first: once a message is committed, what is left of its frames is old news.
        self.look_for_partials(out).await?;
        let page = self.streams.ledger.events(&self.at, self.cursor, PAGE, Consistency::Eventual).await?;
        for event in &page.events {
            frame::committed(out, event);
            self.cursor = event.seq;
            match (event.kind, &mut self.partials) {
                (Kind::AssistantMessage, Some(partials)) => {
                    let generation = event.payload.get("generationId").and_then(|id| id.as_str());
                    partials.committed = generation.map(str::to_owned);
                }
                (Kind::UserMessage, _) => self.live = true,
                (
                    Kind::AssistantMessage
                    | Kind::ToolResult
                    | Kind::Compaction
                    | Kind::RunFinished
                    | Kind::ExternalEvent
                    | Kind::RunStarted
                    | Kind::RunFailed,
                    _,
                ) => {}
            }
        }
        let asks = page.events.iter().any(|event| event.kind == Kind::RunFinished)
            || (page.events.is_empty() && self.live && self.live_at.elapsed() >= HEARTBEAT);
        if asks {
            self.live = self.head().await?.run.status.is_live();
        }
        if self.live && (asks || !page.events.is_empty()) {
            self.live_at = Instant::now();
        }
        if !out.is_empty() {
            self.look_ms = self.streams.config.look_live_ms.0;
        }
        Ok(page.has_more)
    }

    async fn head(&self) -> Result<Head, Problem> {
        self.streams.rows.glance(&self.at).await?.ok_or_else(Problem::no_session)
    }

    async fn look_for_partials(&mut self, out: &mut BytesMut) -> Result<(), Problem> {
        let Some(partials) = &mut self.partials else { return Ok(()) };
        for (sk, chunk) in self.streams.rows.partials(&self.at, &partials.after).await? {
            let expected = match &partials.reading {
                Some((generation, next)) if *generation == chunk.generation => *next,
                _ => 0,
            };
            let is_next = chunk.index == expected;
            // A hole closes with the next look, or never; only the last chunk of a dead generation may follow one.
            if !is_next && chunk.dead.is_none() {
                break;
            }
            partials.after = sk;
            partials.reading = Some((chunk.generation.clone(), chunk.index + 1));
            if partials.committed.as_deref() != Some(&chunk.generation) {
                frame::partial(out, &chunk);
            }
        }
        Ok(())
    }

    /// Ends the stream for a reader that wanted it until everything is settled, if it still is.
    async fn settle(&mut self, out: &mut BytesMut) {
        match self.head().await {
            Ok(head) if !head.run.status.is_live() && head.ledger.seq == self.cursor => {
                frame::settled(out, head.run.status.as_str());
                self.state = State::Over;
            }
            Ok(head) => self.live = head.run.status.is_live(),
            Err(_) => {} // the next look meets it again
        }
    }

    /// Waits for a commit, for the drain, or until it is time to look again.
    async fn wait(&mut self) {
        let config = &self.streams.config;
        let (low, high) = config.look_live_ms;
        if self.live {
            self.look_ms = low;
        } else {
            self.look_ms = (self.look_ms.max(low) * 3 / 2).min(config.look_idle_ms);
        }
        let jitter = self.streams.ledger.env().pick(0..=(high - low).max(self.look_ms / 4));
        let look = Duration::from_millis((self.look_ms + jitter).min(config.look_idle_ms));
        let look =
            look.min(self.ends.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
        tokio::select! {
            biased;
            () = self.ear.wait(look) => {}
            // A drain that comes now ends the wait; one whose sender is gone never comes.
            _ = self.drain.wait_for(|drain| *drain) => {}
        }
    }
}
