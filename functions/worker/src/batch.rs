//! A batch of the queue's messages, each a hint about one session. The ids of the messages that failed are returned; the
//! queue delivers these again, and no others.

use std::sync::Arc;

use async_trait::async_trait;
use keel_env::trace::Trace;
use keel_ledger::hints::Hint;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::{Message, Worker};

/// After how many seconds a message that is no hint comes again. It comes soon, since waiting does not help.
const UNREADABLE_AGAIN: u64 = 1;

/// A message as it was received.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Its id, by which a failure names it.
    pub id: String,
    /// Its receipt: the queue's name for this delivery.
    pub receipt: String,
    /// Its text.
    pub body: String,
}

/// The queue that messages come from.
#[async_trait]
pub trait MessageQueue: Send + Sync {
    /// Keeps a delivery invisible to others for `seconds` from now.
    async fn keep(&self, receipt: &str, seconds: u64);
}

/// A message that is being worked on.
struct InWork {
    queue: Arc<dyn MessageQueue>,
    receipt: String,
    seconds: u64,
}

#[async_trait]
impl Message for InWork {
    async fn keep(&self) {
        self.queue.keep(&self.receipt, self.seconds).await;
    }
}

/// Answers the run of each message's session, one after the other, until `deadline`. Returns the ids of the messages that
/// failed.
pub async fn answer_batch(
    worker: &Worker,
    queue: &Arc<dyn MessageQueue>,
    batch: Vec<Received>,
    deadline: Instant,
) -> Vec<String> {
    let mut failed = Vec::new();
    for Received { id, receipt, body } in batch {
        let Ok(hint) = serde_json::from_str::<Hint>(&body) else {
            tracing::error!(message = id, "a queue message is not a hint");
            queue.keep(&receipt, UNREADABLE_AGAIN).await;
            failed.push(id);
            continue;
        };
        let seconds = worker.ledger.lease_ms().div_ceil(1_000);
        let message = InWork { queue: queue.clone(), receipt, seconds };
        message.keep().await;
        if !answer_hint(worker, &hint, Some(deadline), &message).await {
            failed.push(id);
        }
    }
    failed
}

/// Answers the run of the session that a hint names, within the hint's trace and in a span of its own. False: the attempt
/// broke off, so the hint is to come again.
pub async fn answer_hint(
    worker: &Worker,
    hint: &Hint,
    deadline: Option<Instant>,
    message: &dyn Message,
) -> bool {
    let at = hint.session_key();
    let trace = Trace::continued(hint.traceparent.as_deref());
    // The span has the level of errors. A filter that dropped it would drop its fields from every line within.
    let span = tracing::error_span!("hint", trace = %trace.id(), tenant = %at.tenant, session = %at.session);
    let answer = async {
        match worker.answer_run(&at, deadline, message).await {
            Ok(_) => true,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "an attempt broke off");
                false
            }
        }
    };
    trace.within(answer.instrument(span)).await
}
