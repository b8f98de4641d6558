//! The items of the tables. They are written and read by hand, because their names and sizes decide what a commit costs.
//!
//! Every item has a schema version `v`. A version that is not known here is an error, and never guessed at.

use keel_kernel::budget::Budget;
use keel_kernel::decision::Decision;
use keel_kernel::event::{CommitPlace, KeyName, Spent};
use keel_kernel::head::{Compacted, FailReason, LastSettle, LedgerState};
use keel_kernel::{
    ChildOf, CommitId, DedupeKey, Epoch, Event, Head, KeyClaim, KeyRow, Kind, Lease, Millis, OwnerId,
    Payload, Run, RunStatus, Seq, SessionDescription, SessionId, StateOwner, TenantId, WaitReason,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::keys;
use crate::port::{SessionKey, StoreError};
use crate::value::{Item, Key, Value};

/// The schema of head, event and key items.
pub const VERSION: u64 = 1;

/// Attribute names. They are short, since every write pays for each of them.
pub mod attr {
    /// Schema version.
    pub const VERSION: &str = "v";
    /// Head: present for an external session.
    pub const EXTERNAL: &str = "external";
    /// Head: present once closed.
    pub const CLOSED: &str = "closed";
    /// Head: attempts that a run may have.
    pub const MAX_ATTEMPTS: &str = "maxAttempts";
    /// Head: the last seq. Key: the seq of the event that holds it.
    pub const SEQ: &str = "seq";
    /// Head: unanswered inputs as ranges, `3-7,9`.
    pub const UNANSWERED: &str = "unanswered";
    /// Head: open call ids.
    pub const CALLS: &str = "calls";
    /// Head: present while the model owes a turn.
    pub const OWED: &str = "owed";
    /// Head: present once a message carried inputSeqs.
    pub const SEEN: &str = "seen";
    /// Head: the run, as a map.
    pub const RUN: &str = "run";
    /// Head: the newest epoch. Event: the epoch it was committed under.
    pub const EPOCH: &str = "epoch";
    /// Head: the lease's owner.
    pub const OWNER: &str = "owner";
    /// Head: the claim that made the lease.
    pub const CLAIM: &str = "claim";
    /// Head: when the lease ends.
    pub const UNTIL: &str = "until";
    /// Head: the newest epoch with a run.finished.
    pub const FINISHED: &str = "finished";
    /// Head: the partition of the due index, and with [`DUE_AT`] the moment of the sweep's next look.
    pub const DUE_SHARD: &str = "dueShard";
    /// Head: the moment of the sweep's next look.
    pub const DUE_AT: &str = "dueAt";
    /// Head: the last completed answer.
    pub const ANSWERED: &str = "answered";
    /// Head: the newest compaction's seq, the first event it keeps and the inputs before that which it keeps, `9:4:2-3`.
    pub const COMPACTED: &str = "compacted";
    /// Head: tokens and micro-dollars spent, `1200:350`.
    pub const SPENT: &str = "spent";
    /// Head: the budget, `5000:` where only tokens are limited.
    pub const BUDGET: &str = "budget";
    /// Head: the parent session.
    pub const PARENT: &str = "parent";
    /// Head: present while the parent must be nudged about the end of a run.
    pub const TELLS: &str = "tells";
    /// Head: present while a compaction is asked for.
    pub const COMPACT: &str = "compact";
    /// Event: kind.
    pub const KIND: &str = "kind";
    /// Event: payload as JSON text.
    pub const PAYLOAD: &str = "payload";
    /// Event: the moment of its commit, in milliseconds since 1970.
    pub const TS: &str = "ts";
    /// Event, key: the commit's id.
    pub const COMMIT: &str = "commit";
    /// Event: its 0-based place in its commit.
    pub const INDEX: &str = "ci";
    /// Event: the number of events of its commit.
    pub const SIZE: &str = "cn";
    /// Event: the run's readWatermark (A4).
    pub const WATERMARK: &str = "wm";
    /// Key: SHA-256 of the canonical payload.
    pub const DIGEST: &str = "digest";
}

/// The attribute that holds a row's value as JSON text. No condition looks inside.
pub const ROW: &str = "row";
/// A description's revision, beside its row so that a condition can see it.
pub const REVISION: &str = "rev";
/// Present on a decision's row while nobody has answered it, so that a condition can see it.
pub const OPEN: &str = "open";

fn number(n: u64) -> Value {
    Value::Number(n)
}

fn text(s: impl Into<String>) -> Value {
    Value::Text(s.into())
}

/// An item with its key and its version, and nothing else yet.
fn versioned(key: Key) -> Item {
    let mut item = key.item();
    item.insert(attr::VERSION.to_owned(), number(VERSION));
    item
}

/// A row that holds a value as JSON text.
///
/// # Panics
/// If the value does not serialise. Rows consist of texts and numbers, which do.
pub fn row_item<T: Serialize>(key: Key, row: &T) -> Item {
    let row = serde_json::to_string(row).expect("a row of strings and numbers serialises");
    let mut item = versioned(key);
    item.insert(ROW.to_owned(), text(row));
    item
}

/// The value of a row.
///
/// # Errors
/// [`StoreError::Corrupt`].
pub fn read_row<T: DeserializeOwned>(item: &Item) -> Result<T, StoreError> {
    Reader::versioned(item)?.parse(ROW, serde_json::from_str)
}

/// The item of a session's description.
pub fn description_item(at: &SessionKey, description: &SessionDescription) -> Item {
    let mut item = row_item(keys::description(at), description);
    item.insert(REVISION.to_owned(), number(description.revision));
    item
}

/// A session's entry in its tenant's list.
pub fn listed_session(at: &SessionKey, created: Millis) -> Item {
    versioned(keys::listed_session(at, created))
}

/// A child's entry in its parent's list (H4).
pub fn child_item(child: &SessionKey, of: &ChildOf) -> Item {
    let parent = SessionKey { tenant: child.tenant.clone(), session: of.parent.clone() };
    versioned(keys::child(&parent, &child.session))
}

/// The item of a decision (H2).
pub fn decision_item(at: &SessionKey, decision: &Decision) -> Item {
    let mut item = row_item(keys::decision(at, &decision.id), decision);
    if decision.given.is_none() {
        item.insert(OPEN.to_owned(), Value::Flag(true));
    }
    item
}

/// An open decision's entry in its tenant's list.
pub fn listed_decision(tenant: &TenantId, decision: &Decision) -> Item {
    row_item(keys::listed_decision(tenant, decision.opened_ms, &decision.id), &decision.id)
}

/// The head's item.
pub fn head_item(at: &SessionKey, head: &Head) -> Item {
    let mut item = versioned(keys::head(at));
    item.extend([
        (attr::MAX_ATTEMPTS.to_owned(), number(head.max_attempts.into())),
        (attr::SEQ.to_owned(), number(head.ledger.seq.0)),
        (attr::RUN.to_owned(), run_value(&head.run)),
        (attr::EPOCH.to_owned(), number(head.epoch.0)),
    ]);
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            item.insert(name.to_owned(), value);
        }
    };
    let flag = |on: bool| on.then_some(Value::Flag(true));
    put(attr::EXTERNAL, flag(head.state_owner == StateOwner::External));
    put(attr::CLOSED, flag(head.closed));
    put(attr::OWED, flag(head.ledger.owed_turn));
    put(attr::SEEN, flag(head.ledger.input_seqs_seen));
    let unanswered = ranges(head.ledger.unanswered.iter().map(|seq| seq.0));
    put(attr::UNANSWERED, (!unanswered.is_empty()).then(|| text(unanswered)));
    let calls: Vec<String> = head.ledger.open_calls.iter().map(ToString::to_string).collect();
    put(attr::CALLS, (!calls.is_empty()).then_some(Value::Texts(calls)));
    put(attr::ANSWERED, (head.ledger.last_answer.0 > 0).then(|| number(head.ledger.last_answer.0)));
    put(attr::COMPACTED, head.ledger.compacted.as_ref().map(|kept| text(compacted_text(kept))));
    let Spent { tokens, micros } = head.ledger.spent;
    put(attr::SPENT, (tokens > 0 || micros > 0).then(|| text(format!("{tokens}:{micros}"))));
    put(attr::BUDGET, (head.budget != Budget::default()).then(|| text(budget_text(head.budget))));
    put(attr::PARENT, head.parent.as_ref().map(|parent| text(parent.as_str())));
    put(attr::TELLS, flag(head.tells_parent));
    put(attr::COMPACT, flag(head.compact));
    put(attr::FINISHED, (head.finished.0 > 0).then(|| number(head.finished.0)));
    if let Some(lease) = &head.lease {
        put(attr::OWNER, Some(text(lease.owner.as_str())));
        put(attr::CLAIM, Some(text(lease.claim.as_str())));
        put(attr::UNTIL, Some(number(lease.until.0)));
    }
    if let Some(due) = head.due {
        put(attr::DUE_SHARD, Some(text(keys::due_shard(at))));
        put(attr::DUE_AT, Some(number(due.0)));
    }
    item
}

