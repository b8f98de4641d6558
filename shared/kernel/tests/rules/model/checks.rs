//! What must hold of a session after every step. It is worked out from the events alone, or from what the model knows.

use std::collections::{BTreeMap, BTreeSet};

use keel_kernel::Guard;
use keel_kernel::head::FailReason;
use keel_kernel::transcript::{Entry, History, LeftOut, Transcript};
use keel_kernel::{Class, Event, Head, Kind, LedgerState, RunStatus, Seq, StateOwner, Transition, caps};

use super::Model;

/// A payload's member as text.
fn text<'a>(event: &'a Event, member: &str) -> Option<&'a str> {
    event.payload.get(member).and_then(|value| value.as_str())
}

fn is_failed(event: &Event) -> bool {
    matches!(text(event, "stopReason"), Some("error" | "aborted"))
}

fn input_seqs(event: &Event) -> Option<BTreeSet<Seq>> {
    let array = event.payload.get("inputSeqs")?.as_array()?;
    Some(array.iter().map(|seq| Seq(seq.as_u64().expect("a seq"))).collect())
}

fn call_ids(event: &Event) -> Vec<&str> {
    let blocks = event.payload.get("content").and_then(|content| content.as_array());
    blocks.into_iter().flatten().map(|block| block["id"].as_str().expect("a call's id")).collect()
}

/// A2, A4: the unanswered inputs, from the events and the watermark that the model knows of each.
fn unanswered(model: &Model) -> BTreeSet<Seq> {
    let mut open = BTreeSet::new();
    let mut seen = false;
    for event in &model.session.events {
        match event.kind {
            Kind::UserMessage => {
                open.insert(event.seq);
            }
            Kind::AssistantMessage => {
                let named = input_seqs(event);
                let read = model.watermarks[&event.seq];
                if !is_failed(event) {
                    match &named {
                        Some(named) => open.retain(|seq| !named.contains(seq)),
                        None if !seen => open.retain(|seq| Some(*seq) > read),
                        None => {}
                    }
                }
                seen |= named.is_some();
            }
            Kind::ToolResult
            | Kind::Compaction
            | Kind::RunFinished
            | Kind::ExternalEvent
            | Kind::RunStarted
            | Kind::RunFailed => {}
        }
    }
    open
}

/// L, I, V, C2 and S1: what must hold of the ledger by itself.
pub(super) fn ledger(model: &Model) {
    let session = &model.session;
    let seqs: Vec<u64> = session.events.iter().map(|event| event.seq.0).collect();
    assert_eq!(seqs, (1..=session.events.len() as u64).collect::<Vec<_>>(), "L2");
    assert_eq!(LedgerState::fold(&session.events).expect("it reads back"), session.head.ledger, "L5");
    assert_eq!(session.head.ledger.unanswered, unanswered(model), "A2");
    let mut keys = BTreeSet::new();
    let mut calls: BTreeMap<&str, bool> = BTreeMap::new();
    let mut finished = BTreeSet::new();
    for event in &session.events {
        let key = event.kind.key_name().and_then(|name| Some((name, text(event, name.as_str())?)));
        assert_eq!(key.is_some(), event.kind.key_name().is_some(), "the model's events name their keys");
        assert!(key.is_none_or(|key| keys.insert(key)), "I2: one event per key: {key:?}");
        let owner = event.kind.class() == Class::Owner;
        assert_eq!(event.epoch, owner.then(|| model.epochs[&event.seq]), "C2: the epoch of that moment");
        match event.kind {
            Kind::AssistantMessage if !is_failed(event) => {
                for id in call_ids(event) {
                    assert_eq!(calls.insert(id, false), None, "V2: {id} is used twice");
                }
            }
            Kind::ToolResult => {
                let id = text(event, "toolCallId").expect("a result names its call");
                assert_eq!(calls.insert(id, true), Some(false), "V3, I7: {id} was open");
            }
            Kind::RunFinished => assert!(finished.insert(event.epoch), "S1: once per epoch"),
            Kind::UserMessage
            | Kind::AssistantMessage
            | Kind::Compaction
            | Kind::ExternalEvent
            | Kind::RunStarted
            | Kind::RunFailed => {}
        }
    }
    assert_eq!(keys.len(), session.keys.len(), "I2: and one key per event");
}

/// S4, and what must hold of the head.
pub(super) fn head(model: &Model) {
    let head = &model.session.head;
    let run = &head.run;
    assert_eq!(head.epoch, model.epoch, "+1 at every claim and never otherwise");
    assert_eq!(run.status == RunStatus::Running, head.lease.is_some(), "who runs has a lease");
    let waits_for_ever = run.status == RunStatus::Waiting && run.not_before.0 == 0;
    let is_looked_for = run.status.is_live() && !waits_for_ever;
    assert_eq!(is_looked_for, head.due.is_some(), "the sweep finds every run that is due, and no other");
    assert_eq!(run.status == RunStatus::Waiting, run.waits.is_some(), "H1: who waits says what for");
    if let (Some(due), Some(lease)) = (head.due, &head.lease) {
        assert!(due <= lease.until, "the sweep looks no later than the lease's end");
    }
    let given_back = model.parks + run.handovers.min(caps::HANDOVERS);
    assert_eq!(run.attempts + given_back, model.claims, "S5, H1: attempts are claims");
    assert_eq!(run.watermark, model.watermark, "A5");
    let newest = head.ledger.unanswered.last().copied();
    match run.status {
        RunStatus::Idle => {
            assert!(!model.session.events.iter().any(|event| event.kind == Kind::UserMessage), "S4");
        }
        RunStatus::Done => assert!(!head.is_owed(), "S4, A3: done with {newest:?} unanswered"),
        RunStatus::Failed => {
            assert!(newest <= model.explained, "S4: {newest:?} is stranded: {:?}", model.explained);
            match run.reason.expect("a failed run says why") {
                FailReason::AttemptsSpent => assert!(run.attempts >= head.max_attempts),
                FailReason::Closed => assert!(head.closed),
                FailReason::Cancelled => {}
            }
        }
        RunStatus::Pending | RunStatus::Running | RunStatus::Waiting => assert!(!head.closed, "C6"),
    }
    if head.state_owner == StateOwner::External {
        assert_eq!((run.attempts, head.epoch.0), (0, 0), "C4: it is never claimed");
    }
}

