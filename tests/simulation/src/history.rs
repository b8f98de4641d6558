//! What happened: the writes that the store carried out, and what clients and readers were told. Its text is the same bytes
//! for the same seed. The checks read the records.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::fmt::Display;

use keel_kernel::decision::Verdict;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::founder::Founded;

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule's number.
    pub rule: &'static str,
    /// What was seen instead.
    pub what: String,
}

/// A write that the store carried out, in the order in which it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// A claim made this epoch.
    Claimed { epoch: u64 },
    /// An event was appended.
    Event { seq: u64, kind: String, epoch: Option<u64>, commit: String },
    /// The attempt of this epoch was settled.
    Settled { epoch: u64, to: String },
    /// The attempt of the newest epoch was handed over.
    HandedOver,
    /// H1: the attempt of the newest epoch parked its run.
    Parked,
    /// A running attempt was asked to stop when this was the last seq.
    CancelAsked { seq: u64 },
    /// The run failed because a client cancelled it. The cancel covers inputs up to this seq.
    Cancelled { up_to: u64 },
    /// The session was closed.
    Closed,
}

/// An input that a client was told is in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The session's partition key.
    pub at: String,
    /// Its request id.
    pub key: String,
    /// The seq in the answer.
    pub seq: u64,
    /// `created` in the answer.
    pub created: bool,
    /// The text that was sent.
    pub text: String,
}

/// An answer to a decision that a person was told is accepted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answered {
    /// The decision's id.
    pub id: String,
    /// Who gave it.
    pub by: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// What the checks read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    /// One line for each thing that happened.
    pub lines: String,
    /// Writes of each session.
    pub writes: BTreeMap<String, Vec<Write>>,
    /// What clients were told.
    pub acks: Vec<Ack>,
    /// What founders were told.
    pub founded: Vec<Founded>,
    /// H2: what people were told of their answers.
    pub answered: Vec<Answered>,
    /// H3: the arguments that the tool that needs consent was called with.
    pub paid: Vec<serde_json::Value>,
    /// How often each thing of interest happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// The rules that were found broken.
    pub violations: Vec<Violation>,
}

/// The history of one world.
#[derive(Debug)]
pub(crate) struct History {
    begun: Instant,
    records: Mutex<Records>,
    /// Notified of every write; clients react to it.
    pub(crate) written: Notify,
}

impl History {
    /// An empty history that begins now.
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), records: Mutex::default(), written: Notify::new() }
    }

    /// The records, to read or add to.
    pub(crate) fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock()
    }

    /// Writes a line.
    pub(crate) fn note(&self, line: impl Display) {
        let at = self.begun.elapsed().as_millis();
        self.records().lines.push_str(&format!("{at:>8} {line}\n"));
    }

    /// Counts a thing of interest.
    pub(crate) fn count(&self, what: &'static str) {
        *self.records().counts.entry(what).or_default() += 1;
    }

    /// Notes and counts.
    pub(crate) fn mark(&self, what: &'static str, detail: impl Display) {
        self.count(what);
        self.note(format_args!("{what}: {detail}"));
    }

    /// Notes that a rule did not hold.
    pub(crate) fn violated(&self, rule: &'static str, what: impl Into<String>) {
        let what = what.into();
        self.note(format_args!("VIOLATED {rule}: {what}"));
        self.records().violations.push(Violation { rule, what });
    }
}

impl Default for History {
    fn default() -> Self {
        Self::new()
    }
}
