//! What a commit does to a session, decided in one place (C, I1, V, D4).
//!
//! [`decide`] is given the head as it was last seen. Its [`Transition`] says what to write and under which [`Guard`]s, so a
//! head that is out of date makes the write fail and never makes it wrong.

use std::collections::BTreeSet;

use crate::caps;
use crate::event::{AssistantMessage, Class, CommitPlace, Delivery, Event, Facts, KeyName, Kind, Payload};
use crate::head::{Head, LeaseToken, RunStatus, StateOwner};
use crate::ids::{CommitId, DedupeKey, Millis};
use crate::refusal::{Refusal, Rule};
use crate::transition::{Guard, KeyClaim, SendHint, Transition};

/// One event to commit.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// What it is.
    pub kind: Kind,
    /// What it says.
    pub payload: Payload,
    /// I1: its dedupe key, if it has one.
    pub key: Option<(KeyName, DedupeKey)>,
}

impl NewEvent {
    /// The payload as it is appended, before D4 changes it, and the digest that a retry is compared with. An input's
    /// payload has its key in it. The digest is of what was sent, so a guide that was degraded to `queue` still matches
    /// its retry (I5).
    ///
    /// # Errors
    /// [`Refusal::TooLarge`], where the key makes the payload too large.
    pub fn sent(&self) -> Result<(Payload, String), Refusal> {
        let payload = match (&self.key, self.kind) {
            (Some((name, key)), Kind::UserMessage) => {
                self.payload.with_member(name.as_str(), &key.as_str().into())?
            }
            (Some(_) | None, _) => self.payload.clone(),
        };
        let digest = payload.digest();
        Ok((payload, digest))
    }
}

/// Events to commit together: all or nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Commit<'a> {
    /// The commit's id: new for each commit, the same when it is sent again (I6).
    pub id: &'a CommitId,
    /// C1: required for owner kinds, an error with any other.
    pub lease: Option<&'a LeaseToken>,
    /// How long an owner's commit extends its lease, in milliseconds.
    pub lease_ms: u64,
    /// At least one, all of one class.
    pub events: &'a [NewEvent],
}

/// An event that passed every check that needs no head: its class, key and payload.
struct Checked<'a> {
    event: &'a NewEvent,
    facts: Facts,
}

/// C1, I1, V: everything about a commit that does not depend on the session.
fn check<'a>(commit: &Commit<'a>) -> Result<Vec<Checked<'a>>, Refusal> {
    if commit.events.is_empty() {
        return Err(Refusal::invalid("V6", "/events", "must hold at least one event"));
    }
    if commit.events.len() > caps::EVENTS_PER_COMMIT {
        return Err(Refusal::LimitReached { what: "events in one commit", limit: caps::EVENTS_PER_COMMIT });
    }
    let bytes = commit.events.iter().map(|event| event.payload.text().len()).sum();
    if bytes > caps::COMMIT_BYTES {
        return Err(Refusal::TooLarge { what: "the commit", bytes, limit: caps::COMMIT_BYTES });
    }
    let first = commit.events[0].kind.class();
    let mut keys = BTreeSet::new();
    let mut checked = Vec::with_capacity(commit.events.len());
    for event in commit.events {
        if event.kind.class() != first {
            return Err(Refusal::KindNotAccepted(event.kind));
        }
        event.kind.check_token(commit.lease.is_some())?;
        check_key(event)?;
        if let Some(key) = &event.key
            && !keys.insert(key)
        {
            return Err(Refusal::invalid("I2", format!("/{}", key.0), "stands twice in this commit"));
        }
        let facts = Facts::read(event.kind, &event.payload)?;
        check_key_in_payload(event, &facts)?;
        checked.push(Checked { event, facts });
    }
    Ok(checked)
}

/// I1: the key is the kind's own, or none. An input and a tool result always have theirs.
fn check_key(event: &NewEvent) -> Result<(), Refusal> {
    match (&event.key, event.kind.key_name()) {
        (Some((given, _)), _) => event.kind.check_key(*given),
        (None, Some(name @ (KeyName::RequestId | KeyName::ToolCallId))) => {
            Err(Refusal::invalid("I1", format!("/{name}"), format!("is required with {}", event.kind)))
        }
        (None, Some(KeyName::GenerationId) | None) => Ok(()),
    }
}

/// A key that also stands in the payload must be the same there (V1, V3).
fn check_key_in_payload(event: &NewEvent, facts: &Facts) -> Result<(), Refusal> {
    let Some((name, key)) = &event.key else { return Ok(()) };
    let in_payload = match facts {
        Facts::Tool(result) => Some(result.tool_call_id.as_str()),
        Facts::User(_) | Facts::External(_) => event.payload.get("requestId").and_then(|id| id.as_str()),
        Facts::Assistant(_) => event.payload.get("generationId").and_then(|id| id.as_str()),
        Facts::Compaction(_) | Facts::Finished(_) | Facts::Reserved => None,
    };
    match in_payload {
        Some(other) if other != key.as_str() => Err(Refusal::Invalid {
            rule: Rule(if matches!(facts, Facts::Tool(_)) { "V3" } else { "I1" }),
            fault: crate::Fault::new(format!("/{name}"), "differs from the commit's key"),
        }),
        _ => Ok(()),
    }
}

