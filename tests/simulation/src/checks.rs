//! What must hold once no more faults happen and everything is at rest. Each check names the rule that it finds broken.

use std::collections::{BTreeMap, BTreeSet};

use keel_kernel::decision::{Decision, Verdict};
use keel_kernel::event::{Class, Facts};
use keel_kernel::head::{FailReason, LedgerState};
use keel_kernel::{Event, Head, Kind, RunStatus, Seq};
use serde_json::Value;

use crate::history::{History, Records, Write};
use crate::reader::Seen;

/// One session at rest.
pub(crate) struct Rested {
    pub(crate) at: String,
    pub(crate) head: Head,
    pub(crate) events: Vec<Event>,
    pub(crate) decisions: Vec<Decision>,
}

/// Checks a session's ledger, head, writes and answers.
pub(crate) fn session(history: &History, rested: &Rested) {
    let records = history.records().clone();
    let writes = records.writes.get(&rested.at).map(Vec::as_slice).unwrap_or_default();
    let broken = |rule, what: String| history.violated(rule, format!("{}: {what}", rested.at));
    no_gap(rested, writes, &broken);
    one_event_per_key(rested, &broken);
    acknowledged_is_in_the_ledger(rested, &records, &broken);
    nothing_is_stranded(rested, writes, &broken);
    answered_once(rested, &broken);
    head_is_the_fold(rested, writes, &broken);
    one_summary_per_settled_attempt(rested, writes, &broken);
}

/// H3: the tool that needs consent ran only with arguments that a person had allowed.
pub(crate) fn nothing_runs_unasked(history: &History, rested: &[Rested]) {
    let agreed: Vec<&Value> = rested
        .iter()
        .flat_map(|session| &session.decisions)
        .filter_map(|decision| match &decision.given.as_ref()?.verdict {
            Verdict::Allow => Some(&decision.arguments),
            Verdict::Edit { arguments } => Some(arguments),
            Verdict::Deny => None,
        })
        .collect();
    let paid = history.records().paid.clone();
    for arguments in paid.iter().filter(|arguments| !agreed.contains(arguments)) {
        history.violated("H3", format!("{arguments} was run, and nobody had agreed to it"));
    }
}

/// H2: an answer that a person was told is accepted is the one in the decision, and nobody else was told so.
pub(crate) fn decided_once(history: &History, rested: &[Rested]) {
    let answered = history.records().answered.clone();
    for said in answered {
        let decisions = rested.iter().flat_map(|session| &session.decisions);
        let given = decisions.filter(|decision| decision.id == said.id).find_map(|one| one.given.as_ref());
        if given.is_none_or(|given| given.by != said.by || given.verdict != said.verdict) {
            history.violated("H2", format!("{said:?} was told that it counts, and {given:?} stands there"));
        }
    }
}

/// H4: no decision of a closed session is still on the tenant's list.
pub(crate) fn nothing_is_asked_for_a_closed_session(history: &History, rested: &[Rested], listed: &[String]) {
    for session in rested.iter().filter(|session| session.head.closed) {
        for decision in session.decisions.iter().filter(|decision| listed.contains(&decision.id)) {
            history
                .violated("H4", format!("{} is closed, and {} is still asked for", session.at, decision.id));
        }
    }
}

