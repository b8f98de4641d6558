//! What DynamoDB charged: the capacity units of every call are logged and summed. Tests and benchmarks read the sum.

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
    /// Counts a read; `None`: its units are not known.
    pub fn read(&self, operation: &'static str, units: Option<f64>) {
        self.add(operation, Units { read: units.unwrap_or(0.0), write: 0.0, calls: 1 });
    }

    /// Counts a write; `None`: its units are not known.
    pub fn wrote(&self, operation: &'static str, units: Option<f64>) {
        self.add(operation, Units { write: units.unwrap_or(0.0), read: 0.0, calls: 1 });
    }

    fn add(&self, operation: &'static str, units: Units) {
        tracing::debug!(operation, wru = units.write, rru = units.read, "a call to DynamoDB ended");
        let mut sum = self.0.lock();
        sum.write += units.write;
        sum.read += units.read;
        sum.calls += units.calls;
    }

    /// The sum since the last call of this, which sets it to zero.
    pub fn take(&self) -> Units {
        std::mem::take(&mut *self.0.lock())
    }
}
