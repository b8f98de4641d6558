//! H2: an answer to a decision, and the waking of the run that waits for it, in one write. H4: what ends with a session.

use keel_kernel::decision::{Decision, DecisionAnswer};
use keel_kernel::{Refusal, run};

use super::{Ledger, LedgerError};
use crate::dynamo::Dynamo;
use crate::port::{Consistency, SessionKey};

impl Ledger {
    /// C6, H4: closes a session. What works for it ends with it, and nobody is asked any more for what will not be done (H2).
    /// Closing again does what is left of that.
    pub async fn close_all(&self, rows: &Dynamo, at: &SessionKey) -> Result<(), LedgerError> {
        self.close(at).await?;
        for child in rows.children(at).await? {
            match self.cancel(&child).await {
                Ok(_) | Err(LedgerError::Refused(_)) => {} // closed
                Err(error) => return Err(error),
            }
        }
        for decision in rows.decisions(at).await? {
            if decision.given.is_none() {
                rows.unlist_decision(at, &decision).await?;
            }
        }
        Ok(())
    }

    /// Answers a decision about the arguments with this digest. False: the same was said before.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], or why the answer does not count.
    pub async fn answer_decision(
        &self,
        rows: &Dynamo,
        at: &SessionKey,
        id: &str,
        digest: &str,
        answer: DecisionAnswer,
    ) -> Result<(Decision, bool), LedgerError> {
        for attempt in 0..self.config.tries {
            let head = self.head(at).await?;
            head.check_open()?;
            let found =
                self.read(|| rows.decision(at, id, Consistency::Strong)).await?.ok_or(Refusal::NotFound)?;
            let Some(answered) = found.answered(digest, answer.clone())? else {
                // An earlier try's, whose answer was lost.
                let ours = attempt > 0 && found.given.as_ref() == Some(&answer);
                if ours {
                    self.notifier.notify(at);
                    self.hint(at, 0).await;
                }
                return Ok((found, ours));
            };
            let nudged = run::nudge(&head, self.env.now());
            match rows.write_answer(at, &head, nudged.as_ref(), &answered).await {
                Ok(true) => {
                    self.notifier.notify(at);
                    if let Some(hint) = nudged.and_then(|transition| transition.hint) {
                        self.hint(at, hint.after_ms).await;
                    }
                    return Ok((answered, true));
                }
                Ok(false) => {}
                // Whether it was written shows when it is looked at again.
                Err(error) if attempt + 1 == self.config.tries => return Err(error.into()),
                Err(error) => tracing::debug!(
                    tenant = %at.tenant, session = %at.session, error = &error as &dyn std::error::Error,
                    "an answer is sent again"
                ),
            }
            self.pause(attempt).await;
        }
        Err(LedgerError::Busy)
    }
}
