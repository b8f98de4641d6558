//! The port to the queue of hints. A hint says "look at this session". It may come late, twice or never, and is never the
//! truth: a wrong one costs a failed claim, and for a lost one the sweep sends another.

use std::sync::Arc;

use async_trait::async_trait;
use keel_kernel::{SessionId, TenantId};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::port::SessionKey;
use keel_env::trace::Trace;

/// A message on the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// The tenant that owns the session.
    pub tenant: TenantId,
    /// The session.
    pub session: SessionId,
    /// The W3C trace context of the request that caused it, if there was one. For logs alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

impl Hint {
    /// A hint about a session, with the current trace context.
    pub fn about(at: &SessionKey) -> Self {
        Self {
            tenant: at.tenant.clone(),
            session: at.session.clone(),
            traceparent: Trace::current().map(|trace| trace.to_string()),
        }
    }

    /// The session it is about.
    pub fn session_key(&self) -> SessionKey {
        SessionKey { tenant: self.tenant.clone(), session: self.session.clone() }
    }
}

/// A hint could not be sent. The sweep finds the session, so nothing is lost.
#[derive(Debug, thiserror::Error)]
#[error("the hint was not queued")]
pub struct HintError(#[source] Box<dyn std::error::Error + Send + Sync>);

/// Where hints go.
#[async_trait]
pub trait Hints: Send + Sync {
    /// Sends a hint, to be seen after `after_ms` milliseconds at the earliest.
    async fn send(&self, hint: &Hint, after_ms: u64) -> Result<(), HintError>;
}

/// SQS: a standard queue with the tenant as message group, so that one tenant's flood does not starve the others.
#[derive(Clone, Debug)]
pub struct SqsHints {
    client: aws_sdk_sqs::Client,
    queue_url: String,
}

impl SqsHints {
    /// Hints on the queue at this URL.
    pub fn new(client: aws_sdk_sqs::Client, queue_url: impl Into<String>) -> Self {
        Self { client, queue_url: queue_url.into() }
    }
}

impl SqsHints {
    /// Keeps a received message invisible to others for `seconds` from now. Where this fails, the message may come twice,
    /// which is harmless: the second finds the run claimed.
    pub async fn keep(&self, receipt: &str, seconds: u64) {
        let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
        let kept = self
            .client
            .change_message_visibility()
            .queue_url(&self.queue_url)
            .receipt_handle(receipt)
            .visibility_timeout(seconds)
            .send()
            .await;
        if let Err(error) = kept {
            let error = error.into_service_error();
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a queue message could not be kept invisible; it may be received twice"
            );
        }
    }
}

/// The longest that SQS holds a message back.
const SQS_DELAY_MAX_SECONDS: u64 = 900;

#[async_trait]
impl Hints for SqsHints {
    async fn send(&self, hint: &Hint, after_ms: u64) -> Result<(), HintError> {
        let seconds = after_ms.div_ceil(1_000).min(SQS_DELAY_MAX_SECONDS);
        let body = serde_json::to_string(hint).map_err(|e| HintError(Box::new(e)))?;
        self.client
            .send_message()
            .queue_url(&self.queue_url)
            .message_group_id(hint.tenant.as_str())
            .delay_seconds(i32::try_from(seconds).expect("at most 900"))
            .message_body(body)
            .send()
            .await
            .map_err(|e| HintError(Box::new(e.into_service_error())))?;
        Ok(())
    }
}

/// A channel in this process. A delayed hint waits in a task of its own.
#[derive(Clone, Debug)]
pub struct LocalHints(mpsc::UnboundedSender<Hint>);

impl LocalHints {
    /// The port, and the receiver of what is sent through it.
    pub fn channel() -> (Self, mpsc::UnboundedReceiver<Hint>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }
}

#[async_trait]
impl Hints for LocalHints {
    async fn send(&self, hint: &Hint, after_ms: u64) -> Result<(), HintError> {
        let (sender, hint) = (self.0.clone(), hint.clone());
        if after_ms == 0 {
            return sender.send(hint).map_err(|e| HintError(Box::new(e)));
        }
        tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(after_ms)).await;
            // Where this fails, the worker is gone with its process. The sweep at the next start finds the session.
            let _ = sender.send(hint);
        });
        Ok(())
    }
}

/// A port shared by the functions of one process.
pub type SharedHints = Arc<dyn Hints>;
