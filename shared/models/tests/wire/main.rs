//! The protocols against servers in the test, which answer as the real ones do, failures included.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod anthropic;
#[cfg(feature = "bedrock")]
mod bedrock;
mod failures;
mod openai;
mod server;