/// The run as one map, so that one condition compares all of it.
pub fn run_value(run: &Run) -> Value {
    let mut map = Item::from([
        ("status".to_owned(), text(run.status.as_str())),
        ("attempts".to_owned(), number(run.attempts.into())),
    ]);
    let mut put = |name: &str, value: Option<u64>| {
        if let Some(value) = value {
            map.insert(name.to_owned(), number(value));
        }
    };
    put("handovers", (run.handovers > 0).then_some(run.handovers.into()));
    put("notBefore", (run.not_before.0 > 0).then_some(run.not_before.0));
    put("watermark", run.watermark.map(|seq| seq.0));
    put("cancel", run.cancel.map(|seq| seq.0));
    put("nudges", (run.nudges > 0).then_some(run.nudges));
    put("compactNext", run.compact_next.then_some(1));
    if let Some(waits) = run.waits {
        map.insert("waits".to_owned(), text(waits.as_str()));
    }
    if let Some(reason) = run.reason {
        map.insert("reason".to_owned(), text(reason_name(reason)));
    }
    if let Some(settled) = &run.settled {
        map.insert("settledEpoch".to_owned(), number(settled.epoch.0));
        map.insert("settledTo".to_owned(), text(settled.status.as_str()));
    }
    Value::Map(map)
}

