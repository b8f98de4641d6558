//! The head's item: what every commit reads and writes.

use keel_kernel::budget::Budget;
use keel_kernel::event::Spent;
use keel_kernel::head::{Compacted, FailReason, LastSettle, LedgerState};
use keel_kernel::{
    CommitId, DedupeKey, Epoch, Head, Lease, Millis, OwnerId, Run, RunStatus, Seq, SessionId, StateOwner,
    WaitReason,
};

use super::attr;
use super::reader::{Reader, number, text, versioned};
use crate::keys;
use crate::port::{SessionKey, StoreError};
use crate::value::{Item, Value};

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
