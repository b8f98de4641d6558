//! What Keel asks of DynamoDB, asked of the embedded one through the real SDK.
//!
//! These do not test whether the store is complete, but each behaviour that a rule of ours relies on: if an update of the
//! store breaks one, it should fail here and not in a simulation.

mod capacity;
mod connector;
mod items;
mod latency;
mod queries;
mod support;
mod tables;
mod transactions;