fn compacted_text(kept: &Compacted) -> String {
    format!("{}:{}:{}", kept.seq, kept.first_kept, ranges(kept.waiting.iter().map(|seq| seq.0)))
}

fn parse_compacted(text: &str) -> Option<Compacted> {
    let mut parts = text.splitn(3, ':');
    let mut seq = || parts.next()?.parse().ok().map(Seq);
    let (seq, first_kept) = (seq()?, seq()?);
    let waiting = parse_ranges(parts.next()?)?.into_iter().map(Seq).collect();
    Some(Compacted { seq, first_kept, waiting })
}

fn parse_spent(text: &str) -> Option<Spent> {
    let (tokens, micros) = text.split_once(':')?;
    Some(Spent { tokens: tokens.parse().ok()?, micros: micros.parse().ok()? })
}

fn budget_text(budget: Budget) -> String {
    let part = |most: Option<u64>| most.map_or(String::new(), |most| most.to_string());
    format!("{}:{}", part(budget.tokens), part(budget.micros))
}

fn parse_budget(text: &str) -> Option<Budget> {
    let part = |text: &str| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
    let (tokens, micros) = text.split_once(':')?;
    Some(Budget { tokens: part(tokens)?, micros: part(micros)? })
}

fn reason_name(reason: FailReason) -> &'static str {
    match reason {
        FailReason::Cancelled => "cancelled",
        FailReason::AttemptsSpent => "attempts_spent",
        FailReason::Closed => "closed",
    }
}

/// An event's item.
pub fn event_item(at: &SessionKey, event: &Event) -> Item {
    let mut item = versioned(keys::event(at, event.seq));
    item.extend([
        (attr::KIND.to_owned(), text(event.kind.as_str())),
        (attr::PAYLOAD.to_owned(), text(event.payload.text())),
        (attr::TS.to_owned(), number(event.ts.0)),
        (attr::COMMIT.to_owned(), text(event.commit.id.as_str())),
        (attr::INDEX.to_owned(), number(event.commit.index as u64)),
        (attr::SIZE.to_owned(), number(event.commit.size as u64)),
    ]);
    if let Some(epoch) = event.epoch {
        item.insert(attr::EPOCH.to_owned(), number(epoch.0));
    }
    if let Some(watermark) = event.watermark {
        item.insert(attr::WATERMARK.to_owned(), number(watermark.0));
    }
    item
}

/// A dedupe key's item.
pub fn key_item(at: &SessionKey, claim: &KeyClaim, commit: &CommitId) -> Item {
    let mut item = versioned(keys::dedupe_key(at, claim.name, &claim.key));
    item.extend([
        (attr::SEQ.to_owned(), number(claim.seq.0)),
        (attr::DIGEST.to_owned(), text(&claim.digest)),
        (attr::COMMIT.to_owned(), text(commit.as_str())),
    ]);
    item
}

/// Reads an item's attributes. An error names the attribute that does not decode.
pub(crate) struct Reader<'a>(pub(crate) &'a Item);

