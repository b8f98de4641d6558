//! What is printed at the start.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is a program for a terminal")]

use std::net::SocketAddr;

/// The key that always works here. It is public: the port can be reached only from this machine.
pub(crate) const DEV_KEY: &str = "keel_dev.local_not-a-secret";

/// Prints Keel's address, and commands to try it out. They work as printed.
pub(crate) fn ready(address: SocketAddr, kept: &str, dynamodb: Option<SocketAddr>) {
    let sessions = format!("http://{address}/v1/sessions");
    let auth = format!("-H 'Authorization: Bearer {DEV_KEY}'");
    println!("Keel listens on http://{address}");
    println!("The ledger is {kept}. The API key is {DEV_KEY}");
    if let Some(dynamodb) = dynamodb {
        println!("Its tables can be looked at as DynamoDB at http://{dynamodb}");
    }
    println!();
    println!("Create a session, say something, watch the answer arrive:");
    println!();
    println!("  curl -s {sessions} {auth} -d '{{\"sessionId\":\"hello\"}}'");
    println!("  curl -s {sessions}/hello/input {auth} -d '{{\"text\":\"hello keel\"}}'");
    println!("  curl -sN '{sessions}/hello/events/stream?partials=1&until=settled' {auth}");
    println!();
}

/// Prints why Keel did not start, with every cause.
pub(crate) fn failed(error: &dyn std::error::Error) {
    eprintln!("keel-local: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprintln!("  because {error}");
        cause = error.source();
    }
}
