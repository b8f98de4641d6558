//! Keel on one machine: every function in one process, over a store that is embedded in it.
//!
//! The routers and handlers are the deployed ones, and the store is called through the real AWS SDK. Only what one machine does
//! not have is replaced: SQS by a channel, the schedule by a timer.

mod banner;
mod dynamodb;
mod error;
mod options;
mod stack;

use std::process::ExitCode;

use clap::Parser as _;
use keel_web::telemetry;

use options::Options;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    telemetry::start(telemetry::Reader::Person, &options.log);
    match stack::run(&options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            banner::failed(&error);
            ExitCode::FAILURE
        }
    }
}
