//! A run that takes longer than an invocation may.

use keel_tests::{Keel, of_kind, text};
use serde_json::{Value, json};

use crate::assert_whole;

/// How often a session's run was claimed: the answer to a stale token names the current epoch.
async fn epoch(keel: &Keel, session: &str) -> u64 {
    let stale = json!({ "lease": { "owner": "nobody", "epoch": 0 } });
    let problem = keel.post(&format!("{session}/lease/renew"), stale).await.refused(409, "fenced", "");
    problem["currentEpoch"].as_u64().unwrap()
}

#[tokio::test]
async fn s5_r2_a_run_longer_than_an_invocation_finishes_in_one_attempt() {
    let keel = Keel::local(&["--invocation-ms", "3000", "--stream-ms", "1000"]).await;
    let session = keel.session_with(json!({ "maxAttempts": 1 })).await;
    let turns = "!tool sleep {\"ms\":500}\n!tool echo {}\n!then\n".repeat(12);
    keel.say(&session, &format!("{turns}!say over")).await;
    // Streams end meanwhile, and each new one goes on where the last one ended.
    let mut seen: Vec<Value> = Vec::new();
    let mut connections = 0;
    let is_over = |seen: &[Value]| !of_kind(seen, "run.finished").is_empty();
    while !is_over(&seen) {
        let last = seen.last().map(|event| event["seq"].to_string());
        let frames = keel.stream(&format!("{session}/events/stream"), last.as_deref()).await.rest().await;
        connections += 1;
        assert_eq!(frames.last().unwrap().event, "drain");
        seen.extend(frames.into_iter().filter(|frame| frame.event == "message").map(|frame| frame.data));
    }
    let row = keel.settled(&session).await;
    assert_eq!((&row["run"]["status"], &row["run"]["attempts"]), (&json!("done"), &json!(1)));
    let events = keel.events(&session).await;
    assert_eq!(seen, events, "nothing missed or repeated in {connections} connections");
    assert_whole(&events);
    assert_eq!(of_kind(&events, "run.finished").len(), 1);
    assert_eq!(of_kind(&events, "tool.result").len(), 24);
    assert_eq!(text(of_kind(&events, "assistant.message").last().unwrap()), "over");
    let claims = epoch(&keel, &session).await;
    assert!(claims > 1, "it took several invocations");
    assert!(connections > 1);
    println!("{claims} invocations, {connections} streams, {} events", events.len());
}
