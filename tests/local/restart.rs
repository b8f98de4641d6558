//! `kill -9`, and starting again on the same folder.

use keel_tests::{input_seqs, kinds, of_kind, text};
use serde_json::json;

use crate::{assert_whole, start};

#[tokio::test]
async fn l2_a2_a_run_killed_in_the_middle_of_its_stream_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let (local, keel) = start(&folder, &[]).await;
    let session = keel.session().await;
    let mut stream = keel.stream(&format!("{session}/events/stream?partials=1"), None).await;
    keel.say(&session, "!stream 40 50").await;
    while stream.next().await.expect("more frames").event != "partial" {}
    keel.say(&session, "and this").await;
    local.kill().await;

    let (_local, keel) = start(&folder, &[]).await;
    let row = keel.settled(&session).await;
    assert_eq!((&row["run"]["status"], &row["unanswered"]), (&json!("done"), &json!([])));
    let events = keel.events(&session).await;
    assert_whole(&events);
    let expected = [
        "user.message",
        "user.message",
        "assistant.message",
        "run.finished",
        "assistant.message",
        "run.finished",
    ];
    assert_eq!(kinds(&events), expected, "of the killed attempt nothing is left");
    assert_eq!(input_seqs(&events), [&json!([1]), &json!([2])], "the watermark survived the kill (A5)");
    assert_eq!(events[3]["payload"]["attempt"], 2, "a kill is an attempt, a hand-over is not");
}

#[tokio::test]
async fn i7_a_run_killed_between_its_tools_keeps_the_results_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let (local, keel) = start(&folder, &[]).await;
    let session = keel.session().await;
    keel.say(&session, "!tool echo {\"x\":1}\n!tool sleep {\"ms\":1500}\n!then\n!say ok").await;
    keel.wait_for_seq(&session, 3).await; // the quick call's result
    let before = keel.events(&session).await;
    local.kill().await;

    let (_local, keel) = start(&folder, &[]).await;
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    assert_whole(&events);
    assert_eq!(events[..3], before[..3], "what was committed stands as it was");
    assert_eq!(of_kind(&events, "tool.result").len(), 2);
    assert_eq!(text(of_kind(&events, "assistant.message")[1]), "ok");
}

#[tokio::test]
async fn a2_an_input_whose_process_is_killed_before_the_answer_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let (local, keel) = start(&folder, &["--no-worker"]).await;
    let session = keel.session().await;
    let request = json!({ "requestId": "r1", "text": "hello" });
    let first = keel.post(&format!("{session}/input"), request.clone()).await.ok(201);
    local.kill().await;

    let (_local, keel) = start(&folder, &[]).await;
    // The client does not know whether its request was carried out, and sends it again (I6).
    let again = keel.post(&format!("{session}/input"), request).await.ok(200);
    assert_eq!((&again["created"], &again["seq"]), (&json!(false), &first["seq"]));
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    assert_whole(&events);
    assert_eq!(kinds(&events), ["user.message", "assistant.message", "run.finished"]);
}

/// However often the process is killed, and at whatever point: inputs are answered once.
#[tokio::test]
async fn l2_a2_kills_at_any_moment_lose_and_double_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (mut local, mut keel) = start(&folder, &[]).await;
    let session = keel.session_with(json!({ "maxAttempts": 20 })).await;
    let mut seqs = Vec::new();
    for life in 0..4 {
        for n in 0..3 {
            let script = "!tool echo {}\n!then\n!stream 3 20";
            let body = json!({ "requestId": format!("r{life}.{n}"), "text": script });
            seqs.push(keel.post(&format!("{session}/input"), body).await.ok(201)["seq"].as_u64().unwrap());
        }
        // Killed after this many further events: each time at another point of the run.
        keel.wait_for_seq(&session, seqs.last().unwrap() + life).await;
        local.kill().await;
        (local, keel) = start(&folder, &[]).await;
    }
    let row = keel.settled(&session).await;
    assert_eq!((&row["run"]["status"], &row["unanswered"]), (&json!("done"), &json!([])));
    let events = keel.events(&session).await;
    assert_whole(&events);
    let inputs: Vec<u64> =
        of_kind(&events, "user.message").iter().map(|input| input["seq"].as_u64().unwrap()).collect();
    assert_eq!(inputs, seqs, "each at the seq in the answer to its sender");
    drop(local);
}

#[tokio::test]
async fn l1_the_ledger_is_kept_across_a_clean_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (mut local, keel) = start(&folder, &[]).await;
    let session = keel.session_with(json!({ "title": "kept" })).await;
    keel.say(&session, "!tool echo {\"x\":1.50}\n!then\n!say ok").await;
    let row = keel.settled(&session).await;
    let ledger = keel.ledger(&session).await;
    local.terminate().await;
    assert!(local.ended().await);

    let (_local, keel) = start(&folder, &[]).await;
    assert_eq!(keel.ledger(&session).await, ledger, "byte for byte");
    assert_eq!(keel.get(&session).await.ok(200), row);
    keel.say(&session, "and on").await;
    keel.settled(&session).await;
    assert_whole(&keel.events(&session).await);
}
