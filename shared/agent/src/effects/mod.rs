//! Carries out what [`next()`] decides: asks the model, runs tools, commits, settles.
//!
//! A signal ends every wait. The results of a step are in the ledger before the next step begins, so an owner may disappear
//! at any point, and its successor goes on from there.

mod compacting;
mod events;
mod generate;
mod tools;

use keel_kernel::event::ToolCall;
use keel_kernel::run::Outcome;
use keel_kernel::transcript::{History, Transcript};
use keel_kernel::{NewEvent, Refusal, RunStatus, Seq};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::compact::{Window, context_tokens};
use crate::next::{AttemptState, Next, Time, ToRun, next};
use crate::provider::{Provider, StopReason, Usage};
use crate::session_port::{SessionPort, SessionPortError, SettleResult};
use crate::tool::{ToolOutput, Tools};
use crate::waits::{CallState, Waits};
use compacting::CompactionStep;
use events::Status;
pub use events::not_begun;
use generate::Generated;

/// What a running attempt is signalled from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// A client asked it to stop.
    pub cancel: bool,
    /// Another owner has the lease.
    pub lost: bool,
    /// How much time is left.
    pub time: Time,
}

/// The run being answered.
#[derive(Clone, Debug)]
pub struct RunContext {
    /// A4: inputs up to here are this run's.
    pub watermark: Option<Seq>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Attempts the run may spend.
    pub max_attempts: u32,
    /// Requests the attempt may make.
    pub max_turns: u32,
    /// The session's model.
    pub model: Option<String>,
    /// The session's system prompt.
    pub system: Option<String>,
    /// If this attempt fails: how long the next one waits, in milliseconds.
    pub backoff_ms: u64,
    /// What the model may read.
    pub window: Window,
    /// K3: a compaction was requested.
    pub compact: bool,
}

/// What the loop works with.
pub struct Ports<'a> {
    /// The session.
    pub session: &'a dyn SessionPort,
    /// The model.
    pub provider: &'a dyn Provider,
    /// The tools.
    pub tools: &'a dyn Tools,
    /// What the run may have to wait for.
    pub waits: &'a dyn Waits,
    /// Makes generation ids, later ones sorting behind earlier ones.
    pub new_id: &'a (dyn Fn() -> String + Send + Sync),
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Settled: the run has this status.
    Settled(RunStatus),
    /// S5: released for a successor.
    HandedOver,
    /// H1: parked until something happens.
    Parked,
    /// Another owner has the session, or it is closed.
    Lost,
}

/// Answers a run until it is settled, handed over or lost.
///
/// # Errors
/// Only [`SessionPortError::Store`]: the lease runs out, and a successor goes on.
pub async fn answer_run(
    ports: Ports<'_>,
    run: &RunContext,
    signals: watch::Receiver<Signals>,
) -> Result<Ended, SessionPortError> {
    let history = ports.session.history().await?;
    let mut attempt = Attempt {
        ports,
        run,
        signals,
        history,
        compaction: if run.compact { Compaction::Wanted } else { Compaction::WhenFull },
        tally: Tally {
            started: Instant::now(),
            turns: 0,
            usage: Usage::default(),
            stop: None,
            calls: 0,
            timings: Vec::new(),
        },
    };
    match attempt.run_to_end().await {
        Err(SessionPortError::Lost) => Ok(Ended::Lost),
        ended => ended,
    }
}

/// What the attempt's summary will say.
struct Tally {
    started: Instant,
    turns: u32,
    usage: Usage,
    stop: Option<StopReason>,
    /// Tools run.
    calls: u32,
    /// The first of them, one by one.
    timings: Vec<serde_json::Value>,
}

/// The text of a generation when it was stopped.
#[derive(Clone, Debug, Default)]
struct PartialAnswer {
    generation_id: String,
    presented: Vec<Seq>,
    /// As much as an event holds.
    text: String,
    /// There was more.
    cut: bool,
}

struct Attempt<'a> {
    ports: Ports<'a>,
    run: &'a RunContext,
    signals: watch::Receiver<Signals>,
    history: History,
    compaction: Compaction,
    tally: Tally,
}

/// K: whether the attempt compacts before its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compaction {
    /// Where the context is too long.
    WhenFull,
    /// Whatever its length: somebody asked for it.
    Wanted,
    /// The model said that the request was too long.
    Overflowed,
    /// Not before the model has answered: the context has just been compacted, or cannot be.
    Done,
}

/// What stops a model or a tool in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interrupt {
    Cancel,
    HandOver,
}

