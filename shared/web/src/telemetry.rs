//! Logs: JSON lines for machines, or short lines for a person at a terminal.

use tracing_subscriber::EnvFilter;

/// Who reads the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A log service.
    Machine,
    /// A person.
    Person,
}

/// Starts logging to standard error. `filter` is a directive as of `RUST_LOG`; one that does not parse logs at `info`.
pub fn start(reader: Reader, filter: &str) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match reader {
        Reader::Machine => builder.json().flatten_event(true).with_target(false).init(),
        Reader::Person => builder.compact().with_target(false).init(),
    }
}
