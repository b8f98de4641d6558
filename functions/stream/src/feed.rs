//! One reader's feed: what it has seen, when it looks again, when it ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use keel_env::metric;
use keel_kernel::decision::{Decision, DecisionState};
use keel_kernel::event::Facts;
use keel_kernel::{DedupeKey, Epoch, Event, Head, Kind, Seq};
use keel_ledger::dynamo::PartialChunk;
use keel_ledger::notifier::CommitSubscription;
use keel_ledger::port::{Consistency, EventPage};
use keel_ledger::{LedgerError, SessionKey};
use keel_web::Problem;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::single_flight::SingleFlight;
use crate::{Pace, Streams, frame};

/// Between heartbeats. With the longest look behind it, still at most 10 s (R5).
pub const HEARTBEAT: Duration = Duration::from_secs(7);
/// Events fetched at once, so that a reader of a long ledger takes no more memory than one of a short.
const PAGE: usize = 100;
/// Between two looks for decisions.
const ASK: Duration = Duration::from_millis(500);
/// Left of an invocation's time for the last query and the drain frame.
const MARGIN: Duration = Duration::from_secs(3);
/// How long the store may fail before the stream ends; the client's next one tries again.
const PATIENCE: u32 = 5;

/// The looks of this process's readers, which they take together.
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
    ear: CommitSubscription,
    drain: watch::Receiver<bool>,
    cursor: Seq,
    partials: Option<Partials>,
    until_settled: bool,
    /// Calls that may wait for a person.
    waiting: Waiting,
    live: bool,
    /// When a run was live last.
    live_at: Instant,
    opened: Instant,
    ends: Instant,
    spoke: Instant,
    /// When the session said something last.
    heard: Instant,
    sent: usize,
    pace: Pace,
    failures: u32,
    state: State,
}

/// What is known of the session's open calls, and which of their decisions were announced (H2).
struct Waiting {
    open: BTreeSet<DedupeKey>,
    announced: BTreeSet<DedupeKey>,
    asked: Option<Instant>,
}

