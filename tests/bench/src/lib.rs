//! What Keel costs. `make bench` measures all of it and writes `docs/performance.md`; the figures that cannot vary are
//! held by a test.

#![expect(clippy::missing_panics_doc, reason = "a measure that cannot be taken fails by panicking")]
#![expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "counts become ratios")]

pub mod counting;
pub mod exact;
pub mod growth;
pub mod instructions;
pub mod latency;
pub mod process;
pub mod readers;
pub mod replay;
pub mod startup;
pub mod stats;
pub mod table;
pub mod throughput;
pub mod world;
