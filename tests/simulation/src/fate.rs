//! The fate of a process while it works: it may be killed or frozen at any await.
//!
//! A future is at an await whenever a poll of it returns pending, so a number of polls names a place in it. A process
//! that is killed after n polls is dropped there. One that is frozen is not polled until it is thawed, while its timers
//! and the rest of the world go on.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;

/// The fate of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing happens to it.
    Lives,
    /// It is killed after so many polls.
    Killed { polls: u64 },
    /// It is frozen after so many polls, until it is thawed.
    Frozen { polls: u64 },
}

/// A process under its fate. Its output is `None` where it was killed.
pub(crate) struct Fated<F: Future> {
    inner: Pin<Box<F>>,
    fate: Fate,
    polls: u64,
    thaw: BoxFuture<'static, ()>,
    frozen: bool,
    met: bool,
}

impl<F: Future> Fated<F> {
    /// The process `inner` under its fate. Where it is frozen, `thaw` begins then, and its end thaws it.
    pub(crate) fn new(inner: F, fate: Fate, thaw: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { inner: Box::pin(inner), fate, polls: 0, thaw: Box::pin(thaw), frozen: false, met: false }
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End<T> {
    /// Its output; `None` where it was killed.
    pub(crate) output: Option<T>,
    /// Whether it was killed or frozen before it was done.
    pub(crate) met: bool,
}

impl<F: Future> Future for Fated<F> {
    type Output = End<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.polls += u64::from(!self.frozen);
        match self.fate {
            Fate::Killed { polls } if self.polls > polls => {
                return Poll::Ready(End { output: None, met: true });
            }
            Fate::Frozen { polls } if self.polls > polls && !self.met => {
                (self.met, self.frozen) = (true, true);
            }
            Fate::Lives | Fate::Killed { .. } | Fate::Frozen { .. } => {}
        }
        if self.frozen {
            match self.thaw.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => self.frozen = false,
            }
        }
        let met = self.met;
        self.inner.as_mut().poll(context).map(|output| End { output: Some(output), met })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    async fn work() -> u64 {
        for _ in 0..3 {
            sleep(Duration::from_millis(10)).await;
        }
        7
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_is_killed_or_frozen_at_the_await_its_fate_names() {
        let begun = Instant::now();
        assert_eq!(Fated::new(work(), Fate::Lives, async {}).await, End { output: Some(7), met: false });
        assert_eq!(begun.elapsed().as_millis(), 30);
        let killed = Fated::new(work(), Fate::Killed { polls: 2 }, async {}).await;
        assert_eq!(killed, End { output: None, met: true });
        assert_eq!(begun.elapsed().as_millis(), 50);
        let frozen = Fated::new(work(), Fate::Frozen { polls: 1 }, sleep(Duration::from_millis(510))).await;
        assert_eq!(frozen, End { output: Some(7), met: true });
        assert_eq!(begun.elapsed().as_millis(), 50 + 10 + 500 + 20, "it froze at its second poll");
    }
}
