//! The contract's rules, driven through the kernel's public functions. One module per group of rules.

mod commits;
mod delivery;
mod model;
mod settling;
mod support;
mod waiting;
