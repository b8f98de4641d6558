//! What a rule decides, as data: a [`Transition`] says what to write and under which [`Guard`]s.
//!
//! It is written whole or not at all. Where a guard no longer holds, nothing is written, and the rule is asked again about
//! the newer head. Rows beside the head (a description, a decision) are part of the same write.

use crate::decision::Decision;
use crate::event::{Event, KeyName};
use crate::head::{Head, Run};
use crate::ids::{CommitId, DedupeKey, Epoch, Millis, OwnerId, Seq};
use crate::session::SessionDescription;

/// A dedupe key that a commit takes (I2), held by the event with `seq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyClaim {
    /// The key's name.
    pub name: KeyName,
    /// The key.
    pub key: DedupeKey,
    /// The event that holds it.
    pub seq: Seq,
    /// SHA-256 of the canonical payload as it was sent (I4, I5), in hex.
    pub digest: String,
}

/// A dedupe key that is taken: which event holds it, and what it said (I3, I5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// The key's name.
    pub name: KeyName,
    /// The key.
    pub key: DedupeKey,
    /// The event that holds it.
    pub seq: Seq,
    /// SHA-256 of the canonical payload as it was sent, in hex.
    pub digest: String,
    /// The commit that took it.
    pub commit: CommitId,
}

/// A part of the head that a transition relies on. It is checked in the write that carries the transition out.
#[derive(Clone, Debug, PartialEq)]
pub enum Guard {
    /// The last seq is this one (L2, S4).
    Seq(Seq),
    /// The session is open (C6).
    Open,
    /// This owner holds the lease, in this epoch (C2, S3).
    Lease(OwnerId, Epoch),
    /// The newest epoch is this one.
    Epoch(Epoch),
    /// The lease ends at this moment; `None`: there is none.
    LeaseUntil(Option<Millis>),
    /// The run row is exactly this one (D4).
    Run(Run),
}

impl Guard {
    /// Whether it holds of a head. The condition that a store makes of it must mean the same.
    pub fn holds(&self, head: &Head) -> bool {
        match self {
            Guard::Seq(seq) => head.ledger.seq == *seq,
            Guard::Open => !head.closed,
            Guard::Lease(owner, epoch) => {
                head.epoch == *epoch && head.lease.as_ref().is_some_and(|lease| lease.owner == *owner)
            }
            Guard::Epoch(epoch) => head.epoch == *epoch,
            Guard::LeaseUntil(until) => head.lease.as_ref().map(|lease| lease.until) == *until,
            Guard::Run(run) => head.run == *run,
        }
    }
}

/// Why a transition was not written, as far as the store told. Not every obstacle need be named.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Obstacles {
    /// The head as it is, where a guard does not hold of it.
    pub head: Option<Head>,
    /// Keys that are taken.
    pub keys: Vec<KeyRow>,
    /// A call id that an earlier result holds (V2).
    pub call: Option<DedupeKey>,
    /// A row beside the head is not as the transition needs it.
    pub row: bool,
}

/// The hint to send to the queue once a transition is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendHint {
    /// Milliseconds to hold the hint back.
    pub after_ms: u64,
}

/// A row beside the head that a transition writes in the same transaction, under a condition of its own.
#[derive(Clone, Debug, PartialEq)]
pub enum SideRow {
    /// A new session's description, its entry in its tenant's list and, of a child, in its parent's (H4). Written only
    /// where no session has the id.
    NewSession(SessionDescription),
    /// A changed description. Written only where the row has the revision before this one's.
    Description(SessionDescription),
    /// H2: an opened decision, and its entry in the tenant's list of open ones. Written only where it was never opened.
    OpenDecision(Decision),
    /// H2: an answered decision, which leaves the tenant's list. Written only where nobody has answered it.
    AnswerDecision(Decision),
    /// H2: removes a decision that nobody will answer from the tenant's list. Its own row stays. Doing it again changes
    /// nothing.
    WithdrawDecision(Decision),
}

/// What to write, and under which guards.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// The head afterwards. Where it equals the head before and there is no guard, the head is left alone.
    pub head: Head,
    /// What must still hold of the head before.
    pub guards: Vec<Guard>,
    /// The events to append.
    pub events: Vec<Event>,
    /// The keys to take, each absent until now.
    pub keys: Vec<KeyClaim>,
    /// V2: the call ids of this commit's messages. No earlier tool result may have one of them as its key.
    pub new_calls: Vec<DedupeKey>,
    /// The rows beside the head.
    pub rows: Vec<SideRow>,
    /// The hint to send.
    pub hint: Option<SendHint>,
}

impl Transition {
    /// A transition that changes the head alone.
    pub(crate) fn of_head(head: Head, guards: Vec<Guard>) -> Transition {
        Transition {
            head,
            guards,
            events: Vec::new(),
            keys: Vec::new(),
            new_calls: Vec::new(),
            rows: Vec::new(),
            hint: None,
        }
    }

    /// A transition that writes rows beside a head which stays as it is.
    pub(crate) fn of_rows(head: &Head, guards: Vec<Guard>, rows: Vec<SideRow>) -> Transition {
        Transition { rows, ..Transition::of_head(head.clone(), guards) }
    }

    /// Whether carrying it out writes or checks the head at all. `before` is the head that it was decided on.
    pub fn touches_head(&self, before: &Head) -> bool {
        !self.guards.is_empty() || self.head != *before
    }
}
