//! SIGTERM: streams drain, runs are handed over, the process ends well.

use keel_tests::sse::Frame;
use keel_tests::{input_seqs, kinds, of_kind, text};
use serde_json::json;

use crate::{assert_whole, start, start_leasing_for};

#[tokio::test]
async fn r4_s5_a_terminated_process_drains_its_streams_and_hands_its_runs_over() {
    let folder = tempfile::tempdir().unwrap();
    let (mut local, keel) = start_leasing_for(60_000, &folder, &[]).await;
    // Only one attempt is allowed: if the hand-over counted, the run would fail.
    let session = keel.session_with(json!({ "maxAttempts": 1 })).await;
    let path = format!("{session}/events/stream?partials=1");
    let mut stream = keel.stream(&path, None).await;
    keel.say(&session, "!stream 60 50").await;
    let mut frames: Vec<Frame> = Vec::new();
    while !frames.iter().any(|frame| frame.event == "partial") {
        frames.push(stream.next().await.expect("more frames"));
    }
    local.terminate().await;
    frames.extend(stream.rest().await);
    let last = frames.last().unwrap();
    assert_eq!((last.event.as_str(), &last.data), ("drain", &json!({ "retry_after_ms": 3000 })));
    assert_eq!((last.id.as_str(), last.retry), ("1", Some(3000)));
    assert!(local.ended().await, "it ends well");

    // The lease would have held for a minute: so the run was handed over.
    let (_local, keel) = start_leasing_for(60_000, &folder, &[]).await;
    let rest = keel.stream(&format!("{session}/events/stream?until=settled"), Some("1")).await.rest().await;
    let ids: Vec<&str> =
        rest.iter().filter(|frame| frame.event == "message").map(|f| f.id.as_str()).collect();
    assert_eq!(ids, ["2", "3"], "the next stream goes on at cursor + 1");
    let row = keel.settled(&session).await;
    assert_eq!((&row["run"]["status"], &row["run"]["attempts"]), (&json!("done"), &json!(1)));
    let events = keel.events(&session).await;
    assert_whole(&events);
    assert_eq!(kinds(&events), ["user.message", "assistant.message", "run.finished"]);
    assert_eq!(events[2]["payload"]["attempt"], 1);
    assert!(text(&events[1]).ends_with("word59 "));
}

#[tokio::test]
async fn c5_input_during_a_drain_is_consumed_by_the_next_owner() {
    let folder = tempfile::tempdir().unwrap();
    let (mut local, keel) = start(&folder, &[]).await;
    let session = keel.session_with(json!({ "maxAttempts": 1 })).await;
    keel.say(&session, "!tool sleep {\"ms\":2000}\n!then\n!say slept").await;
    keel.wait_for_seq(&session, 2).await;
    keel.say(&session, "meanwhile").await;
    local.terminate().await;
    assert!(local.ended().await);

    let (_local, keel) = start(&folder, &[]).await;
    let row = keel.settled(&session).await;
    assert_eq!((&row["run"]["status"], &row["unanswered"]), (&json!("done"), &json!([])));
    let events = keel.events(&session).await;
    assert_whole(&events);
    assert_eq!(input_seqs(&events), [&json!([1]), &json!([]), &json!([3])]);
    assert_eq!(of_kind(&events, "run.finished").len(), 2, "no attempt was settled by the drain");
}
