//! One reader's feed: what it has sent, when it looks again, when it ends. It sends every committed event once and in
//! order, from its cursor on (R2), and ends with a drain frame (R4).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use keel_env::metric;
use keel_kernel::decision::{Decision, DecisionState};
use keel_kernel::event::Facts;
use keel_kernel::partial::{Chunk, PartialChunk, PartialReader};
use keel_kernel::{DedupeKey, Event, Head, Kind, Seq};
use keel_ledger::notifier::CommitSubscription;
use keel_ledger::port::{Consistency, EventPage};
use keel_ledger::{LedgerError, SessionKey};
use keel_web::Problem;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::single_flight::SingleFlight;
use crate::{Pace, Streams, frame};

/// The pause after which a heartbeat is due. With the longest pause between two looks added it is still less than 10 s
/// (R5).
pub const HEARTBEAT: Duration = Duration::from_secs(7);
/// Events read at once, so that the reader of a long ledger takes no more memory than that of a short one.
const PAGE: usize = 100;
/// The least pause between two looks for decisions.
const ASK: Duration = Duration::from_millis(500);
/// The part of an invocation's time that is kept for the last query and the drain frame.
const MARGIN: Duration = Duration::from_secs(3);
/// How often in a row a look may fail before the stream ends. The client's next stream tries again.
const FAILURES_MAX: u32 = 5;

/// The reads of this process's readers. Readers that ask the same share a read (single flight).
#[derive(Default)]
pub(crate) struct Looks {
    events: SingleFlight<(SessionKey, Seq), EventPage>,
    partials: SingleFlight<(SessionKey, String), Vec<(String, PartialChunk)>>,
    decisions: SingleFlight<(SessionKey, String), Option<Decision>>,
}

pub(crate) struct Feed {
    streams: Streams,
    looks: Arc<Looks>,
    at: SessionKey,
    commits: CommitSubscription,
    drain: watch::Receiver<bool>,
    cursor: Seq,
    partials: Option<Partials>,
    until_settled: bool,
    /// Calls that may need a person's consent, for `decision.opened` frames (H2).
    waiting: Waiting,
    live: bool,
    /// When a run was last seen to be live.
    live_at: Instant,
    opened: Instant,
    ends: Instant,
    /// When bytes were last sent.
    sent_at: Instant,
    /// When the session last had something new.
    news_at: Instant,
    sent: usize,
    pace: Pace,
    failures: u32,
    state: State,
}

/// The session's open calls, as far as the feed knows, and those whose decisions it has announced (H2).
struct Waiting {
    open: BTreeSet<DedupeKey>,
    announced: BTreeSet<DedupeKey>,
    asked: Option<Instant>,
}

