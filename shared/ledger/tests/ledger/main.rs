//! The ledger from outside: over its memory twin, over the embedded DynamoDB, and over one that fails by script.

mod equivalence;
mod faults;
mod support;
mod units;
