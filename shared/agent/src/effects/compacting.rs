//! K: replaces the beginning of a context with a summary, written by the session's own model.

use serde_json::json;

use super::generate::PartialPublisher;
use super::{Attempt, Compaction, Ended, Interrupt, events};
use crate::compact::{self, Cut};
use crate::provider::{Message, ModelAnswer, Request, StopReason};
use crate::session_port::SessionPortError;

/// How often a summary is requested if the model refuses the text as too long; each time with half as much text.
const SUMMARY_TRIES: u32 = 3;

/// How a compaction ended.
pub(super) enum CompactionStep {
    /// The attempt is over.
    Ended(Ended),
    /// Decide again.
    GoOn,
    /// It was stopped.
    Interrupted(Interrupt),
}

impl Attempt<'_> {
    /// K1, K3: an input that comes meanwhile is in the ledger, unanswered, so it is kept.
    pub(super) async fn compact(&mut self) -> Result<CompactionStep, SessionPortError> {
        let why = std::mem::replace(&mut self.compaction, Compaction::Done);
        let keep = match why {
            // The last request was too long with what was kept.
            Compaction::Overflowed => self.run.window.keep / 2,
            Compaction::WhenFull | Compaction::Wanted | Compaction::Done => self.run.window.keep,
        };
        let transcript = self.history.transcript(self.run.watermark);
        // If nothing can be summarised with that much kept, keep less.
        let plan = |keep| compact::plan(&transcript, self.history.seq(), keep);
        let Some(cut) = [keep, keep / 2, keep / 4].into_iter().find_map(plan) else {
            return Ok(CompactionStep::GoOn); // it cannot be shorter; the model may accept it
        };
        let mut tries = 0;
        let answer = loop {
            let answer = match self.summarise(&cut, tries).await? {
                Ok(answer) => answer,
                Err(interrupt) => {
                    self.compaction = why;
                    return Ok(CompactionStep::Interrupted(interrupt));
                }
            };
            self.tally.usage.add(answer.usage);
            self.ports.waits.spend(answer.usage).await;
            tries += 1;
            if !answer.overflow || tries == SUMMARY_TRIES {
                break answer;
            }
        };
        let written = answer.text();
        if matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted) || written.is_empty() {
            let error = answer.error.as_deref().unwrap_or("the summary is empty");
            let why = format!("the context could not be summarised: {error}");
            return self.fail(Vec::new(), &why).await.map(CompactionStep::Ended);
        }
        let payload = json!({
            "summary": events::fit(&compact::summary(&written, &cut)),
            "firstKeptSeq": cut.first_kept,
            "tokensBefore": cut.tokens_before,
            "provider": self.ports.provider.name(),
            "model": self.ports.provider.model(self.run.model.as_deref()),
            "usage": answer.usage,
        });
        self.ports.session.commit(vec![events::compaction(&payload)]).await?;
        Ok(CompactionStep::GoOn)
    }

    async fn summarise(
        &self,
        cut: &Cut,
        tries: u32,
    ) -> Result<Result<ModelAnswer, Interrupt>, SessionPortError> {
        let text = compact::bounded(&cut.conversation, &self.run.window, tries);
        let request = Request {
            model: self.run.model.clone(),
            system: Some(compact::INSTRUCTIONS.to_owned()),
            messages: vec![Message::User(json!({ "text": text }))],
            tools: Vec::new(),
            attempt: self.run.attempt,
            generation_id: (self.ports.new_id)(),
        };
        self.read_deltas(request, &mut PartialPublisher::silent()).await
    }
}