impl Waiting {
    fn take(&mut self, event: &Event) {
        match Facts::read(event.kind, &event.payload) {
            Ok(Facts::Assistant(message)) if !message.failed => {
                self.open.extend(message.calls.into_iter().map(|call| call.id));
            }
            Ok(Facts::Tool(result)) => {
                self.open.remove(&result.tool_call_id);
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// The calls whose decisions are to be looked for now. It is done seldom, since each costs a read.
    fn due(&mut self, now: Instant) -> Vec<DedupeKey> {
        let unknown: Vec<DedupeKey> = self.open.difference(&self.announced).cloned().collect();
        if unknown.is_empty() || self.asked.is_some_and(|asked| now < asked + ASK) {
            return Vec::new();
        }
        self.asked = Some(now);
        unknown
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Open,
    Over,
}

/// A reader's place among the partials, and what it may show of them (R3a).
struct Partials {
    after: String,
    reader: PartialReader,
}

/// What a reader asked for.
pub(crate) struct Wanted {
    /// The last event that it has.
    pub(crate) after: Seq,
    pub(crate) partials: bool,
    pub(crate) until_settled: bool,
}

impl Feed {
    pub(crate) async fn open(
        streams: Streams,
        looks: Arc<Looks>,
        at: SessionKey,
        head: &Head,
        wanted: Wanted,
        deadline: Option<Instant>,
    ) -> Result<Feed, Problem> {
        let commits = streams.ledger.notifier().subscribe(&at);
        let partials = match wanted.partials {
            false => None,
            true => {
                let after = streams.ledger.partials_from_now(&at).await?;
                Some(Partials { after, reader: PartialReader::default() })
            }
        };
        let now = Instant::now();
        let life = now + streams.config.life;
        let ends = deadline.map_or(life, |deadline| life.min(deadline.checked_sub(MARGIN).unwrap_or(now)));
        Ok(Feed {
            drain: streams.drain.clone(),
            pace: Pace::new(streams.config),
            live: head.run.status.is_live(),
            live_at: now,
            opened: now,
            ends,
            sent_at: now,
            news_at: now,
            sent: 0,
            failures: 0,
            state: State::New,
            streams,
            looks,
            at,
            commits,
            cursor: wanted.after,
            partials,
            until_settled: wanted.until_settled,
            waiting: Waiting {
                open: head.ledger.open_calls.clone(),
                announced: BTreeSet::new(),
                asked: None,
            },
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
            // This is taken before the look: what is committed after the look is sent by the next stream.
            let ending = self.is_ending();
            // Boxed, so that a reader that waits keeps no memory for a look. There may be a thousand of them.
            match Box::pin(self.look(&mut out)).await {
                Ok(more) => {
                    self.failures = 0;
                    if !more && ending {
                        frame::drain(&mut out);
                        self.state = State::Over;
                    } else if !more && self.until_settled && !self.live {
                        Box::pin(self.settle(&mut out)).await;
                    }
                }
                Err(problem) => {
                    self.failures += 1;
                    metric::count(metric::name::STREAM_ERRORS, 1);
                    tracing::warn!(code = problem.code().as_str(), "a stream could not read the session");
                    if ending || self.failures > FAILURES_MAX {
                        frame::drain(&mut out);
                        self.state = State::Over;
                    }
                }
            }
            if out.is_empty() && self.sent_at.elapsed() >= HEARTBEAT {
                frame::heartbeat(&mut out);
            }
            if !out.is_empty() {
                self.sent_at = Instant::now();
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

    /// Reads what is new and writes its frames. True: more may be there already.
    async fn look(&mut self, out: &mut BytesMut) -> Result<bool, Problem> {
        // Partials are read first: once a message is committed, the rest of its partials is old.
        self.look_for_partials(out).await?;
        let in_doubt = self.partials.as_ref().is_some_and(|partials| partials.reader.is_in_doubt());
        let page = if in_doubt {
            Arc::new(Box::pin(self.page(Consistency::Strong)).await?)
        } else {
            let place = (self.at.clone(), self.cursor);
            self.looks.events.run(place, || self.page(Consistency::Eventual)).await?
        };
        for event in &page.events {
            if let Some(partials) = &mut self.partials {
                for dead in partials.reader.committed(event) {
                    frame::partial(out, &dead);
                }
            }
            self.waiting.take(event);
            frame::committed(out, event);
            self.cursor = event.seq;
            self.live |= event.kind == Kind::UserMessage;
        }
        if let Some(partials) = &mut self.partials
            && in_doubt
            && !page.has_more
            && let Some(dead) = partials.reader.conclude()
        {
            frame::partial(out, &dead);
        }
        if !page.has_more {
            Box::pin(self.look_for_decisions(out)).await?;
        }
        let asks = page.events.iter().any(|event| event.kind == Kind::RunFinished)
            || (page.events.is_empty() && self.live && self.live_at.elapsed() >= HEARTBEAT);
        if asks {
            self.live = Box::pin(self.head()).await?.run.status.is_live();
        }
        if self.live && (asks || !page.events.is_empty()) {
            self.live_at = Instant::now();
        }
        if !out.is_empty() {
            self.pace.news();
            self.news_at = Instant::now();
        }
        Ok(page.has_more)
    }

    /// H2: announces each decision to this reader once. Its frame has no id, since it is no part of the ledger.
    async fn look_for_decisions(&mut self, out: &mut BytesMut) -> Result<(), Problem> {
        for call in self.waiting.due(Instant::now()) {
            let id = Decision::id_of(&self.at.session, &call);
            // An eventual read may not show it yet; the feed looks again.
            let read = || self.streams.ledger.decision(&self.at, &id, Consistency::Eventual);
            let found = self.looks.decisions.run((self.at.clone(), id.clone()), read).await?;
            let Some(decision) = &*found else { continue };
            let now = self.streams.ledger.env().now();
            if matches!(decision.state(now), DecisionState::Open(_)) {
                frame::decision(out, decision, now);
            }
            self.waiting.announced.insert(call);
        }
        Ok(())
    }

    async fn page(&self, consistency: Consistency) -> Result<EventPage, LedgerError> {
        self.streams.ledger.events(&self.at, self.cursor, PAGE, consistency).await
    }

    async fn head(&self) -> Result<Head, Problem> {
        self.streams.ledger.head_eventual(&self.at).await?.ok_or_else(Problem::no_session)
    }

    async fn look_for_partials(&mut self, out: &mut BytesMut) -> Result<(), Problem> {
        let Some(partials) = &mut self.partials else { return Ok(()) };
        let read = || self.streams.ledger.partials(&self.at, &partials.after);
        let chunks = self.looks.partials.run((self.at.clone(), partials.after.clone()), read).await?;
        for (place, chunk) in chunks.iter() {
            match partials.reader.take(chunk) {
                Chunk::Hole => break,
                Chunk::Old => {}
                Chunk::Show => frame::partial(out, chunk),
            }
            partials.after.clone_from(place);
        }
        Ok(())
    }

    /// Ends the stream of a reader that asked for `until=settled`, if no run is live and every event is sent.
    async fn settle(&mut self, out: &mut BytesMut) {
        match self.head().await {
            Ok(head) if !head.run.status.is_live() && head.ledger.seq == self.cursor => {
                frame::settled(out, head.run.status.as_str());
                self.state = State::Over;
            }
            Ok(head) => self.live = head.run.status.is_live(),
            Err(_) => {} // the next look reports the failure
        }
    }

    /// Waits for a commit, for the drain, or until it is time to look again.
    async fn wait(&mut self) {
        let pause = self.pace.next(self.live, self.news_at.elapsed());
        let look = Duration::from_millis(self.streams.ledger.env().pick(pause));
        let look =
            look.min(self.ends.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
        tokio::select! {
            biased;
            () = self.commits.wait(look) => {}
            // A drain that begins ends the wait. Where its sender is gone, none ever begins.
            _ = self.drain.wait_for(|drain| *drain) => {}
        }
    }
}
