//! Random numbers from one seed. Every part of a world draws from a stream of its own, forked by name, so that the draws of
//! one part do not change those of another.

use parking_lot::Mutex;
use std::ops::RangeInclusive;

/// SplitMix64: small, fast, and the same on every machine and in every version.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed.wrapping_add(GOLDEN)))
    }

    /// Another stream: the same name gives the same stream, however much was drawn from this one's other forks.
    #[must_use]
    pub(crate) fn fork(&self, name: &str) -> Rng {
        let named = name.bytes().fold(self.0, |hash, byte| mix(hash ^ u64::from(byte)).wrapping_add(GOLDEN));
        Rng(mix(named))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number of the range.
    pub(crate) fn pick(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = (*range.start(), *range.end());
        let size = (high - low).wrapping_add(1);
        if size == 0 { self.next() } else { low + self.next() % size } // the bias does not matter here
    }

    /// One of them.
    pub(crate) fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.pick(0..=of.len() as u64 - 1)).expect("an index")]
    }

    /// True in `per_mille` of a thousand draws.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.pick(0..=999) < per_mille
    }
}

/// A stream that the tasks of one part share.
#[derive(Debug)]
pub(crate) struct Shared(Mutex<Rng>);

impl Shared {
    /// Shares a stream.
    pub(crate) fn new(rng: Rng) -> Self {
        Self(Mutex::new(rng))
    }

    /// Draws.
    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.0.lock())
    }
}