impl Attempt<'_> {
    async fn run_to_end(&mut self) -> Result<Ended, SessionPortError> {
        loop {
            self.refresh().await?;
            let signals = *self.signals.borrow();
            if signals.lost {
                return Ok(Ended::Lost);
            }
            let transcript = self.history.transcript(self.run.watermark);
            let call_states = self.call_states(&transcript).await?;
            let state = AttemptState {
                cancel: signals.cancel,
                time: signals.time,
                turns: self.tally.turns,
                max_turns: self.run.max_turns,
                exhausted: self.run.attempt > self.run.max_attempts,
                budget_reached: if transcript.open_calls.is_empty() {
                    self.ports.waits.budget_reached().await?
                } else {
                    None
                },
                compact: self.wants_compaction(&transcript),
            };
            let interrupt = match next(&transcript, &state, &call_states) {
                Next::Abort => Some(Interrupt::Cancel),
                Next::HandOver => Some(Interrupt::HandOver),
                Next::Fail(why) => return self.fail(Vec::new(), why).await,
                Next::Reject(calls) => {
                    let calls: Vec<ToolCall> = calls.into_iter().cloned().collect();
                    self.reject(&calls).await?;
                    None
                }
                Next::CommitKnownResults(known) => {
                    let results: Vec<NewEvent> =
                        known.iter().map(|(call, output)| events::tool_result(call, output)).collect();
                    for result in results {
                        self.ports.session.commit(vec![result]).await?;
                    }
                    None
                }
                Next::Open(calls) => {
                    for call in calls {
                        self.ports.waits.open(call).await?;
                    }
                    None
                }
                Next::RunTools(calls) => {
                    let calls: Vec<ToolCall> = calls.into_iter().map(to_run).collect();
                    self.run_tools(&calls).await?
                }
                Next::Park(reason, until) => {
                    if self.ports.waits.park(reason, until).await? {
                        return Ok(Ended::Parked);
                    }
                    None
                }
                Next::Compact => match self.compact().await? {
                    CompactionStep::Ended(ended) => return Ok(ended),
                    CompactionStep::GoOn => None,
                    CompactionStep::Interrupted(interrupt) => Some(interrupt),
                },
                Next::Generate => {
                    let prepared = self.prepare(&transcript);
                    match self.generate(prepared).await? {
                        Generated::Ended(ended) => return Ok(ended),
                        Generated::GoOn => None,
                        Generated::Interrupted(Interrupt::Cancel, partial_answer) => {
                            return self.abort(partial_answer).await;
                        }
                        Generated::Interrupted(interrupt, _) => Some(interrupt),
                    }
                }
                Next::Finish => match self.conclude(None, &[]).await? {
                    Concluded::Ended(ended) => return Ok(ended),
                    Concluded::GoesOn => None,
                    Concluded::Refused(refusal) => return Err(SessionPortError::Refused(refusal)),
                },
            };
            match interrupt {
                None => {}
                // No request was under way, so the aborted message presents nothing.
                Some(Interrupt::Cancel) => {
                    let generation_id = (self.ports.new_id)();
                    return self.abort(PartialAnswer { generation_id, ..PartialAnswer::default() }).await;
                }
                Some(Interrupt::HandOver) => {
                    self.ports.session.release().await?;
                    return Ok(Ended::HandedOver);
                }
            }
        }
    }

    /// The states of the open calls, in their order. For cut calls they are not needed: those get an error result (S4a).
    async fn call_states(&self, transcript: &Transcript<'_>) -> Result<Vec<CallState>, SessionPortError> {
        if transcript.open_calls.is_empty() || transcript.open_calls.iter().any(|open| open.cut) {
            return Ok(Vec::new());
        }
        let calls: Vec<ToolCall> = transcript.open_calls.iter().map(|open| open.call.clone()).collect();
        self.ports.waits.call_states(&calls).await
    }

    fn wants_compaction(&self, transcript: &Transcript<'_>) -> bool {
        match self.compaction {
            Compaction::WhenFull => self.run.window.is_full(context_tokens(transcript)),
            Compaction::Wanted | Compaction::Overflowed => true,
            Compaction::Done => false,
        }
    }

    /// Reads what was committed since, guides included (D3).
    async fn refresh(&mut self) -> Result<(), SessionPortError> {
        for event in self.ports.session.events_after(self.history.seq()).await? {
            self.history.push(event).map_err(SessionPortError::Refused)?;
        }
        Ok(())
    }

    /// S4a: the arguments may be cut, so the calls are not run.
    async fn reject(&mut self, calls: &[ToolCall]) -> Result<(), SessionPortError> {
        let output =
            ToolOutput::error("not run: the message stopped at the token limit, the arguments may be cut");
        for call in calls {
            self.ports.session.commit(vec![events::tool_result(call, &output)]).await?;
        }
        Ok(())
    }

    /// Settles a success with the last answer, if there is one, unless a guide came first (D3). An input that is committed
    /// meanwhile is not missed: the settle is conditional on the last seq that was read (S4).
    async fn conclude(
        &mut self,
        answer: Option<NewEvent>,
        presented: &[Seq],
    ) -> Result<Concluded, SessionPortError> {
        let mut with_summary = true;
        loop {
            self.refresh().await?;
            // A guide that this attempt can no longer answer counts as newer input, and starts the next run.
            let may_go_on = self.tally.turns < self.run.max_turns;
            if may_go_on && self.history.guide_waits(self.run.watermark, presented) {
                return match answer {
                    None => Ok(Concluded::GoesOn),
                    Some(answer) => match self.ports.session.commit(vec![answer]).await {
                        Ok(()) => Ok(Concluded::GoesOn),
                        Err(SessionPortError::Refused(refusal)) => Ok(Concluded::Refused(refusal)),
                        Err(error) => Err(error),
                    },
                };
            }
            let mut last: Vec<NewEvent> = answer.iter().cloned().collect();
            if with_summary {
                last.push(events::run_finished(self.run, &self.ports, &self.tally, Status::Done, None));
            }
            match self.settle(Outcome::Succeeded, last, Some(self.history.seq())).await {
                Ok(SettleResult::Settled(status)) => return Ok(Concluded::Ended(Ended::Settled(status))),
                Ok(SettleResult::Moved) => {}
                Err(SessionPortError::Refused(refusal)) if with_summary => {
                    without_last_words(&refusal); // S2
                    with_summary = false;
                }
                Err(SessionPortError::Refused(refusal)) => return Ok(Concluded::Refused(refusal)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Settles a failure with its last events.
    async fn fail(&mut self, mut last: Vec<NewEvent>, why: &str) -> Result<Ended, SessionPortError> {
        last.push(events::run_finished(self.run, &self.ports, &self.tally, Status::Failed, Some(why)));
        self.settle_or_bare(Outcome::Failed { backoff_ms: self.run.backoff_ms }, last).await
    }

    /// A client asked to stop: open calls get an error result, the text so far is kept as an aborted message (A2), and the run
    /// settles as cancelled, all in one write.
    async fn abort(&mut self, partial_answer: PartialAnswer) -> Result<Ended, SessionPortError> {
        self.refresh().await?;
        let transcript = self.history.transcript(self.run.watermark);
        let open: Vec<ToolCall> = transcript.open_calls.iter().map(|open| open.call.clone()).collect();
        if !open.is_empty() {
            self.ports.waits.abandon(&open).await?; // H4
        }
        let output = ToolOutput::error("not finished: the run was cancelled");
        let mut last: Vec<NewEvent> =
            transcript.open_calls.iter().map(|open| events::tool_result(open.call, &output)).collect();
        // The message and the summary need two places in the last commit.
        let room = keel_kernel::caps::EVENTS_PER_COMMIT - 2;
        if last.len() > room {
            let first: Vec<NewEvent> = last.drain(..last.len() - room).collect();
            for result in first {
                self.ports.session.commit(vec![result]).await?;
            }
        }
        self.tally.stop = Some(StopReason::Aborted);
        last.push(events::aborted(self.run, &self.ports, &partial_answer));
        last.push(events::run_finished(self.run, &self.ports, &self.tally, Status::Cancelled, None));
        self.settle_or_bare(Outcome::Cancelled, last).await
    }

    /// S2: if the attempt's last events are refused, it settles without them, with the same outcome.
    async fn settle_or_bare(
        &mut self,
        outcome: Outcome,
        last: Vec<NewEvent>,
    ) -> Result<Ended, SessionPortError> {
        let settled = match self.settle(outcome, last, None).await {
            Err(SessionPortError::Refused(refusal)) => {
                without_last_words(&refusal);
                self.settle(outcome, Vec::new(), None).await?
            }
            settled => settled?,
        };
        match settled {
            SettleResult::Settled(status) => Ok(Ended::Settled(status)),
            SettleResult::Moved => unreachable!("only a settle with a condition on the seq can fail by it"),
        }
    }

    async fn settle(
        &self,
        outcome: Outcome,
        events: Vec<NewEvent>,
        only_at: Option<Seq>,
    ) -> Result<SettleResult, SessionPortError> {
        self.ports.session.settle(outcome, events, only_at).await
    }
}

/// A call with the arguments that it is to be run with (H3).
fn to_run(run: ToRun<'_>) -> ToolCall {
    let call = run.call.clone();
    match run.edited {
        Some(arguments) => ToolCall { arguments, ..call },
        None => call,
    }
}

/// How a try to end the attempt went.
enum Concluded {
    Ended(Ended),
    /// A guide came first.
    GoesOn,
    /// The ledger refused the answer.
    Refused(Refusal),
}

fn without_last_words(refusal: &Refusal) {
    tracing::warn!(
        error = refusal as &dyn std::error::Error,
        "an attempt's last events were refused; it settles without them"
    );
}

/// Waits until a signal interrupts what is being done; an error where the lease is lost.
async fn interrupted(signals: &mut watch::Receiver<Signals>) -> Result<Interrupt, SessionPortError> {
    let urgent = |signals: &Signals| signals.lost || signals.cancel || signals.time == Time::Stop;
    match signals.wait_for(urgent).await.map(|signals| *signals) {
        Ok(Signals { lost: true, .. }) => Err(SessionPortError::Lost),
        Ok(Signals { cancel: true, .. }) => Ok(Interrupt::Cancel),
        Ok(_) => Ok(Interrupt::HandOver),
        Err(_) => std::future::pending().await, // no signal can come any more
    }
}
