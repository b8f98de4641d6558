//! What surrounds a process, so that nothing else reaches for it: time and chance ([`Env`]), the trace that a request is
//! part of ([`trace`]), and what is counted ([`metric`]).
//!
//! The kernel takes times and ids as arguments. Whoever calls it takes them from an [`Env`], and a simulation owns its
//! own:
//!
//! ```
//! use std::ops::RangeInclusive;
//!
//! use keel_env::Env;
//! use keel_kernel::Millis;
//!
//! /// A world in which it is always the same moment.
//! struct Frozen;
//!
//! impl Env for Frozen {
//!     fn now(&self) -> Millis {
//!         Millis(1_000)
//!     }
//!     fn unique(&self) -> String {
//!         "0".repeat(32)
//!     }
//!     fn pick(&self, range: RangeInclusive<u64>) -> u64 {
//!         *range.start()
//!     }
//! }
//!
//! assert_eq!(Frozen.now().plus(500), Millis(1_500));
//! ```

pub mod metric;
mod time;
pub mod trace;

pub use time::{Env, SystemEnv};
