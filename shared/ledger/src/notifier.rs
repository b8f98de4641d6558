//! Notifies the readers of a session of its commits (R6). It works within one process. Readers elsewhere are not
//! notified: they poll, and so does every reader that misses a notification.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::port::SessionKey;

type Senders = Mutex<HashMap<SessionKey, watch::Sender<()>>>;

/// Notifies readers when a commit is made in this process.
#[derive(Clone, Debug, Default)]
pub struct CommitNotifier(Option<Arc<Senders>>);

impl CommitNotifier {
    /// One that notifies nobody: readers poll.
    pub fn none() -> Self {
        Self(None)
    }

    /// One that notifies the readers in this process of this process's commits.
    pub fn in_process() -> Self {
        Self(Some(Arc::default()))
    }

    /// Notifies a session's readers that there is something to read.
    pub fn notify(&self, at: &SessionKey) {
        let Some(senders) = &self.0 else { return };
        let mut senders = senders.lock();
        if let Some(sender) = senders.get(at)
            && sender.send(()).is_err()
        {
            senders.remove(at); // its last reader is gone
        }
    }

    /// Subscribes to a session's commits from now on.
    pub fn subscribe(&self, at: &SessionKey) -> CommitSubscription {
        CommitSubscription(self.0.as_ref().map(|senders| {
            let mut senders = senders.lock();
            senders.retain(|_, sender| sender.receiver_count() > 0);
            senders.entry(at.clone()).or_insert_with(|| watch::channel(()).0).subscribe()
        }))
    }
}

/// One reader's subscription to a session's commits.
#[derive(Debug)]
pub struct CommitSubscription(Option<watch::Receiver<()>>);

impl CommitSubscription {
    /// Waits for a commit, at most this long. A commit since the last wait ends it at once.
    pub async fn wait(&mut self, at_most: Duration) {
        match &mut self.0 {
            None => tokio::time::sleep(at_most).await,
            Some(receiver) => match tokio::time::timeout(at_most, receiver.changed()).await {
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(_)) => tokio::time::sleep(at_most).await, // the notifier is gone
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use keel_kernel::{SessionId, TenantId};

    use super::*;

    fn key(session: &str) -> SessionKey {
        SessionKey { tenant: TenantId::parse("t").unwrap(), session: SessionId::parse(session).unwrap() }
    }

    #[tokio::test(start_paused = true)]
    async fn r6_a_commit_wakes_its_own_session_alone() {
        let notifier = CommitNotifier::in_process();
        let (mut a, mut b) = (notifier.subscribe(&key("a")), notifier.subscribe(&key("b")));
        notifier.notify(&key("a"));
        let start = tokio::time::Instant::now();
        a.wait(Duration::from_secs(9)).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "it was told between two waits");
        b.wait(Duration::from_secs(9)).await;
        assert_eq!(start.elapsed(), Duration::from_secs(9));
    }
}
