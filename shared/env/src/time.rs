//! Time and chance: arguments to the kernel, and the one thing a simulation must own.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keel_kernel::Millis;

/// Time and chance, so that a simulation may own them.
pub trait Env: Send + Sync {
    /// The time.
    fn now(&self) -> Millis;
    /// A new id, 32 hex digits, later ones sorting behind earlier ones.
    fn unique(&self) -> String;
    /// A number of the range, for jitter.
    fn pick(&self, range: RangeInclusive<u64>) -> u64;
}

/// The system's clock and randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEnv;

impl Env for SystemEnv {
    fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn unique(&self) -> String {
        uuid::Uuid::now_v7().simple().to_string()
    }

    fn pick(&self, range: RangeInclusive<u64>) -> u64 {
        rand::random_range(range)
    }
}
