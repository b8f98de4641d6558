//! The keys of every item. Sort keys sort as their numbers do, since numbers are padded with zeros.
//!
//! | table | pk | sk |
//! |---|---|---|
//! | events | `tenant#session` | `e#<seq, 16 digits>`, `k#<key name>#<key>` |
//! | state | `tenant#session` | `approval#<digest of a call's id>`, `child#<session>`, `head`, `meta` |
//! | state | `tenant` | `s#<created, 16 digits>#<session>`, `key#<id>`, `open#<opened, 16 digits>#<decision>`,
//! `conf#<setting>`, `conf#plugin#<name>`, `spent#<month>` |
//! | partials | `tenant#session` | `<epoch, 10 digits>#<generation>#<chunk, 6 digits>` |

use keel_kernel::event::KeyName;
use keel_kernel::partial::PartialChunk;
use keel_kernel::{DedupeKey, Epoch, Millis, Seq, SessionId, TenantId};
use sha2::{Digest as _, Sha256};

use crate::port::SessionKey;
use crate::value::Key;

/// The head's sort key.
pub const HEAD: &str = "head";
/// The sort key of a session's description.
pub const DESCRIPTION: &str = "meta";
/// What the sort keys of a session's decisions begin with.
pub const DECISION_PREFIX: &str = "approval#";
/// What the sort keys of a session's children begin with.
pub const CHILD_PREFIX: &str = "child#";
/// What the sort keys of a tenant's session rows begin with.
pub const SESSION_PREFIX: &str = "s#";
/// What the sort keys of a tenant's open decisions begin with.
pub const OPEN_PREFIX: &str = "open#";
/// What the sort keys of a tenant's settings begin with, so that one query reads all of them.
pub const SETTING_PREFIX: &str = "conf#";
/// What the sort keys of a tenant's plugins begin with.
pub const PLUGIN_PREFIX: &str = "conf#plugin#";
/// How many partitions the index of due runs is spread over.
pub const DUE_SHARDS: u8 = 16;

/// The head's key.
pub fn head(at: &SessionKey) -> Key {
    Key::new(at.to_string(), HEAD)
}

/// The key of a session's description.
pub fn description(at: &SessionKey) -> Key {
    Key::new(at.to_string(), DESCRIPTION)
}

/// An event's sort key. Events sort by seq.
pub fn event_sk(seq: Seq) -> String {
    format!("e#{:016}", seq.0)
}

/// An event's key.
pub fn event(at: &SessionKey, seq: Seq) -> Key {
    Key::new(at.to_string(), event_sk(seq))
}

/// A dedupe key's key: the key's name is part of it (I2).
pub fn dedupe_key(at: &SessionKey, name: KeyName, key: &DedupeKey) -> Key {
    Key::new(at.to_string(), format!("k#{name}#{key}"))
}

/// A session's key in its tenant's list, which sorts by age.
pub fn listed_session(at: &SessionKey, created: Millis) -> Key {
    Key::new(at.tenant.to_string(), format!("{SESSION_PREFIX}{:016}#{}", created.0, at.session))
}

/// The key of a session's decision.
pub fn decision(at: &SessionKey, id: &str) -> Key {
    Key::new(at.to_string(), format!("{DECISION_PREFIX}{id}"))
}

/// A decision's key in its tenant's list of open ones, which sorts by age.
pub fn listed_decision(tenant: &TenantId, opened_ms: u64, id: &str) -> Key {
    Key::new(tenant.to_string(), format!("{OPEN_PREFIX}{opened_ms:016}#{id}"))
}

/// A child's key in its parent's list.
pub fn child(parent: &SessionKey, child: &SessionId) -> Key {
    Key::new(parent.to_string(), format!("{CHILD_PREFIX}{child}"))
}

/// The key of what a tenant spent in a month, `2026-12`.
pub fn spent(tenant: &TenantId, month: &str) -> Key {
    Key::new(tenant.to_string(), format!("spent#{month}"))
}

/// An API key's key.
pub fn api_key(tenant: &TenantId, id: &str) -> Key {
    Key::new(tenant.to_string(), format!("key#{id}"))
}

/// The partition of the due index that a session belongs to.
pub fn due_shard(at: &SessionKey) -> String {
    due_shard_name(Sha256::digest(at.to_string())[0] % DUE_SHARDS)
}

/// The name of an index partition, 0 to [`DUE_SHARDS`] − 1.
pub fn due_shard_name(shard: u8) -> String {
    format!("due#{shard:02}")
}

/// The sort key of a chunk. Chunks sort by epoch, generation and place.
pub fn partial_sk(chunk: &PartialChunk) -> String {
    format!("{:010}#{}#{:06}", chunk.epoch.0, chunk.generation, chunk.index)
}

/// The epoch, generation and place that a chunk's sort key names; `None`: it is no chunk's.
pub fn read_partial_sk(sk: &str) -> Option<(Epoch, String, u32)> {
    let (rest, index) = sk.rsplit_once('#')?;
    let (epoch, generation) = rest.split_once('#')?;
    Some((Epoch(epoch.parse().ok()?), generation.to_owned(), index.parse().ok()?))
}

/// A sort key behind every chunk of the generation that this chunk's sort key names.
pub fn behind_generation(sk: &str) -> Option<String> {
    sk.rsplit_once('#').map(|(generation, _)| format!("{generation}#~")) // `~` sorts behind every digit
}
