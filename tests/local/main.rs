//! Tests that need a Keel of their own: kills, restarts, hand-overs, load.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod drain;
mod handover;
mod load;
mod models;
mod owner_py;
mod restart;
mod tools;
mod tour_py;

use keel_tests::local::Local;
use keel_tests::{KEY, Keel, assert_gap_free, of_kind};
use serde_json::Value;

/// Starts a Keel with its ledger in a folder and short leases.
async fn start(folder: &tempfile::TempDir, more: &[&str]) -> (Local, Keel) {
    start_leasing_for(1_000, folder, more).await
}

/// The same, with leases of `lease_ms` milliseconds.
async fn start_leasing_for(lease_ms: u64, folder: &tempfile::TempDir, more: &[&str]) -> (Local, Keel) {
    let data = folder.path().to_str().unwrap();
    let lease_ms = lease_ms.to_string();
    let kept = ["--data", data, "--lease-ms", &lease_ms, "--sweep-ms", "200"];
    let local = Local::start_with(&[&kept, more].concat()).await;
    let keel = Keel::connect(&local.base, KEY);
    (local, keel)
}

/// Asserts of a settled ledger: no gap (L2), each input named by exactly one completed answer (A1, A2), one result for
/// each call (I7), no key twice (I2).
#[track_caller]
fn assert_whole(events: &[Value]) {
    assert_gap_free(events);
    let inputs: Vec<u64> =
        of_kind(events, "user.message").iter().map(|input| input["seq"].as_u64().unwrap()).collect();
    let (mut named, mut calls) = (Vec::new(), Vec::new());
    for answer in of_kind(events, "assistant.message") {
        let payload = &answer["payload"];
        if !["error", "aborted"].contains(&payload["stopReason"].as_str().unwrap()) {
            named.extend(payload["inputSeqs"].as_array().unwrap().iter().map(|seq| seq.as_u64().unwrap()));
            let blocks = payload["content"].as_array().unwrap().iter();
            calls.extend(blocks.filter(|block| block["type"] == "toolCall").map(|call| call["id"].clone()));
        }
    }
    named.sort_unstable();
    assert_eq!(named, inputs, "each input is answered once");
    let mut results: Vec<Value> =
        of_kind(events, "tool.result").iter().map(|result| result["payload"]["toolCallId"].clone()).collect();
    let by_text = |id: &Value| id.to_string();
    calls.sort_by_key(by_text);
    results.sort_by_key(by_text);
    assert_eq!(results, calls, "each call has one result");
    let mut keys: Vec<String> = events
        .iter()
        .flat_map(|event| {
            ["requestId", "generationId"].map(|key| event["payload"][key].as_str().map(str::to_owned))
        })
        .flatten()
        .collect();
    let all = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all, "no key twice");
}
