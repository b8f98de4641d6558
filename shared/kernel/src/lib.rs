//! Keel's rules, and nothing else: the closed set of event kinds, who may commit them, what a valid payload is,
//! when an input is answered, how a run settles.
//!
//! Everything here is pure and synchronous. Time and ids are arguments, so one input has one output, and a property
//! test can drive it for a million steps. The rules' numbers (L3, S4 …) are those of `docs/contract.md`.
//!
//! | to know | read |
//! |---|---|
//! | what may be written, by whom | [`kind`], [`event`], [`commit`] |
//! | what a session's row holds, and when an input is answered | [`head`] |
//! | who may work on a run, and what it becomes | [`run`] |
//! | what a run may have to wait for | [`decision`], [`budget`] |
//! | what a model would see | [`transcript`] |
//! | why something was refused | [`refusal`] |

pub mod budget;
pub mod caps;
pub mod child;
pub mod commit;
pub mod decision;
pub mod decision_rules;
pub mod event;
pub mod head;
pub mod hex;
pub mod ids;
pub mod json;
pub mod kind;
pub mod partial;
pub mod refusal;
pub mod run;
pub mod session;
pub mod session_rules;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transcript;
pub mod transition;

pub use commit::{Commit, NewEvent};
pub use event::{Delivery, Event, Payload};
pub use head::{Head, Lease, LeaseToken, LedgerState, Run, RunStatus, StateOwner, WaitReason};
pub use ids::{CommitId, DedupeKey, Epoch, Millis, OwnerId, Seq, SessionId, TenantId};
pub use kind::{Class, KeyName, Kind};
pub use refusal::{Fault, Refusal, Rule};
pub use session::{ChildOf, Session, SessionDescription};
pub use transition::{Guard, KeyClaim, KeyRow, Obstacles, SendHint, SideRow, Transition};
