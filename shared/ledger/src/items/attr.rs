//! Attribute names. They are short, since every write pays for each of them.

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
