//! A compaction (K1): a summary that stands for everything before the first event that is kept.

use super::Payload;
use super::spent::Spent;
use crate::ids::Seq;
use crate::refusal::Refusal;

/// A checked `compaction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// The first event that is kept; those before it are summarised. `None`: the payload names none, and all are kept.
    pub first_kept: Option<Seq>,
    /// H5: what the request for the summary cost.
    pub spent: Spent,
}

impl Compaction {
    /// K1: `firstKeptSeq` a non-negative integer if present. Everything else is kept as it came.
    pub fn read(payload: &Payload) -> Result<Self, Refusal> {
        let first_kept = payload.counter("K1", "firstKeptSeq")?.filter(|seq| *seq > 0).map(Seq);
        Ok(Self { first_kept, spent: Spent::read(payload) })
    }
}
