//! The watcher beside a running attempt: it keeps the lease and the queue message, notices a cancel within a second, and
//! signals to the loop when the invocation's time runs out (S5).

use std::convert::Infallible;
use std::time::Duration;

use keel_agent::{Signals, Time};
use keel_kernel::{Head, LeaseToken, Millis, Refusal};
use keel_ledger::{LedgerError, SessionKey};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::{Message, Worker, WorkerConfig};

pub(crate) struct Watcher<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) at: &'a SessionKey,
    pub(crate) token: &'a LeaseToken,
    pub(crate) deadline: Option<Instant>,
    pub(crate) message: &'a dyn Message,
    pub(crate) signals: watch::Sender<Signals>,
}

impl Watcher<'_> {
    /// Watches until it is dropped.
    pub(crate) async fn watch(&self, claimed: Head) -> Infallible {
        let env = self.worker.ledger.env();
        let (low, high) = self.worker.config.look_ms;
        let mut head = claimed;
        let mut kept = env.now();
        let mut drain = self.worker.drain.clone();
        loop {
            let draining = *drain.borrow();
            let time = if draining { Time::Stop } else { time_left(&self.worker.config, self.deadline) };
            self.signal(|signals| signals.time = time);
            let look = Duration::from_millis(env.pick(low..=high));
            let look = tokio::time::sleep(look.min(until_next_deadline(&self.worker.config, self.deadline)));
            tokio::select! {
                biased;
                () = look => {}
                Ok(_) = drain.wait_for(|drain| *drain), if !draining => continue,
            }
            match self.worker.ledger.head_eventual(self.at).await {
                Ok(Some(seen)) => head = seen,
                Ok(None) => self.signal(|signals| signals.lost = true),
                // A look that failed is no reason to stop: the next one may succeed, and the epoch keeps the ledger safe.
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the watcher could not read the head; it looks again"
                    )
                }
            }
            // An eventual read may be older than the claim. Only a newer epoch is another owner's.
            let lost = head.closed || head.epoch > self.token.epoch;
            let cancel = head.epoch == self.token.epoch && head.run.cancel.is_some();
            self.signal(|signals| {
                signals.lost |= lost;
                signals.cancel |= cancel;
            });
            let third = self.worker.ledger.lease_ms() / 3;
            if is_due(&head, self.token, env.now(), third) {
                self.renew(head.clone()).await;
            }
            if env.now().since(kept) >= third {
                self.message.keep().await;
                kept = env.now();
            }
        }
    }

    async fn renew(&self, head: Head) {
        match self.worker.ledger.renew(self.at, Some(head), self.token).await {
            Ok(_) => {}
            Err(LedgerError::Refused(Refusal::Fenced { .. } | Refusal::SessionClosed)) => {
                self.signal(|signals| signals.lost = true);
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a lease was not renewed; it is tried again"
            ),
        }
    }

    fn signal(&self, change: impl FnOnce(&mut Signals)) {
        self.signals.send_if_modified(|signals| {
            let before = *signals;
            change(signals);
            *signals != before
        });
    }
}

/// Whether the lease must be renewed: a third of it has passed. A commit extends it too, so a busy run rarely needs this.
fn is_due(head: &Head, token: &LeaseToken, now: Millis, third: u64) -> bool {
    let until = head.lease.as_ref().map_or(Millis(0), |lease| lease.until);
    head.epoch == token.epoch && until.since(now) < 2 * third
}

/// The time until the next of the two deadlines, `no_new_request` and `stop` (S5).
fn until_next_deadline(config: &WorkerConfig, deadline: Option<Instant>) -> Duration {
    let Some(deadline) = deadline else { return Duration::MAX };
    let left = deadline.saturating_duration_since(Instant::now());
    let deadlines = [config.no_new_request, config.stop].into_iter().filter(|limit| *limit < left);
    deadlines.map(|limit| left - limit).min().unwrap_or(Duration::MAX)
}

fn time_left(config: &WorkerConfig, deadline: Option<Instant>) -> Time {
    let Some(deadline) = deadline else { return Time::Plenty };
    let left = deadline.saturating_duration_since(Instant::now());
    if left <= config.stop {
        Time::Stop
    } else if left <= config.no_new_request {
        Time::NoNewRequest
    } else {
        Time::Plenty
    }
}
