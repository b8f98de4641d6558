//! The loop that answers a run: what to do next, and the effects that do it.
//!
//! [`next()`] is pure: a transcript and a few facts in, one action out. [`answer_run`] carries actions out against four
//! ports: the [`SessionPort`] (the session as its owner sees it), a [`Provider`], [`Tools`], and [`Waits`]. A successor needs only the
//! ledger and the head, so whoever takes over goes on where the ledger ends.

pub mod compact;
mod effects;
pub mod next;
pub mod partials;
pub mod provider;
pub mod session_port;
pub mod tool;
pub mod waits;

pub use effects::{Ended, Ports, RunContext, Signals, answer_run, not_begun};
pub use next::{AttemptState, Next, Time, next};
pub use provider::Provider;
pub use session_port::{Partial, SessionPort, SessionPortError, SettleResult};
pub use tool::Tools;
pub use waits::{CallState, Waits};