impl Waiting {
    fn heard(&mut self, event: &Event) {
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

    /// Those to be asked about now: seldom, for each costs a read.
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

/// Where a reader is among the token frames.
struct Partials {
    after: String,
    /// The generation being read.
    reading: Option<Reading>,
    /// A generation whose owner was replaced before it ended: dead, unless the ledger turns out to hold it.
    orphan: Option<Reading>,
    /// Its final text was delivered: what is left of it is old news.
    committed: Option<String>,
}

/// A generation, as far as it was read.
struct Reading {
    epoch: Epoch,
    generation: String,
    next: u32,
    /// It was shown, and neither its message nor its death was.
    open: bool,
}

impl Reading {
    /// R3a: an owner that was killed could not say so itself.
    fn dies(&mut self, out: &mut BytesMut) {
        if std::mem::take(&mut self.open) {
            let (epoch, generation, index) = (self.epoch, self.generation.clone(), self.next);
            let dead = Some("lost".to_owned());
            frame::partial(out, &PartialChunk { epoch, generation, index, text: String::new(), dead });
        }
    }
}

impl Partials {
    /// An owner's event: what was said under an earlier epoch, or under a run that it ends, can end no other way now.
    fn heard(&mut self, event: &Event, out: &mut BytesMut) {
        let generation = match event.kind {
            Kind::AssistantMessage => event.payload.get("generationId").and_then(|id| id.as_str()),
            _ => None,
        };
        for reading in self.orphan.iter_mut().chain(&mut self.reading) {
            if generation.is_some_and(|generation| generation == reading.generation) {
                reading.open = false;
            } else if event.epoch > Some(reading.epoch)
                || (event.kind == Kind::RunFinished && event.epoch == Some(reading.epoch))
            {
                reading.dies(out);
            }
        }
        if generation.is_some() {
            self.committed = generation.map(str::to_owned);
        }
    }

    /// Whether a generation seems to have died, and only the ledger can tell.
    fn in_doubt(&self) -> bool {
        self.orphan.as_ref().is_some_and(|orphan| orphan.open)
    }
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
        let ear = streams.ledger.notifier().subscribe(&at);
        let partials = match wanted.partials {
            false => None,
            true => {
                let after = streams.rows.partials_from_now(&at).await?;
                Some(Partials { after, reading: None, orphan: None, committed: None })
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
            spoke: now,
            heard: now,
            sent: 0,
            failures: 0,
            state: State::New,
            streams,
            looks,
            at,
            ear,
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
            // Taken before looking: what commits after this look is found by the next stream.
            let ending = self.is_ending();
            // Boxed: what a look needs is not kept while a thousand readers wait.
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
        let in_doubt = self.partials.as_ref().is_some_and(Partials::in_doubt);
        let page = if in_doubt {
            Arc::new(Box::pin(self.page(Consistency::Strong)).await?)
        } else {
            let place = (self.at.clone(), self.cursor);
            self.looks.events.ask(place, || self.page(Consistency::Eventual)).await?
        };
        for event in &page.events {
            if let Some(partials) = &mut self.partials {
                partials.heard(event, out);
            }
            self.waiting.heard(event);
            frame::committed(out, event);
            self.cursor = event.seq;
            self.live |= event.kind == Kind::UserMessage;
        }
        if let Some(orphan) = self.partials.as_mut().and_then(|partials| partials.orphan.as_mut())
            && in_doubt
            && !page.has_more
        {
            orphan.dies(out); // its owner is fenced, and the ledger as of now does not hold it
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
            self.pace.heard();
            self.heard = Instant::now();
        }
        Ok(page.has_more)
    }

    /// H2: announces each decision once to this reader. No frame of it has an id: it is no part of the ledger.
    async fn look_for_decisions(&mut self, out: &mut BytesMut) -> Result<(), Problem> {
        for call in self.waiting.due(Instant::now()) {
            let id = Decision::id_of(&self.at.session, &call);
            // What a stream sees may be a moment old: it asks again.
            let read = || self.streams.rows.decision(&self.at, &id, Consistency::Eventual);
            let found = self.looks.decisions.ask((self.at.clone(), id.clone()), read).await?;
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
        self.streams.rows.head_eventual(&self.at).await?.ok_or_else(Problem::no_session)
    }

    async fn look_for_partials(&mut self, out: &mut BytesMut) -> Result<(), Problem> {
        let Some(partials) = &mut self.partials else { return Ok(()) };
        let read = || self.streams.rows.partials(&self.at, &partials.after);
        let chunks = self.looks.partials.ask((self.at.clone(), partials.after.clone()), read).await?;
        for (sk, chunk) in chunks.iter() {
            let reading = partials.reading.take_if(|reading| reading.generation == chunk.generation);
            let is_next = chunk.index == reading.as_ref().map_or(0, |reading| reading.next);
            // A hole closes with the next look, or never; only the last chunk of a dead generation may follow one.
            if !is_next && chunk.dead.is_none() {
                partials.reading = reading.or(partials.reading.take());
                break;
            }
            if let Some(before) = partials.reading.take()
                && before.epoch < chunk.epoch
            {
                partials.orphan = Some(before);
            }
            partials.after.clone_from(sk);
            let is_news = partials.committed.as_deref() != Some(&chunk.generation);
            let open = is_news && chunk.dead.is_none();
            if is_news {
                frame::partial(out, chunk);
            }
            let (epoch, generation, next) = (chunk.epoch, chunk.generation.clone(), chunk.index + 1);
            partials.reading = Some(Reading { epoch, generation, next, open });
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
        let pause = self.pace.next(self.live, self.heard.elapsed());
        let look = Duration::from_millis(self.streams.ledger.env().pick(pause));
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
