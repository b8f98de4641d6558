//! Every limit of the rules, with its unit and its reason. Those a client can meet are listed in `GET /v1/capabilities`.

/// A payload's size in bytes of UTF-8, white space outside strings not counted. An event must stay under DynamoDB's
/// 400 KB item, with room for its other attributes.
pub const PAYLOAD_BYTES: usize = 256 * 1024;

/// How deep arrays and objects may nest in a payload. Far above what tools pass, far below any parser's stack.
pub const PAYLOAD_DEPTH: usize = 64;

/// The largest integer (and its negative) that every JSON reader keeps: 2^53 − 1 (I4a).
pub const INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// Events in one owner commit. Each costs up to two of a transaction's 100 actions.
pub const EVENTS_PER_COMMIT: usize = 32;

/// Bytes of all payloads of one commit, under a transaction's 4 MB.
pub const COMMIT_BYTES: usize = 1024 * 1024;

/// Tool calls in one assistant message; each is one condition in the commit's transaction.
pub const CALLS_PER_MESSAGE: usize = 32;

/// Open tool calls of a session, so that the head stays small: every commit pays for its size.
pub const OPEN_CALLS: usize = 64;

/// Unanswered inputs of a session, for the same reason. Past it an input is refused until
/// an answer makes room.
pub const UNANSWERED: usize = 256;

/// How often one run may be handed over (S5) before a hand-over counts as an attempt: no run may hand itself over for
/// ever.
pub const HANDOVERS: u32 = 1_000;

/// Attempts of a run when its session names no number.
pub const ATTEMPTS_DEFAULT: u32 = 3;

/// The most attempts a session may ask for.
pub const ATTEMPTS_MAX: u32 = 20;

/// How long a run may be pending before the sweep sends its hint again, in milliseconds.
pub const PENDING_GRACE_MS: u64 = 30_000;

/// How many levels of child sessions there may be (H4). A child of a session that is itself no child is at level 1.
pub const CHILD_DEPTH: u32 = 3;

/// Children of one session, so that closing it reaches all of them in one page.
pub const CHILDREN: usize = 64;

/// A child's task, in bytes of UTF-8.
pub const TASK_BYTES: usize = 64 * 1024;

/// A session's title, in bytes of UTF-8.
pub const TITLE_BYTES: usize = 256;

/// The name of a session's model, in bytes of UTF-8.
pub const MODEL_BYTES: usize = 128;

/// A session's system prompt, in bytes of UTF-8.
pub const SYSTEM_BYTES: usize = 64 * 1024;

/// Rows beside the head that one transition writes, well under a transaction's 100 actions.
pub const ROWS_PER_TRANSITION: usize = 64;
