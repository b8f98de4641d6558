//! Keel's rules, and nothing else: the closed set of event kinds, who may commit them, what a valid payload is, when an
//! input is answered, how a run settles, what it may wait for.
//!
//! What it promises:
//! - **Every rule is decided here,** and nowhere else. Its number (L3, S4 …) is that of `docs/contract.md`.
//! - **It is pure and synchronous.** Time and ids are arguments, and nothing is read or written. So the same arguments
//!   give the same result, and a property test can take a session through a million steps.
//! - **A rule returns data.** A [`Transition`] says what to write: the next head, the events with their dedupe keys, rows
//!   beside the head. Its [`Guard`]s say what must still hold of the head when that is written. A [`Refusal`] says which
//!   rule forbids it, and nothing is to be written.
//!
//! An input is decided against the head of a new session:
//!
//! ```
//! use keel_kernel::commit::decide;
//! use keel_kernel::{
//!     Commit, CommitId, DedupeKey, Guard, Head, KeyName, Kind, Millis, NewEvent, Payload, RunStatus, Seq,
//!     StateOwner,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let head = Head::new(StateOwner::Native, 3); // each of its runs may have three attempts
//! let input = NewEvent {
//!     kind: Kind::UserMessage,
//!     payload: Payload::parse(r#"{"text":"hello"}"#)?,
//!     key: Some((KeyName::RequestId, DedupeKey::parse("r-1")?)),
//! };
//! let (id, now) = (CommitId::parse("c-1")?, Millis(1_764_547_200_000));
//! let commit = Commit { id: &id, lease: None, lease_ms: 0, events: &[input] };
//! let transition = decide(&head, now, &commit)?;
//!
//! assert_eq!(transition.events[0].seq, Seq(1)); // L2
//! assert_eq!(transition.keys[0].key.as_str(), "r-1"); // I1
//! assert_eq!(transition.head.run.status, RunStatus::Pending); // no run was live, so the input begins one
//! assert!(transition.hint.is_some()); // a worker is to be told
//! // It may be written while no other event is there (L2), the session is open (C6) and no run has begun (D4).
//! assert_eq!(transition.guards, [Guard::Seq(Seq::ZERO), Guard::Open, Guard::Run(head.run)]);
//! # Ok(())
//! # }
//! ```
//!
//! The modules, in reading order:
//!
//! | module | holds |
//! |---|---|
//! | [`kind`] | the eight kinds of event, who may commit each, and its dedupe key |
//! | [`event`] | the shape of each kind's payload, and a committed event |
//! | [`json`] | strict reading, canonical form, digest |
//! | [`refusal`] | why a command is refused |
//! | [`ids`], [`caps`], [`hex`] | ids and numbers, each checked once; every limit; bytes as text |
//! | [`head`] | a session's current state, and when an input is answered |
//! | [`transition`] | what a rule decides, as data |
//! | [`commit`] | what a commit does to a session |
//! | [`run`] | who may work on a run, and what it becomes |
//! | [`requests`] | what clients ask of it: cancel, close, a budget, a compaction |
//! | [`transcript`] | what a model would see |
//! | [`session`], [`session_transitions`] | making a session and changing its description |
//! | [`waiting`], [`decision`], [`decision_transitions`], [`child`], [`budget`] | what a run may have to wait for, and what wakes it |
//! | [`partial`] | a generation's text on its way to readers |
//! | `testing` | with the feature of this name: a session in memory |

pub mod budget;
pub mod caps;
pub mod child;
pub mod commit;
pub mod decision;
pub mod decision_transitions;
pub mod event;
pub mod head;
pub mod hex;
pub mod ids;
pub mod json;
pub mod kind;
pub mod partial;
pub mod refusal;
pub mod requests;
pub mod run;
pub mod session;
pub mod session_transitions;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transcript;
pub mod transition;
pub mod waiting;

pub use commit::{Commit, NewEvent};
pub use event::{Delivery, Event, Payload};
pub use head::{Head, Lease, LeaseToken, LedgerState, Run, RunStatus, StateOwner, WaitReason};
pub use ids::{CommitId, DedupeKey, Epoch, Millis, OwnerId, Seq, SessionId, TenantId};
pub use kind::{Class, KeyName, Kind};
pub use refusal::{Fault, Refusal, Rule};
pub use session::{ChildOf, Session, SessionDescription};
pub use transition::{Guard, KeyClaim, KeyRow, Obstacles, SendHint, SideRow, Transition};
