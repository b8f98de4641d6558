//! Both protocols against servers of the tests' own, which answer in the shapes that the real ones do, badly too.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod anthropic;
#[cfg(feature = "bedrock")]
mod bedrock;
mod failures;
mod openai;
mod server;
