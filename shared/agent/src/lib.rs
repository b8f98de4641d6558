//! The loop that answers a run: what to do next, and the effects that do it.
//!
//! [`next()`] is pure: a transcript and a few facts in, one action out. [`answer`] carries actions out against four ports:
//! the [`SessionPort`] (the session as its owner sees it), a [`Provider`], [`Tools`], and [`Waits`]. What happened is in the
//! ledger before the next step begins. A successor needs only the ledger and the head, so whoever takes over goes on where
//! the ledger ends.
//!
//! ```
//! use keel_agent::{AttemptState, Next, Time, next};
//! use keel_kernel::Seq;
//! use keel_kernel::transcript::Transcript;
//!
//! let state = AttemptState { max_turns: 20, ..AttemptState::default() };
//!
//! // The context has an input that no answer has named: the model is asked.
//! let asked = Transcript { presented: vec![Seq(1)], ..Transcript::default() };
//! assert_eq!(next(&asked, &state, &[]), Next::Generate);
//!
//! // The function's time is nearly up: a successor will ask (S5).
//! let late = AttemptState { time: Time::NoNewRequest, ..state };
//! assert_eq!(next(&asked, &late, &[]), Next::HandOver);
//!
//! // Nothing is owed: the run can settle, late or not.
//! assert_eq!(next(&Transcript::default(), &late, &[]), Next::Finish);
//! ```
//!
//! | to know | read |
//! |---|---|
//! | what an owner does next | [`next`](mod@next) |
//! | how it is done, and how an attempt ends | [`answer`], [`Ended`] |
//! | what the loop reads and writes | [`session_port`] |
//! | how a model is asked; the scripted fake one | [`provider`], [`provider::fake`] |
//! | what a tool is, which are built in, how one may be used | [`tool`], [`tool::builtin`], [`tool::policy`] |
//! | what a run can wait for | [`waits`] |
//! | when a context is too long, and where it is cut | [`compact`] |
//! | when token text is written for streams | [`partials`] |

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
