//! What Keel asks of DynamoDB, asked of the embedded one through the real SDK.
//!
//! These are not tests of the store's own completeness, but of each behaviour that a rule of ours leans on: were one of
//! them lost in an update of the store, it should be lost here and not in a simulation's trace.

mod capacity;
mod connector;
mod items;
mod latency;
mod queries;
mod support;
mod tables;
mod transactions;
