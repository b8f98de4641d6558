//! The contract's rules, tested through the kernel's public functions. One module for each group of rules.

mod commits;
mod delivery;
mod model;
mod settling;
mod support;
mod waiting;
