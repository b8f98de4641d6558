//! How long a stream that is not notified pauses before it looks again (R6). It is pure: the caller measures the time and
//! draws the random number.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::StreamConfig;

/// While a run is live, the pause is this part of the time since something came: an eighth. So a run that is silent for
/// long is not looked at ten times a second.
const SHARE: u64 = 8;

/// The pauses of one stream.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    config: StreamConfig,
    last_ms: u64,
}

impl Pace {
    /// The pace of a stream that begins.
    pub fn new(config: StreamConfig) -> Self {
        Self { config, last_ms: config.look_live_ms.0 }
    }

    /// The last look found something.
    pub fn news(&mut self) {
        self.last_ms = self.config.look_live_ms.0;
    }

    /// The pause before the next look, in milliseconds, as a range to draw from. `silence` is the time since something was
    /// found.
    pub fn next(&mut self, live: bool, silence: Duration) -> RangeInclusive<u64> {
        let StreamConfig { look_live_ms: (low, high), look_silent_ms, look_idle_ms, .. } = self.config;
        self.last_ms = if live {
            let share = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX) / SHARE;
            share.clamp(low, look_silent_ms.max(low))
        } else {
            (self.last_ms.max(low) * 3 / 2).min(look_idle_ms)
        };
        let jitter = (high - low).max(self.last_ms / 4);
        self.last_ms.min(look_idle_ms)..=(self.last_ms + jitter).min(look_idle_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_a_live_run_is_asked_less_the_longer_it_is_silent_and_at_once_when_it_speaks() {
        let mut pace = Pace::new(StreamConfig::default());
        let mut next = |ms| pace.next(true, Duration::from_millis(ms));
        assert_eq!([next(0), next(400), next(4_000)], [50..=100, 50..=100, 500..=625]);
        assert_eq!([next(60_000), next(u64::MAX), next(10)], [1_000..=1_250, 1_000..=1_250, 50..=100]);
    }

    #[test]
    fn r6_with_nothing_live_the_pauses_grow_to_the_longest_and_begin_anew() {
        let mut pace = Pace::new(StreamConfig::default());
        let pauses: Vec<_> = (0..12).map(|_| pace.next(false, Duration::ZERO)).collect();
        assert_eq!((&pauses[0], &pauses[11]), (&(75..=125), &(2_000..=2_000)));
        assert!(pauses.is_sorted_by_key(|pause| *pause.start()));
        pace.news();
        assert_eq!(pace.next(false, Duration::ZERO), 75..=125);
    }
}
