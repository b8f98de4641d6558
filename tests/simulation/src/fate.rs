//! What becomes of a process while it works: killed or frozen at any await.
//!
//! A future is at an await whenever its poll returns pending, so the number of polls names the place: a process that is
//! killed after n polls is dropped where it then stands, and one that is frozen is not polled until it is thawed, while
//! its timers and the rest of the world go on.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

/// What becomes of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It lives.
    Lives,
    /// It is killed after so many polls.
    Killed { polls: u64 },
    /// It is frozen after so many polls, for so long.
    Frozen { polls: u64, millis: u64 },
}

/// A process under its fate. Its output is `None` where it was killed.
pub(crate) struct Fated<F: Future> {
    inner: Pin<Box<F>>,
    fate: Fate,
    polls: u64,
    thaw: Option<Pin<Box<Sleep>>>,
    met: bool,
}

impl<F: Future> Fated<F> {
    /// The process `inner` under its fate.
    pub(crate) fn new(inner: F, fate: Fate) -> Self {
        Self { inner: Box::pin(inner), fate, polls: 0, thaw: None, met: false }
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End<T> {
    /// What it gave; `None` where it was killed.
    pub(crate) output: Option<T>,
    /// Whether its fate met it before it was done.
    pub(crate) met: bool,
}

impl<F: Future> Future for Fated<F> {
    type Output = End<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(thaw) = &mut self.thaw {
            match thaw.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => self.thaw = None,
            }
        }
        self.polls += 1;
        match self.fate {
            Fate::Killed { polls } if self.polls > polls => {
                return Poll::Ready(End { output: None, met: true });
            }
            Fate::Frozen { polls, millis } if self.polls > polls && !self.met => {
                self.met = true;
                let mut thaw = Box::pin(tokio::time::sleep(Duration::from_millis(millis)));
                if thaw.as_mut().poll(context).is_pending() {
                    self.thaw = Some(thaw);
                    return Poll::Pending;
                }
            }
            Fate::Lives | Fate::Killed { .. } | Fate::Frozen { .. } => {}
        }
        let met = self.met;
        self.inner.as_mut().poll(context).map(|output| End { output: Some(output), met })
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(Fated::new(work(), Fate::Lives).await, End { output: Some(7), met: false });
        assert_eq!(begun.elapsed().as_millis(), 30);
        let killed = Fated::new(work(), Fate::Killed { polls: 2 }).await;
        assert_eq!(killed, End { output: None, met: true });
        assert_eq!(begun.elapsed().as_millis(), 50);
        let frozen = Fated::new(work(), Fate::Frozen { polls: 1, millis: 500 }).await;
        assert_eq!(frozen, End { output: Some(7), met: true });
        assert_eq!(begun.elapsed().as_millis(), 50 + 10 + 500 + 20, "it froze at its second poll");
    }
}
