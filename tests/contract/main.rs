//! The contract, rule by rule, as a client or an owner sees it over HTTP. Runs against any deployment (see `keel_tests`).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod bad_input;
mod classes;
mod creating;
mod delivery;
mod idempotency;
mod ledger;
mod reading;
mod sessions;
mod settling;
mod validation;
mod waiting;
mod wire;
