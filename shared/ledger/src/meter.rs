//! What the store charged: every call's capacity units go to tracing and to a counter that tests and benchmarks read.

use parking_lot::Mutex;

/// Units and calls, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Units {
    /// Write request units.
    pub write: f64,
    /// Read request units.
    pub read: f64,
    /// Round trips.
    pub calls: u64,
}

/// A running sum of [`Units`].
#[derive(Debug, Default)]
pub struct Meter(Mutex<Units>);

impl Meter {
    /// Counts a read.
    pub fn read(&self, operation: &'static str, units: Option<f64>) {
        self.add(operation, Units { read: units.unwrap_or(0.0), write: 0.0, calls: 1 });
    }

    /// Counts a write.
    pub fn wrote(&self, operation: &'static str, units: Option<f64>) {
        self.add(operation, Units { write: units.unwrap_or(0.0), read: 0.0, calls: 1 });
    }

    fn add(&self, operation: &'static str, units: Units) {
        tracing::debug!(operation, wru = units.write, rru = units.read, "the store was called");
        let mut sum = self.0.lock();
        sum.write += units.write;
        sum.read += units.read;
        sum.calls += units.calls;
    }

    /// The sum so far, which starts again at zero.
    pub fn take(&self) -> Units {
        std::mem::take(&mut *self.0.lock())
    }
}
