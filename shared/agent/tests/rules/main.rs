//! The contract's rules, as an owner's loop keeps them: the real kernel over a ledger in memory, the fake model, paused
//! time.

mod answering;
mod compacting;
mod ending;
mod sizes;
mod support;
mod waiting;
