//! The owner API: claim, renew, commit, settle, release, for a loop in any language; and the sweep that finds what lost
//! hints left behind.

pub mod sweep;