/// Decides a commit against a head: the transition that appends its events.
///
/// # Errors
/// The rule that the commit breaks. Where [`Refusal::depends_on_state`] is true, this very commit may have been carried
/// out before and its answer lost: look its keys up before you answer with the refusal (I6).
pub fn decide(head: &Head, now: Millis, commit: &Commit<'_>) -> Result<Transition, Refusal> {
    let checked = check(commit)?;
    head.check_open()?;
    let mut next = Transition::of_head(head.clone(), vec![Guard::Seq(head.ledger.seq), Guard::Open]);
    match (commit.events[0].kind.class(), commit.lease) {
        (Class::Owner, Some(token)) => {
            head.check_lease(token)?;
            next.guards.push(Guard::Lease(token.owner.clone(), token.epoch));
            if let Some(lease) = &mut next.head.lease {
                lease.until = lease.until.max(now.plus(commit.lease_ms));
            }
        }
        (Class::Edge, _) => {
            head.check_native()?;
            next.guards.push(Guard::Run(head.run.clone()));
        }
        (Class::External, _) => match head.state_owner {
            StateOwner::Native => return Err(Refusal::NativeSession),
            StateOwner::External => {}
        },
        (Class::Owner, None) => return Err(Refusal::TokenRequired(commit.events[0].kind)),
    }
    for (index, Checked { event, facts }) in checked.iter().enumerate() {
        let place = CommitPlace { id: commit.id.clone(), index, size: checked.len() };
        append(&mut next, now, event, facts, place)?;
    }
    Ok(next)
}

fn append(
    next: &mut Transition,
    now: Millis,
    new: &NewEvent,
    facts: &Facts,
    commit: CommitPlace,
) -> Result<(), Refusal> {
    let seq = next.head.ledger.seq.next();
    let (mut payload, digest) = new.sent()?;
    let mut watermark = None;
    match facts {
        Facts::User(message) => {
            if next.head.ledger.unanswered.len() >= caps::UNANSWERED {
                return Err(Refusal::LimitReached { what: "unanswered inputs", limit: caps::UNANSWERED });
            }
            // D4: no active attempt, no guide.
            if message.delivery == Delivery::Guide && next.head.run.status != RunStatus::Running {
                payload = payload.with_member("delivery", &Delivery::Queue.as_str().into())?;
            }
            if !next.head.run.status.is_live() {
                next.head.start_run(now);
                next.hint = Some(SendHint { after_ms: 0 });
            }
        }
        Facts::Assistant(message) => {
            check_answer(next, message)?;
            if !message.failed {
                next.new_calls.extend(message.calls.iter().map(|call| call.id.clone()));
            }
            if next.new_calls.len() > caps::CALLS_PER_MESSAGE {
                return Err(Refusal::LimitReached {
                    what: "tool calls in one commit",
                    limit: caps::CALLS_PER_MESSAGE,
                });
            }
            if message.input_seqs.is_none() && !next.head.ledger.input_seqs_seen {
                watermark = next.head.run.watermark;
            }
        }
        Facts::Tool(result) => {
            // V3: a result is for an open call of a committed message.
            if !next.head.ledger.open_calls.contains(&result.tool_call_id) {
                return Err(Refusal::UnknownToolCall(result.tool_call_id.to_string()));
            }
        }
        Facts::Finished(_) => {
            if next.head.finished == next.head.epoch {
                return Err(Refusal::AlreadyFinished);
            }
            next.head.finished = next.head.epoch;
        }
        Facts::Compaction(_) => next.head.compact = false, // K3
        Facts::External(_) | Facts::Reserved => {}
    }
    if let Some((name, key)) = &new.key {
        next.keys.push(KeyClaim { name: *name, key: key.clone(), seq, digest });
    }
    let epoch = match new.kind.class() {
        Class::Owner => Some(next.head.epoch),
        Class::Edge | Class::External => None,
    };
    let event = Event { seq, kind: new.kind, payload, ts: now, commit, epoch, watermark };
    next.head.ledger.apply(&event, facts);
    next.events.push(event);
    Ok(())
}

/// A1, V2: the inputs that a message names are unanswered, and its call ids are new.
fn check_answer(next: &Transition, message: &AssistantMessage) -> Result<(), Refusal> {
    let ledger = &next.head.ledger;
    if let Some(seq) = message.input_seqs.iter().flatten().find(|seq| !ledger.unanswered.contains(seq)) {
        return Err(Refusal::NotUnanswered(*seq));
    }
    if message.failed {
        return Ok(()); // its calls are never made
    }
    // The head knows the open calls. The store is asked about calls that have a result (`new_calls`). Both may also be in
    // this very commit.
    let results = next.keys.iter().filter(|claim| claim.name == KeyName::ToolCallId).map(|claim| &claim.key);
    let used: BTreeSet<&DedupeKey> = ledger.open_calls.iter().chain(&next.new_calls).chain(results).collect();
    if let Some(call) = message.calls.iter().find(|call| used.contains(&call.id)) {
        return Err(Refusal::CallIdReused(call.id.to_string()));
    }
    if ledger.open_calls.len() + message.calls.len() > caps::OPEN_CALLS {
        return Err(Refusal::LimitReached { what: "open tool calls", limit: caps::OPEN_CALLS });
    }
    Ok(())
}
