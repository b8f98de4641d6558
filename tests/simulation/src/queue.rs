//! The queue of hints: it loses some, and delivers others twice or late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use keel_ledger::hints::{Hint, HintError, Hints, LocalHints};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::history::History;
use crate::rng::{Rng, Shared};

/// The queue that all processes share.
#[derive(Debug)]
pub(crate) struct Queue {
    inner: LocalHints,
    chance: Shared,
    calm: Arc<AtomicBool>,
    history: Arc<History>,
}

impl Queue {
    /// The queue, and the receiver of its hints.
    pub(crate) fn new(
        calm: Arc<AtomicBool>,
        history: Arc<History>,
        rng: Rng,
    ) -> (Self, UnboundedReceiver<Hint>) {
        let (inner, out) = LocalHints::channel();
        (Self { inner, chance: Shared::new(rng), calm, history }, out)
    }
}

#[async_trait]
impl Hints for Queue {
    async fn send(&self, hint: &Hint, after_ms: u64) -> Result<(), HintError> {
        if self.calm.load(Ordering::Relaxed) {
            return self.inner.send(hint, after_ms).await;
        }
        let (what, late) = self.chance.draw(|rng| (rng.pick(0..=99), rng.pick(100..=40_000)));
        tokio::time::sleep(Duration::from_millis(late % 7)).await;
        match what {
            0..12 => self.history.count("a hint was lost"),
            12..24 => {
                self.history.count("a hint came twice");
                self.inner.send(hint, after_ms).await?;
                self.inner.send(hint, after_ms + late).await?;
            }
            24..44 => {
                self.history.count("a hint came late");
                self.inner.send(hint, after_ms + late).await?;
            }
            _ => self.inner.send(hint, after_ms).await?,
        }
        Ok(())
    }
}