type Broken<'a> = &'a dyn Fn(&'static str, String);

/// L2: seqs have no gap. L1: the events are those that were written.
fn no_gap(rested: &Rested, writes: &[Write], broken: Broken<'_>) {
    let seqs: Vec<u64> = rested.events.iter().map(|event| event.seq.0).collect();
    if seqs != (1..=seqs.len() as u64).collect::<Vec<_>>() {
        broken("L2", format!("seqs {seqs:?}"));
    }
    let written: Vec<(u64, &str)> = writes
        .iter()
        .filter_map(|write| match write {
            Write::Event { seq, commit, .. } => Some((*seq, commit.as_str())),
            _ => None,
        })
        .collect();
    let there: Vec<(u64, &str)> =
        rested.events.iter().map(|event| (event.seq.0, event.commit.id.as_str())).collect();
    if written != there {
        broken("L1", format!("written {written:?}, there {there:?}"));
    }
}

/// I1, I2, I3, I7: every event has the key that its kind needs, and no two events have the same one.
fn one_event_per_key(rested: &Rested, broken: Broken<'_>) {
    let mut taken: BTreeMap<(&str, &str), Seq> = BTreeMap::new();
    for event in &rested.events {
        let Some(name) = event.kind.key_name().map(|name| name.as_str()) else { continue };
        let Some(key) = event.payload.get(name).and_then(Value::as_str) else {
            broken("I1", format!("event {} has no {name}", event.seq));
            continue;
        };
        if let Some(first) = taken.insert((name, key), event.seq) {
            broken("I2", format!("{name} {key:?} is held by events {first} and {}", event.seq));
        }
    }
}

/// C2, S3: no write by a fenced owner. An owner event's epoch is the newest that was claimed when it was committed. Only
/// the writes are looked at, since a fenced owner's write may leave a head that does not decode.
pub(crate) fn owners(history: &History, at: &str) {
    let writes = history.records().writes.get(at).cloned().unwrap_or_default();
    let broken = |rule, what: String| history.violated(rule, format!("{at}: {what}"));
    let mut newest = 0;
    for write in &writes {
        match write {
            Write::Claimed { epoch } if *epoch != newest + 1 => {
                broken("C2", format!("epoch {epoch} was claimed after {newest}"));
                newest = *epoch;
            }
            Write::Claimed { epoch } => newest = *epoch,
            Write::Event { seq, kind, epoch, .. } => {
                let owner = Kind::parse(kind).is_ok_and(|kind| kind.class() == Class::Owner);
                let expected = owner.then_some(newest);
                if *epoch != expected {
                    broken("C2", format!("event {seq}, {kind}, has epoch {epoch:?} instead of {expected:?}"));
                }
            }
            Write::Settled { epoch, .. } if *epoch != newest => {
                broken("S3", format!("epoch {epoch} settled while {newest} was the newest"));
            }
            Write::Settled { .. }
            | Write::HandedOver
            | Write::Parked
            | Write::CancelAsked { .. }
            | Write::Cancelled { .. }
            | Write::Closed => {}
        }
    }
}

/// I3: the ledger holds what clients were told.
fn acknowledged_is_in_the_ledger(rested: &Rested, records: &Records, broken: Broken<'_>) {
    let mut created = BTreeSet::new();
    for ack in records.acks.iter().filter(|ack| ack.at == rested.at) {
        let event = rested.events.iter().find(|event| event.seq.0 == ack.seq);
        let says = |name: &str, what: &str| {
            event.is_some_and(|event| event.payload.get(name).and_then(Value::as_str) == Some(what))
        };
        if !says("requestId", &ack.key) || !says("text", &ack.text) {
            broken("I3", format!("{ack:?}, but the ledger says {event:?}"));
        }
        if ack.created && !created.insert(&ack.key) {
            broken("I3", format!("{} was created twice", ack.key));
        }
    }
}

/// S4: every input is answered, or its run was cancelled or failed as the settling table says. No run is left live.
fn nothing_is_stranded(rested: &Rested, writes: &[Write], broken: Broken<'_>) {
    let Head { run, lease, ledger, .. } = &rested.head;
    if rested.head.closed {
        if run.status.is_live() || lease.is_some() {
            broken("C6", format!("closed with a run {:?} and a lease {lease:?}", run.status));
        }
        return; // what was unanswered at the close stays so
    }
    if rested.head.tells_parent {
        broken("H4", "its parent was never told of its end".to_owned());
    }
    if run.status.is_live() || lease.is_some() {
        broken("S4", format!("at rest with a run {:?} and a lease {lease:?}", run.status));
    }
    let owed = ledger.owed_turn || !ledger.unanswered.is_empty();
    match (run.status, run.reason) {
        (RunStatus::Idle | RunStatus::Done, None) if owed => {
            broken("S4", format!("a {:?} run left {:?} unanswered", run.status, ledger.unanswered));
        }
        (RunStatus::Idle | RunStatus::Done, None) => {}
        (RunStatus::Failed, Some(FailReason::Cancelled)) => {
            let up_to = writes.iter().rev().find_map(|write| match write {
                Write::Cancelled { up_to } => Some(*up_to),
                _ => None,
            });
            if ledger.unanswered.last().map(|seq| seq.0) > up_to {
                let what = format!("{:?} is newer than the cancel at {up_to:?}", ledger.unanswered);
                broken("S4", what);
            }
        }
        (RunStatus::Failed, Some(FailReason::AttemptsSpent)) => {
            if run.attempts < rested.head.max_attempts {
                broken(
                    "S",
                    format!("failed after {} attempts of {}", run.attempts, rested.head.max_attempts),
                );
            }
            // An input after the last settle would have begun a run. One before it was the settled run's.
            let settled = writes.iter().rposition(|write| matches!(write, Write::Settled { .. }));
            let later = writes[settled.unwrap_or(0)..].iter().any(
                |write| matches!(write, Write::Event { seq, .. } if ledger.unanswered.contains(&Seq(*seq))),
            );
            if later {
                broken("S4", "an input after the last settle began no run".to_owned());
            }
        }
        (status, reason) => broken("S", format!("a run is {status:?} because of {reason:?}")),
    }
}

/// A1, A2: an answer names inputs that came before it, and no input is answered twice.
fn answered_once(rested: &Rested, broken: Broken<'_>) {
    let mut answered: BTreeMap<Seq, Seq> = BTreeMap::new();
    for event in &rested.events {
        let Ok(Facts::Assistant(message)) = Facts::read(event.kind, &event.payload) else { continue };
        for seq in message.input_seqs.iter().flatten() {
            let input = rested.events.iter().find(|input| input.seq == *seq);
            if *seq >= event.seq || input.is_none_or(|input| input.kind != Kind::UserMessage) {
                broken("A1", format!("answer {} names {seq}, which is no earlier input", event.seq));
            }
            if !message.failed
                && let Some(first) = answered.insert(*seq, event.seq)
            {
                broken("A2", format!("input {seq} is answered by {first} and {}", event.seq));
            }
        }
    }
}

/// L5: the head is what the ledger and the writes determine.
fn head_is_the_fold(rested: &Rested, writes: &[Write], broken: Broken<'_>) {
    match LedgerState::fold(&rested.events) {
        Ok(folded) if folded == rested.head.ledger => {}
        Ok(folded) => broken("L5", format!("the head says {:?}, the ledger {folded:?}", rested.head.ledger)),
        Err(refusal) => broken("L5", format!("the ledger does not fold: {refusal}")),
    }
    let claimed = writes.iter().rev().find_map(|write| match write {
        Write::Claimed { epoch } => Some(*epoch),
        _ => None,
    });
    if rested.head.epoch.0 != claimed.unwrap_or(0) {
        broken("C2", format!("the head says epoch {}, claimed was {claimed:?}", rested.head.epoch));
    }
    let settled = writes.iter().rev().find_map(|write| match write {
        Write::Settled { epoch, .. } => Some(*epoch),
        _ => None,
    });
    if rested.head.run.settled.as_ref().map(|settle| settle.epoch.0) != settled {
        broken("L5", format!("the head says {:?}, the last settle was {settled:?}", rested.head.run.settled));
    }
}

/// S1: one run.finished for each settled attempt, and none for any other. The loop writes it with the settle. (S2, a
/// run.finished that cannot be written, does not occur here: none is refused.)
fn one_summary_per_settled_attempt(rested: &Rested, writes: &[Write], broken: Broken<'_>) {
    let summaries = |epoch: u64| {
        let of = |event: &&Event| event.kind == Kind::RunFinished && event.epoch.map(|e| e.0) == Some(epoch);
        rested.events.iter().filter(of).count()
    };
    let settled: BTreeSet<u64> = writes
        .iter()
        .filter_map(|write| match write {
            Write::Settled { epoch, .. } => Some(*epoch),
            _ => None,
        })
        .collect();
    for epoch in 1..=rested.head.epoch.0 {
        let (found, expected) = (summaries(epoch), usize::from(settled.contains(&epoch)));
        if found != expected {
            broken("S1", format!("epoch {epoch} has {found} run.finished, expected {expected}"));
        }
    }
}

/// R2: a reader saw 1..n once, in order, as the ledger has it. R3a: partials are prefixes of what was committed.
pub(crate) fn reader(history: &History, rested: &Rested, seen: &Seen) {
    let broken = |rule, what: String| history.violated(rule, format!("{} of {}: {what}", seen.name, seen.at));
    let there: Vec<(u64, String)> = rested
        .events
        .iter()
        .map(|event| (event.seq.0, serde_json::to_string(event).expect("an event serialises")))
        .collect();
    if seen.events != there {
        let ids = |events: &[(u64, String)]| events.iter().map(|(seq, _)| *seq).collect::<Vec<_>>();
        broken("R2", format!("saw {:?} of {:?}", ids(&seen.events), ids(&there)));
    }
    for (generation, chunks) in &seen.partials {
        let joined: String = chunks.iter().map(|(_, text, _)| text.as_str()).collect();
        let in_order = chunks.iter().map(|(index, _, _)| *index).eq(0..chunks.len() as u64);
        let dead = chunks.iter().any(|(_, _, dead)| *dead);
        if !in_order && !dead {
            broken("R3a", format!("chunks of {generation}: {chunks:?}"));
        }
        let Some(text) = final_text(rested, generation) else { continue };
        if in_order && !text.starts_with(&joined) {
            broken("R3a", format!("{joined:?} is no prefix of {text:?}"));
        }
    }
}

/// A committed generation's text.
fn final_text(rested: &Rested, generation: &str) -> Option<String> {
    let event = rested.events.iter().find(|event| {
        event.kind == Kind::AssistantMessage
            && event.payload.get("generationId").and_then(Value::as_str) == Some(generation)
    })?;
    let blocks = event.payload.get("content")?.as_array()?;
    Some(blocks.iter().filter_map(|block| block["text"].as_str()).collect())
}
