//! The items of the ledger itself: events, and the dedupe keys that they hold.

use keel_kernel::event::{CommitPlace, KeyName};
use keel_kernel::{CommitId, DedupeKey, Epoch, Event, KeyClaim, KeyRow, Kind, Millis, Payload, Seq};

use super::attr;
use super::reader::{Reader, number, text, versioned};
use crate::keys;
use crate::port::{SessionKey, StoreError};
use crate::value::Item;

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