/// A1, D3: the projection agrees with the head.
pub(super) fn transcript(model: &Model) {
    let history = model.session.history();
    let watermark = model.session.head.run.watermark;
    let transcript = history.transcript(watermark);
    assert_eq!(history.state(), &model.session.head.ledger, "L5");
    let unanswered = &model.session.head.ledger.unanswered;
    let waiting = transcript.left_out.iter().filter(|(_, why)| *why == LeftOut::Waiting);
    let both: BTreeSet<Seq> =
        transcript.presented.iter().copied().chain(waiting.map(|(seq, _)| *seq)).collect();
    assert_eq!(&both, unanswered, "an unanswered input is presented or waits");
    assert!(transcript.presented.iter().filter(|seq| Some(**seq) > watermark).count() <= 1, "D3: one guide");
    let given = unanswered.iter().filter(|seq| Some(**seq) <= watermark);
    assert!(given.into_iter().all(|seq| transcript.presented.contains(seq)), "D2: what the run was given");
    let mut shown = BTreeSet::new();
    for entry in &transcript.entries {
        match entry {
            Entry::User(event) | Entry::Assistant(event) | Entry::ToolResult(event) => {
                assert!(shown.insert(event.seq), "event {} stands twice in the context", event.seq);
                assert!(!(event.kind == Kind::AssistantMessage && is_failed(event)), "A3");
            }
            Entry::Summary(_) | Entry::Orphan(_) => {}
        }
    }
    for entry in &transcript.entries {
        if let Entry::ToolResult(event) = entry {
            let call = text(event, "toolCallId").expect("a result names its call");
            assert!(has_call(&transcript, call), "K1: the result of {call} stands without its call");
        }
    }
    resumed(model, &transcript);
}

fn has_call(transcript: &Transcript<'_>, call: &str) -> bool {
    transcript
        .entries
        .iter()
        .any(|entry| matches!(entry, Entry::Assistant(event) if call_ids(event).contains(&call)))
}

/// K2: the context made from the events that it can show is the one made from all events.
fn resumed(model: &Model, whole: &Transcript<'_>) {
    let state = model.session.head.ledger.clone();
    let (waiting, from) = state.shown();
    let events =
        model.session.events.iter().filter(|event| event.seq >= from || waiting.contains(&event.seq));
    let history = History::resume(state.clone(), events.cloned().collect()).expect("it reads back");
    let part = history.transcript(model.session.head.run.watermark);
    assert_eq!((&part.entries, &part.presented), (&whole.entries, &whole.presented), "K2");
    assert_eq!((&part.open_calls, part.owed_turn), (&whole.open_calls, whole.owed_turn), "K2");
}

/// A transition changes nothing that it does not guard, and has a hint where a run becomes pending.
pub(super) fn transition(before: &Head, transition: &Transition) {
    let after = &transition.head;
    let guards = &transition.guards;
    let has = |wanted: fn(&Guard) -> bool| guards.iter().any(wanted);
    let (seq, run, lease) = (
        has(|guard| matches!(guard, Guard::Seq(_))),
        has(|guard| matches!(guard, Guard::Run(_))),
        has(|guard| matches!(guard, Guard::Lease(..))),
    );
    let claims =
        has(|guard| matches!(guard, Guard::Epoch(_))) && has(|guard| matches!(guard, Guard::LeaseUntil(_)));
    assert!(guards.contains(&Guard::Open), "C6");
    assert!(seq || after.ledger == before.ledger, "L2: {guards:?}");
    assert!(run || after.run == before.run, "{guards:?}");
    assert!(run || after.due == before.due, "{guards:?}");
    assert!(lease || claims || after.lease == before.lease || after.closed, "C2: {guards:?}");
    assert!(lease || after.finished == before.finished, "S1: {guards:?}");
    assert!(claims || after.epoch == before.epoch, "C2: {guards:?}");
    assert_eq!((after.state_owner, after.max_attempts), (before.state_owner, before.max_attempts));
    let pending = |head: &Head| head.run.status == RunStatus::Pending;
    assert!(transition.hint.is_some() || !pending(after) || pending(before), "R6: nobody is told of the run");
    if transition.events.iter().any(|event| event.kind.class() == Class::Edge) {
        assert!(run, "D4: the check and the write are one step");
    }
    let owner = transition.events.iter().any(|event| event.kind.class() == Class::Owner);
    assert!(!owner || lease, "C2: {guards:?}");
}
