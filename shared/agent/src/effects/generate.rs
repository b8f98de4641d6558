//! One request to a model: prepared from a snapshot (D5), streamed with its partials (R3a), committed.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use keel_kernel::transcript::Transcript;
use keel_kernel::{NewEvent, Refusal, Seq};
use tokio::time::{Instant, sleep_until};

use super::{Attempt, Compaction, Concluded, Ended, Interrupt, PartialAnswer, events, interrupted};
use crate::partials::Chunker;
use crate::provider::{Block, Delta, Message, ModelAnswer, Request, StopReason};
use crate::session_port::{Partial, SessionPortError};

/// Why a generation ended whose owner was fenced.
const LOST: &str = "lost";

/// How a request ended.
pub(super) enum Generated {
    /// The attempt is over.
    Ended(Ended),
    /// It is committed; decide again.
    GoOn,
    /// It was stopped, with this much text.
    Interrupted(Interrupt, PartialAnswer),
}

/// A request to a model, and the inputs that it presents (A1).
pub(super) struct Prepared {
    request: Request,
    presented: Vec<Seq>,
}

impl Attempt<'_> {
    /// Prepares a request from the transcript that the decision to make it was taken on (D5).
    pub(super) fn prepare(&self, transcript: &Transcript<'_>) -> Prepared {
        Prepared {
            presented: transcript.presented.clone(),
            request: Request {
                model: self.run.model.clone(),
                system: self.run.system.clone(),
                messages: transcript.entries.iter().map(Message::of).collect(),
                tools: self.ports.tools.specs(),
                attempt: self.run.attempt,
                generation_id: (self.ports.new_id)(),
            },
        }
    }

    pub(super) async fn generate(&mut self, prepared: Prepared) -> Result<Generated, SessionPortError> {
        let Prepared { request, presented } = prepared;
        let generation_id = request.generation_id.clone();
        self.tally.turns += 1;
        let mut publisher = PartialPublisher::new(&generation_id);
        let mut answer = match self.stream(request, &mut publisher).await? {
            Ok(answer) => answer,
            Err(interrupt) => {
                let partial_answer = PartialAnswer {
                    generation_id,
                    presented,
                    text: publisher.text,
                    cut: publisher.fitting.is_full(),
                };
                return Ok(Generated::Interrupted(interrupt, partial_answer));
            }
        };
        self.tally.usage.add(answer.usage);
        if answer.overflow && self.compaction != Compaction::Done {
            // K3: nothing of it is committed; the request is made again with a shorter context.
            self.compaction = Compaction::Overflowed;
            self.ports.waits.spend(answer.usage).await;
            return Ok(Generated::GoOn);
        }
        self.compaction = Compaction::WhenFull;
        self.tally.stop = Some(answer.stop_reason);
        self.make_ids_unique(&mut answer, &generation_id);
        let generated = self.commit_answer(&publisher, &mut answer, &presented).await;
        self.ports.waits.spend(answer.usage).await;
        if matches!(generated, Err(SessionPortError::Lost)) {
            self.publish_end(&publisher, LOST).await;
        }
        generated
    }

    async fn commit_answer(
        &mut self,
        publisher: &PartialPublisher,
        answer: &mut ModelAnswer,
        presented: &[Seq],
    ) -> Result<Generated, SessionPortError> {
        let failed = matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted);
        let has_calls = answer.content.iter().any(|block| matches!(block, Block::ToolCall { .. }));
        let id = &publisher.generation_id;
        let refused = match events::assistant(self.run, &self.ports, id, answer, presented) {
            Ok(event) if failed => {
                let why = answer.error.as_deref().unwrap_or("the model failed");
                return self.fail(vec![event], why).await.map(Generated::Ended);
            }
            Ok(event) if has_calls => match self.commit_calls(event, id, answer, presented).await {
                Ok(()) => return Ok(Generated::GoOn),
                Err(SessionPortError::Refused(refusal)) => refusal,
                Err(error) => return Err(error),
            },
            Ok(event) => match self.conclude(Some(event), presented).await? {
                Concluded::Ended(ended) => return Ok(Generated::Ended(ended)),
                Concluded::GoesOn => return Ok(Generated::GoOn),
                Concluded::Refused(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        // The ledger refuses the answer: the attempt fails, with the reason (A3).
        if !failed {
            self.publish_end(publisher, "error").await;
        }
        let answer = ModelAnswer::failed(format!("the answer was refused: {refused}"));
        let event = events::assistant(self.run, &self.ports, id, &answer, presented)
            .map_err(SessionPortError::Refused)?;
        let why = answer.error.unwrap_or_default();
        self.fail(vec![event], &why).await.map(Generated::Ended)
    }

    /// Commits a message with calls. An owner that does not read the whole ledger (K2) may not know every id in it: if one was
    /// used before, all calls get new ids (V2).
    async fn commit_calls(
        &self,
        event: NewEvent,
        generation_id: &str,
        answer: &mut ModelAnswer,
        presented: &[Seq],
    ) -> Result<(), SessionPortError> {
        match self.ports.session.commit(vec![event]).await {
            Err(SessionPortError::Refused(Refusal::CallIdReused(_))) => {
                for block in &mut answer.content {
                    if let Block::ToolCall { id, .. } = block {
                        *id = format!("{id}.{generation_id}");
                    }
                }
                let event = events::assistant(self.run, &self.ports, generation_id, answer, presented)
                    .map_err(SessionPortError::Refused)?;
                self.ports.session.commit(vec![event]).await
            }
            ended => ended,
        }
    }

    /// Streams the request and publishes its text in chunks. R3a: if it ends without an answer, its last partial says so.
    async fn stream(
        &mut self,
        request: Request,
        publisher: &mut PartialPublisher,
    ) -> Result<Result<ModelAnswer, Interrupt>, SessionPortError> {
        let end = match self.read_deltas(request, publisher).await {
            Err(SessionPortError::Lost) => {
                self.publish_end(publisher, LOST).await;
                return Err(SessionPortError::Lost);
            }
            end => end?,
        };
        match &end {
            Ok(answer) if matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted) => {
                self.publish_end(publisher, "error").await;
            }
            Ok(_) => {
                let chunk = publisher.chunker.flush();
                self.publish(publisher, chunk).await?;
            }
            Err(Interrupt::Cancel) => self.publish_end(publisher, "aborted").await,
            Err(Interrupt::HandOver) => self.publish_end(publisher, "handed_over").await,
        }
        Ok(end)
    }

    pub(super) async fn read_deltas(
        &self,
        request: Request,
        publisher: &mut PartialPublisher,
    ) -> Result<Result<ModelAnswer, Interrupt>, SessionPortError> {
        let mut deltas = self.ports.provider.stream(request);
        let mut signals = self.signals.clone();
        let mut stop = Box::pin(interrupted(&mut signals));
        loop {
            tokio::select! {
                biased;
                interrupt = &mut stop => return Ok(Err(interrupt?)),
                () = sleep_until(publisher.due()), if publisher.chunker.due_ms().is_some() => {
                    let chunk = publisher.chunker.flush();
                    self.publish(publisher, chunk).await?;
                }
                delta = deltas.next() => match delta {
                    Some(Delta::Text(text)) => {
                        let chunk = publisher.push(&text);
                        self.publish(publisher, chunk).await?;
                    }
                    Some(Delta::Done(mut answer)) => {
                        answer.usage = answer.usage.bounded();
                        return Ok(Ok(answer));
                    }
                    None => return Ok(Ok(ModelAnswer::failed("the model's stream ended in the middle"))),
                },
            }
        }
    }

    async fn publish(
        &self,
        publisher: &mut PartialPublisher,
        chunk: Option<String>,
    ) -> Result<(), SessionPortError> {
        let Some(text) = chunk.filter(|_| !publisher.silent) else { return Ok(()) };
        let partial = Partial {
            generation_id: publisher.generation_id.clone(),
            index: publisher.published,
            text,
            dead: None,
        };
        match self.ports.session.partial(partial).await {
            Ok(()) => publisher.published += 1,
            Err(SessionPortError::Lost) => return Err(SessionPortError::Lost),
            Err(error @ (SessionPortError::Store(_) | SessionPortError::Refused(_))) => {
                // R3a: behind a missing chunk the text would not be a prefix. The answer itself is not affected.
                publisher.silent = true;
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a partial could not be published; the generation goes on without partials"
                );
            }
        }
        Ok(())
    }

    /// R3a: publishes that a generation ended without an answer. If that fails, the stream finds out from the ledger.
    async fn publish_end(&self, publisher: &PartialPublisher, dead: &'static str) {
        let partial = Partial {
            generation_id: publisher.generation_id.clone(),
            index: publisher.published,
            text: String::new(),
            dead: Some(dead),
        };
        if let Err(error) = self.ports.session.partial(partial).await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the end of a dead generation was not published"
            );
        }
    }

    /// V2: models repeat ids (`call_0`); the session must not.
    fn make_ids_unique(&self, answer: &mut ModelAnswer, generation_id: &str) {
        if !answer.content.iter().any(|block| matches!(block, Block::ToolCall { .. })) {
            return;
        }
        let mut used: BTreeSet<String> = self.history.call_ids().map(ToString::to_string).collect();
        for block in &mut answer.content {
            if let Block::ToolCall { id, .. } = block {
                let sane: String = id.chars().filter(char::is_ascii_graphic).take(64).collect();
                let mut unique = if sane.is_empty() { "call".to_owned() } else { sane.clone() };
                let mut n = 0;
                while used.contains(&unique) {
                    unique = if n == 0 {
                        format!("{sane}.{generation_id}")
                    } else {
                        format!("{sane}.{generation_id}.{n}")
                    };
                    n += 1;
                }
                used.insert(unique.clone());
                *id = unique;
            }
        }
    }
}

/// The text of a generation so far, and how much of it was published as partials.
pub(super) struct PartialPublisher {
    generation_id: String,
    started: Instant,
    chunker: Chunker,
    text: String,
    fitting: events::Fitting,
    published: u32,
    silent: bool,
}

impl PartialPublisher {
    /// Publishes nothing.
    pub(super) fn silent() -> Self {
        Self { silent: true, ..Self::new("") }
    }

    fn new(generation_id: &str) -> Self {
        Self {
            generation_id: generation_id.to_owned(),
            started: Instant::now(),
            chunker: Chunker::default(),
            text: String::new(),
            fitting: events::Fitting::text(),
            published: 0,
            silent: false,
        }
    }

    /// Takes a delta; gives a chunk when one is full. R3a: text that has no room in the event is not published either.
    fn push(&mut self, text: &str) -> Option<String> {
        let text = &self.fitting.take(text);
        self.text.push_str(text);
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.chunker.push(text, now)
    }

    /// When the collected text is to be published.
    fn due(&self) -> Instant {
        self.started + Duration::from_millis(self.chunker.due_ms().unwrap_or(0))
    }
}
