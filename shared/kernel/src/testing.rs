//! A session in memory that takes transitions as every store must take them. Stores are compared with it, and tests of the
//! rules run on it.

use std::collections::{BTreeMap, BTreeSet};

use crate::decision::Decision;
use crate::event::{Event, KeyName};
use crate::head::{Head, Lease};
use crate::ids::{DedupeKey, Seq};
use crate::session::{Session, SessionDescription};
use crate::transition::{KeyRow, Obstacles, SideRow, Transition};

/// Everything that a session has.
#[derive(Clone, Debug, PartialEq)]
pub struct MemorySession {
    /// Its description.
    pub description: SessionDescription,
    /// Its head.
    pub head: Head,
    /// Its ledger, in order.
    pub events: Vec<Event>,
    /// The dedupe keys that are taken.
    pub keys: BTreeMap<(KeyName, DedupeKey), KeyRow>,
    /// Its decisions, by id.
    pub decisions: BTreeMap<String, Decision>,
    /// Those on the tenant's list of open ones.
    pub listed: BTreeSet<String>,
}

impl MemorySession {
    /// A session with nothing in its ledger.
    pub fn new(description: SessionDescription, head: Head) -> Self {
        Self {
            description,
            head,
            events: Vec::new(),
            keys: BTreeMap::new(),
            decisions: BTreeMap::new(),
            listed: BTreeSet::new(),
        }
    }

    /// Makes the session of a transition that creates one; `None` where the transition does not.
    pub fn created(transition: &Transition) -> Option<Self> {
        transition.rows.iter().find_map(|row| match row {
            SideRow::NewSession(description) => Some(Self::new(description.clone(), transition.head.clone())),
            SideRow::Description(_)
            | SideRow::OpenDecision(_)
            | SideRow::AnswerDecision(_)
            | SideRow::WithdrawDecision(_) => None,
        })
    }

    /// The description and the head.
    pub fn session(&self) -> Session {
        Session { description: self.description.clone(), head: self.head.clone() }
    }

    /// The last event's position, whatever the head says.
    fn last_seq(&self) -> Seq {
        self.events.last().map_or(Seq::ZERO, |event| event.seq)
    }

    /// Writes a transition that was decided on `before`: all of it or nothing. Of the head only what the transition changes
    /// is set; the rest stays as it is now.
    ///
    /// # Errors
    /// What stood in its way.
    #[expect(clippy::result_large_err, reason = "the twin of a store, for tests: it is on no hot path")]
    pub fn write(&mut self, before: &Head, transition: &Transition) -> Result<(), Obstacles> {
        let guards_hold = transition.guards.iter().all(|guard| guard.holds(&self.head));
        let taken = |name: KeyName, key: &DedupeKey| self.keys.get(&(name, key.clone())).cloned();
        let obstacles = Obstacles {
            head: (!guards_hold).then(|| self.head.clone()),
            keys: transition.keys.iter().filter_map(|claim| taken(claim.name, &claim.key)).collect(),
            call: transition
                .new_calls
                .iter()
                .find(|call| taken(KeyName::ToolCallId, call).is_some())
                .cloned(),
            row: !transition.rows.iter().all(|row| self.takes(row)),
        };
        // That another event is in an event's place says no more than the head does: it is no obstacle of its own.
        let event_there = transition.events.iter().any(|event| event.seq <= self.last_seq());
        if obstacles != Obstacles::default() || event_there {
            return Err(obstacles);
        }
        merge(&mut self.head, before, &transition.head);
        self.events.extend(transition.events.iter().cloned());
        for claim in &transition.keys {
            let row = KeyRow {
                name: claim.name,
                key: claim.key.clone(),
                seq: claim.seq,
                digest: claim.digest.clone(),
                commit: transition.events[0].commit.id.clone(),
            };
            self.keys.insert((claim.name, claim.key.clone()), row);
        }
        for row in &transition.rows {
            self.set(row);
        }
        Ok(())
    }

    /// Whether a row's condition holds.
    fn takes(&self, row: &SideRow) -> bool {
        match row {
            SideRow::NewSession(_) => false,
            SideRow::Description(after) => self.description.revision + 1 == after.revision,
            SideRow::OpenDecision(decision) => !self.decisions.contains_key(&decision.id),
            SideRow::AnswerDecision(decision) => {
                self.decisions.get(&decision.id).is_some_and(|known| known.given.is_none())
            }
            SideRow::WithdrawDecision(_) => true,
        }
    }

    fn set(&mut self, row: &SideRow) {
        match row {
            SideRow::NewSession(description) | SideRow::Description(description) => {
                self.description = description.clone();
            }
            SideRow::OpenDecision(decision) => {
                self.listed.insert(decision.id.clone());
                self.decisions.insert(decision.id.clone(), decision.clone());
            }
            SideRow::AnswerDecision(decision) => {
                self.listed.remove(&decision.id);
                self.decisions.insert(decision.id.clone(), decision.clone());
            }
            SideRow::WithdrawDecision(decision) => {
                self.listed.remove(&decision.id);
            }
        }
    }
}

/// Sets what the transition changed, from `before` to `after`, and leaves the rest as it is now.
fn merge(now: &mut Head, before: &Head, after: &Head) {
    fn take<T: PartialEq + Clone>(now: &mut T, before: &T, after: &T) {
        if before != after {
            *now = after.clone();
        }
    }
    take(&mut now.closed, &before.closed, &after.closed);
    take(&mut now.max_attempts, &before.max_attempts, &after.max_attempts);
    take(&mut now.ledger.seq, &before.ledger.seq, &after.ledger.seq);
    take(&mut now.ledger.unanswered, &before.ledger.unanswered, &after.ledger.unanswered);
    take(&mut now.ledger.open_calls, &before.ledger.open_calls, &after.ledger.open_calls);
    take(&mut now.ledger.owed_turn, &before.ledger.owed_turn, &after.ledger.owed_turn);
    take(&mut now.ledger.input_seqs_seen, &before.ledger.input_seqs_seen, &after.ledger.input_seqs_seen);
    take(&mut now.ledger.last_answer, &before.ledger.last_answer, &after.ledger.last_answer);
    take(&mut now.ledger.compacted, &before.ledger.compacted, &after.ledger.compacted);
    take(&mut now.ledger.spent, &before.ledger.spent, &after.ledger.spent);
    take(&mut now.budget, &before.budget, &after.budget);
    take(&mut now.tells_parent, &before.tells_parent, &after.tells_parent);
    take(&mut now.compact, &before.compact, &after.compact);
    take(&mut now.run, &before.run, &after.run);
    take(&mut now.epoch, &before.epoch, &after.epoch);
    take(&mut now.finished, &before.finished, &after.finished);
    take(&mut now.due, &before.due, &after.due);
    match (&mut now.lease, &before.lease, &after.lease) {
        (Some(now), Some(before), Some(after)) => {
            let Lease { owner, claim, until } = after;
            take(&mut now.owner, &before.owner, owner);
            take(&mut now.claim, &before.claim, claim);
            take(&mut now.until, &before.until, until);
        }
        (now, before, after) => take(now, before, after),
    }
}
