//! The ledger from outside: over the store in memory, over the embedded DynamoDB, and over one that fails by script.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests fail by panicking, and print what they measured"
)]

mod equivalence;
mod faults;
mod frozen;
mod stale;
mod support;
mod units;
