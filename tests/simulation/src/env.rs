//! A process's environment: virtual time on a clock that may be wrong, and ids and random numbers from the seed.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

use keel_env::Env;
use keel_kernel::Millis;
use tokio::time::Instant;

use crate::rng::{Rng, Shared};

/// When every world begins, in milliseconds since 1970.
const BEGIN_MS: u64 = 1_764_547_200_000;

/// One process's environment.
#[derive(Debug)]
pub(crate) struct SimEnv {
    begun: Instant,
    process: u64,
    skew_ms: i64,
    made: AtomicU64,
    chance: Shared,
}

impl SimEnv {
    /// The environment of the process with this number, whose clock is wrong by `skew_ms` milliseconds.
    pub(crate) fn new(begun: Instant, process: u64, skew_ms: i64, rng: Rng) -> Self {
        Self { begun, process, skew_ms, made: AtomicU64::new(0), chance: Shared::new(rng) }
    }
}

impl Env for SimEnv {
    fn now(&self) -> Millis {
        let elapsed = u64::try_from(self.begun.elapsed().as_millis()).expect("a short world");
        Millis((BEGIN_MS + elapsed).saturating_add_signed(self.skew_ms))
    }

    /// An id that no other process makes. Later ids of a process sort after its earlier ones, as with UUIDv7.
    fn unique(&self) -> String {
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        format!("{:012x}{:012x}{:08x}", self.now().0, made, self.process)
    }

    fn pick(&self, range: RangeInclusive<u64>) -> u64 {
        self.chance.draw(|rng| rng.pick(range))
    }
}
