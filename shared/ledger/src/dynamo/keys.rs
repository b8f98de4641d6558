//! The keys of every item, and how they sort.
//!
//! | table | pk | sk |
//! |---|---|---|
//! | events | `tenant#session` | `e#<seq, 16 digits>`, `k#<key name>#<key>` |
//! | state | `tenant#session` | `approval#<digest of a call's id>`, `child#<session>`, `head`, `meta` |
//! | state | `tenant` | `s#<created, 16 digits>#<session>`, `key#<id>`, `open#<opened, 16 digits>#<decision>`,
//! `conf#<setting>`, `conf#plugin#<name>`, `spent#<month>` |
//! | partials | `tenant#session` | `<epoch, 10 digits>#<generation>#<chunk, 6 digits>` |

use keel_kernel::event::KeyName;
use keel_kernel::{DedupeKey, Millis, Seq, SessionId};
use sha2::{Digest as _, Sha256};

use crate::port::SessionKey;

/// The head's sort key.
pub const HEAD: &str = "head";
/// The sort key of a session's descriptive row.
pub const META: &str = "meta";
/// What the sort keys of a tenant's session rows begin with.
pub const SESSION_PREFIX: &str = "s#";
/// How many partitions the index of due runs is spread over.
pub const DUE_SHARDS: u8 = 16;

/// The head's key.
pub fn head(at: &SessionKey) -> (String, String) {
    (at.to_string(), HEAD.to_owned())
}

/// An event's sort key; it sorts as the seq does.
pub fn event(seq: Seq) -> String {
    format!("e#{:016}", seq.0)
}

/// A dedupe key's sort key: the key's name is part of it (I2).
pub fn dedupe_key(name: KeyName, key: &DedupeKey) -> String {
    format!("k#{name}#{key}")
}

/// The sort key of a session in its tenant's list; it sorts by age.
pub fn session_row(created: Millis, session: &SessionId) -> String {
    format!("{SESSION_PREFIX}{:016}#{session}", created.0)
}

/// What the sort keys of a session's decisions begin with.
pub const APPROVAL_PREFIX: &str = "approval#";
/// What the sort keys of a session's children begin with.
pub const CHILD_PREFIX: &str = "child#";
/// What the sort keys of a tenant's open decisions begin with.
pub const OPEN_PREFIX: &str = "open#";
/// What the sort keys of a tenant's settings begin with, so that one query has all of them.
pub const SETTING_PREFIX: &str = "conf#";
/// What the sort keys of a tenant's plugins begin with.
pub const PLUGIN_PREFIX: &str = "conf#plugin#";

/// The sort key of a session's decision.
pub fn approval(id: &str) -> String {
    format!("{APPROVAL_PREFIX}{id}")
}

/// The sort key of a decision in its tenant's list of open ones; it sorts by age.
pub fn open_approval(opened_ms: u64, id: &str) -> String {
    format!("{OPEN_PREFIX}{opened_ms:016}#{id}")
}

/// The sort key of what a tenant spent in a month, `2026-12`.
pub fn spent(month: &str) -> String {
    format!("spent#{month}")
}

/// An API key's sort key.
pub fn api_key(id: &str) -> String {
    format!("key#{id}")
}

/// The index partition that a session's due row lives in.
pub fn due_shard(at: &SessionKey) -> String {
    due_shard_name(Sha256::digest(at.to_string())[0] % DUE_SHARDS)
}

/// The name of an index partition, 0 to [`DUE_SHARDS`] − 1.
pub fn due_shard_name(shard: u8) -> String {
    format!("due#{shard:02}")
}