impl<'a> Reader<'a> {
    pub(crate) fn versioned(item: &'a Item) -> Result<Self, StoreError> {
        let reader = Reader(item);
        match reader.number(attr::VERSION)? {
            VERSION => Ok(reader),
            other => Err(StoreError::Corrupt(format!("schema version {other} is newer than this code"))),
        }
    }

    fn bad(&self, name: &str) -> StoreError {
        let sk = self.0.get("sk").and_then(Value::as_text).unwrap_or("?");
        StoreError::Corrupt(format!("attribute {name} of item {sk}"))
    }

    pub(crate) fn text(&self, name: &str) -> Result<&'a str, StoreError> {
        self.maybe_text(name)?.ok_or_else(|| self.bad(name))
    }

    pub(crate) fn maybe_text(&self, name: &str) -> Result<Option<&'a str>, StoreError> {
        self.0.get(name).map(|value| value.as_text().ok_or_else(|| self.bad(name))).transpose()
    }

    pub(crate) fn number(&self, name: &str) -> Result<u64, StoreError> {
        self.maybe_number(name)?.ok_or_else(|| self.bad(name))
    }

    pub(crate) fn maybe_number(&self, name: &str) -> Result<Option<u64>, StoreError> {
        self.0.get(name).map(|value| value.as_number().ok_or_else(|| self.bad(name))).transpose()
    }

    pub(crate) fn small(&self, name: &str) -> Result<u32, StoreError> {
        u32::try_from(self.number(name)?).map_err(|_| self.bad(name))
    }

    /// An attribute with a text format of its own, if it is present.
    fn maybe<T>(&self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, StoreError> {
        self.maybe_text(name)?.map(|text| parse(text).ok_or_else(|| self.bad(name))).transpose()
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn parse<T, E>(
        &self,
        name: &str,
        parse: impl FnOnce(&'a str) -> Result<T, E>,
    ) -> Result<T, StoreError> {
        parse(self.text(name)?).map_err(|_| self.bad(name))
    }
}

/// Reads a head's item.
///
/// # Errors
/// [`StoreError::Corrupt`].
pub fn read_head(item: &Item) -> Result<Head, StoreError> {
    let r = Reader::versioned(item)?;
    let unanswered = parse_ranges(r.maybe_text(attr::UNANSWERED)?.unwrap_or_default())
        .ok_or_else(|| r.bad(attr::UNANSWERED))?
        .into_iter()
        .map(Seq)
        .collect();
    let calls = match item.get(attr::CALLS) {
        None => Vec::new(),
        Some(value) => value.as_texts().ok_or_else(|| r.bad(attr::CALLS))?.to_vec(),
    };
    let open_calls =
        calls.into_iter().map(DedupeKey::parse).collect::<Result<_, _>>().map_err(|_| r.bad(attr::CALLS))?;
    let lease = match r.maybe_number(attr::UNTIL)? {
        None => None,
        Some(until) => Some(Lease {
            owner: r.parse(attr::OWNER, OwnerId::parse)?,
            claim: r.parse(attr::CLAIM, CommitId::parse)?,
            until: Millis(until),
        }),
    };
    let run = item.get(attr::RUN).and_then(Value::as_map).ok_or_else(|| r.bad(attr::RUN))?;
    Ok(Head {
        state_owner: if r.flag(attr::EXTERNAL) { StateOwner::External } else { StateOwner::Native },
        closed: r.flag(attr::CLOSED),
        max_attempts: r.small(attr::MAX_ATTEMPTS)?,
        ledger: LedgerState {
            seq: Seq(r.number(attr::SEQ)?),
            unanswered,
            open_calls,
            owed_turn: r.flag(attr::OWED),
            input_seqs_seen: r.flag(attr::SEEN),
            last_answer: Seq(r.maybe_number(attr::ANSWERED)?.unwrap_or(0)),
            compacted: r.maybe(attr::COMPACTED, parse_compacted)?,
            spent: r.maybe(attr::SPENT, parse_spent)?.unwrap_or_default(),
        },
        run: read_run(run)?,
        epoch: Epoch(r.number(attr::EPOCH)?),
        lease,
        finished: Epoch(r.maybe_number(attr::FINISHED)?.unwrap_or(0)),
        budget: r.maybe(attr::BUDGET, parse_budget)?.unwrap_or_default(),
        parent: r.maybe(attr::PARENT, |id| SessionId::parse(id).ok())?,
        tells_parent: r.flag(attr::TELLS),
        compact: r.flag(attr::COMPACT),
        due: r.maybe_number(attr::DUE_AT)?.map(Millis),
    })
}

fn read_run(map: &Item) -> Result<Run, StoreError> {
    let r = Reader(map);
    let reason = match r.maybe_text("reason")? {
        None => None,
        Some("cancelled") => Some(FailReason::Cancelled),
        Some("attempts_spent") => Some(FailReason::AttemptsSpent),
        Some("closed") => Some(FailReason::Closed),
        Some(_) => return Err(r.bad("reason")),
    };
    let settled = match r.maybe_number("settledEpoch")? {
        None => None,
        Some(epoch) => Some(LastSettle { epoch: Epoch(epoch), status: read_status(&r, "settledTo")? }),
    };
    Ok(Run {
        status: read_status(&r, "status")?,
        attempts: r.small("attempts")?,
        handovers: if r.flag("handovers") { r.small("handovers")? } else { 0 },
        not_before: Millis(r.maybe_number("notBefore")?.unwrap_or(0)),
        watermark: r.maybe_number("watermark")?.map(Seq),
        cancel: r.maybe_number("cancel")?.map(Seq),
        reason,
        waits: r.maybe("waits", |name| WaitReason::ALL.into_iter().find(|w| w.as_str() == name))?,
        nudges: r.maybe_number("nudges")?.unwrap_or(0),
        compact_next: r.flag("compactNext"),
        settled,
    })
}

fn read_status(r: &Reader<'_>, name: &str) -> Result<RunStatus, StoreError> {
    let text = r.text(name)?;
    RunStatus::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| r.bad(name))
}

/// Reads an event's item.
///
/// # Errors
/// [`StoreError::Corrupt`].
pub fn read_event(item: &Item) -> Result<Event, StoreError> {
    let r = Reader::versioned(item)?;
    let seq = r.parse("sk", |sk| sk.strip_prefix("e#").ok_or(()).and_then(|n| n.parse().map_err(|_| ())))?;
    let place = |name| r.number(name).and_then(|n| usize::try_from(n).map_err(|_| r.bad(name)));
    Ok(Event {
        seq: Seq(seq),
        kind: r.parse(attr::KIND, Kind::parse)?,
        payload: r.parse(attr::PAYLOAD, Payload::kept)?,
        ts: Millis(r.number(attr::TS)?),
        commit: CommitPlace {
            id: r.parse(attr::COMMIT, CommitId::parse)?,
            index: place(attr::INDEX)?,
            size: place(attr::SIZE)?,
        },
        epoch: r.maybe_number(attr::EPOCH)?.map(Epoch),
        watermark: r.maybe_number(attr::WATERMARK)?.map(Seq),
    })
}

/// Reads a dedupe key's item.
///
/// # Errors
/// [`StoreError::Corrupt`].
pub fn read_key(item: &Item) -> Result<KeyRow, StoreError> {
    let r = Reader::versioned(item)?;
    let (name, key) =
        r.parse("sk", |sk| sk.strip_prefix("k#").and_then(|rest| rest.split_once('#')).ok_or(()))?;
    Ok(KeyRow {
        name: KeyName::parse(name).ok_or_else(|| r.bad("sk"))?,
        key: DedupeKey::parse(key).map_err(|_| r.bad("sk"))?,
        seq: Seq(r.number(attr::SEQ)?),
        digest: r.text(attr::DIGEST)?.to_owned(),
        commit: r.parse(attr::COMMIT, CommitId::parse)?,
    })
}

/// Ascending numbers as `3-7,9`, so that many inputs in a row take a few bytes.
fn ranges(numbers: impl Iterator<Item = u64>) -> String {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for n in numbers {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => spans.push((n, n)),
        }
    }
    let spans: Vec<String> = spans
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    spans.join(",")
}

fn parse_ranges(text: &str) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    for span in text.split(',').filter(|span| !span.is_empty()) {
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last - first > keel_kernel::caps::UNANSWERED as u64 {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_read_back() {
        for numbers in [vec![], vec![1], vec![1, 2, 3], vec![3, 4, 7, 9, 10]] {
            assert_eq!(parse_ranges(&ranges(numbers.iter().copied())), Some(numbers));
        }
        assert_eq!(ranges([3, 4, 5, 9].into_iter()), "3-5,9");
        for bad in ["a", "3-", "5-3", "1-99999999999"] {
            assert_eq!(parse_ranges(bad), None, "{bad}");
        }
    }
}
