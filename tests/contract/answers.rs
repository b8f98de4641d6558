//! A: answers, and what they name.

use keel_tests::{Keel, assistant_calls, assistant_message, input_seqs, kinds, lease, of_kind, result, text};
use serde_json::{Value, json};

fn failed(generation: &str, stop_reason: &str, seqs: &[u64]) -> Value {
    let mut message = assistant_message(generation, "half of an ans", seqs);
    message["payload"]["stopReason"] = json!(stop_reason);
    message
}

#[tokio::test]
async fn a1_an_answer_names_exactly_the_inputs_it_was_first_shown() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    // The request after a tool result presents no new input.
    keel.say(&session, "!tool echo {\"x\":1}\n!then\n!say seen").await;
    keel.settled(&session).await;
    assert_eq!(input_seqs(&keel.events(&session).await), [&json!([1]), &json!([])]);
    // Three inputs that no answer has named, one of them new, are all named by the answer to a request that presents them.
    let held = keel.say(&session, "!hang").await["seq"].clone();
    keel.until(&session, |row| row["run"]["status"] == "running").await;
    let queued = keel.say(&session, "wait").await["seq"].clone();
    keel.post(&format!("{session}/cancel"), json!({})).await.ok(200);
    assert_eq!(keel.settled(&session).await["run"]["status"], "failed");
    let last = keel.say(&session, "now").await["seq"].clone();
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    let named = input_seqs(&events);
    assert_eq!(*named.last().unwrap(), &json!([held, queued, last]));
    assert_eq!(text(of_kind(&events, "assistant.message").last().unwrap()), "You said: !hang | wait | now");
}

#[tokio::test]
async fn a1_an_owner_names_unanswered_inputs_only() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "one").await;
    let lease = keel.claim(&session, "me").await;
    keel.commit(&session, &lease, assistant_message("g1", "x", &[1])).await.ok(200);
    let before = keel.ledger(&session).await;
    // An input that is answered; an answer; a seq that does not exist.
    for seq in [1, 2, 9] {
        let problem = keel.commit(&session, &lease, assistant_message("g2", "x", &[seq])).await;
        assert_eq!(problem.refused(400, "invalid_payload", "/inputSeqs")["rule"], "A1");
    }
    assert_eq!(keel.ledger(&session).await, before);
}

#[tokio::test]
async fn a2_only_a_completed_answer_that_names_an_input_answers_it() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "one").await;
    keel.say(&session, "two").await;
    let lease = keel.claim(&session, "me").await;
    let unanswered = async || keel.get(&session).await.ok(200)["unanswered"].clone();
    for (generation, stop_reason) in [("g1", "error"), ("g2", "aborted")] {
        keel.commit(&session, &lease, failed(generation, stop_reason, &[1, 2])).await.ok(200);
        assert_eq!(unanswered().await, json!([1, 2]), "{stop_reason}");
    }
    keel.commit(&session, &lease, assistant_message("g3", "x", &[])).await.ok(200);
    assert_eq!(unanswered().await, json!([1, 2]), "it was named by nobody");
    keel.commit(&session, &lease, assistant_message("g4", "x", &[2])).await.ok(200);
    assert_eq!(unanswered().await, json!([1]));
    let inputs = keel.get(&format!("{session}/inputs")).await.ok(200);
    assert_eq!(inputs["inputs"][0]["answeredBy"], Value::Null);
    assert_eq!(inputs["inputs"][1]["answeredBy"], 6);
}

#[tokio::test]
async fn a3_a_failed_message_never_enters_the_context_and_a_turn_is_owed() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    // The model counts the answers in its context: if the failed one were among them, it would be at `second`.
    keel.say(&session, "!fail 1\n!say first\n!then\n!say second").await;
    let row = keel.settled(&session).await;
    assert_eq!((&row["run"]["status"], &row["run"]["attempts"]), (&json!("done"), &json!(2)));
    let events = keel.events(&session).await;
    let expected = ["user.message", "assistant.message", "run.finished", "assistant.message", "run.finished"];
    assert_eq!(kinds(&events), expected);
    assert_eq!(events[1]["payload"]["stopReason"], "error");
    assert_eq!(text(&events[3]), "first");
    assert_eq!(input_seqs(&events), [&json!([1]), &json!([1])], "the failed one answered nothing (A2)");
}

#[tokio::test]
async fn a3_a_turn_is_owed_where_every_call_has_its_result() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    keel.say(&session, "!tool echo {}\n!then\n!fail 1\n!say after").await;
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    assert_eq!(of_kind(&events, "tool.result").len(), 1, "the tool is not run again");
    let answers = of_kind(&events, "assistant.message");
    assert_eq!(answers[1]["payload"]["stopReason"], "error");
    assert_eq!(text(answers[2]), "after");
}

#[tokio::test]
async fn a3_an_owed_turn_is_seen_by_owners_and_starts_a_run() {
    let keel = Keel::without_worker().await;
    let session = keel.session_with(json!({ "maxAttempts": 1 })).await;
    keel.say(&session, "x").await;
    let lease = keel.claim(&session, "me").await;
    keel.commit(&session, &lease, assistant_calls("g1", &["c1"], &[1])).await.ok(200);
    keel.commit(&session, &lease, result("c1")).await.ok(200);
    let head = keel.commit(&session, &lease, failed("g2", "error", &[])).await.ok(200)["head"].clone();
    assert_eq!(
        (&head["owedTurn"], &head["openCalls"], &head["unanswered"]),
        (&json!(true), &json!([]), &json!([]))
    );
    // A success while a turn is owed is treated as a failure.
    assert_eq!(keel.settle(&session, &lease, "succeeded").await.ok(200)["run"]["status"], "failed");
    assert_eq!(keel.post(&format!("{session}/run"), json!({})).await.ok(200)["queued"], true);
    assert_eq!(keel.ask(&session, "me").await.ok(200)["head"]["owedTurn"], true);
}

#[tokio::test]
async fn a4_the_watermark_decides_until_an_answer_carries_input_seqs() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    let legacy = |generation: &str| {
        let mut message = assistant_message(generation, "x", &[]);
        message["payload"].as_object_mut().unwrap().remove("inputSeqs");
        message
    };
    keel.say(&session, "one").await;
    keel.say(&session, "two").await;
    let claimed = keel.ask(&session, "me").await.ok(200);
    assert_eq!(claimed["head"]["run"]["readWatermark"], 2);
    let first = lease(&claimed);
    keel.say(&session, "three").await;
    let head = keel.commit(&session, &first, legacy("g1")).await.ok(200)["head"].clone();
    assert_eq!(head["unanswered"], json!([3]), "what was there when the run was claimed is answered");
    assert_eq!(keel.settle(&session, &first, "succeeded").await.ok(200)["run"]["status"], "pending");
    // From the first message with inputSeqs on, one without them answers nothing.
    let second = keel.claim(&session, "me").await;
    keel.commit(&session, &second, assistant_message("g2", "x", &[3])).await.ok(200);
    keel.settle(&session, &second, "succeeded").await.ok(200);
    let seq = keel.say(&session, "four").await["seq"].clone();
    let third = keel.claim(&session, "me").await;
    let head = keel.commit(&session, &third, legacy("g3")).await.ok(200)["head"].clone();
    assert_eq!(head["unanswered"], json!([seq]));
}

#[tokio::test]
async fn a5_pending_input_and_watermark_survive_a_release() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "one").await;
    let first = keel.claim(&session, "first").await;
    keel.say(&session, "two").await;
    keel.release(&session, &first).await.ok(200);
    let row = keel.get(&session).await.ok(200);
    assert_eq!((&row["pendingInput"], &row["run"]["readWatermark"]), (&json!(true), &json!(1)));
    let head = keel.ask(&session, "second").await.ok(200)["head"].clone();
    assert_eq!((&head["run"]["readWatermark"], &head["unanswered"]), (&json!(1), &json!([1, 2])));
}

#[tokio::test]
async fn a5_pending_input_and_watermark_survive_a_takeover() {
    let keel = Keel::without_worker_leasing_for(300).await;
    let session = keel.session().await;
    keel.say(&session, "one").await;
    let first = keel.claim(&session, "first").await;
    keel.say(&session, "two").await;
    // The first owner sends nothing more, and its lease runs out.
    let id = session.rsplit('/').next().unwrap();
    let body = json!({ "owner": "second", "sessionId": id, "waitSeconds": 20 });
    let taken = loop {
        let asked = keel.post("/v1/runs/claim", body.clone()).await;
        if asked.status == 200 {
            break asked.json();
        }
        assert_eq!(asked.status, 204);
    };
    let head = &taken["head"];
    assert_eq!((&head["run"]["readWatermark"], &head["unanswered"]), (&json!(1), &json!([1, 2])));
    assert_eq!((&taken["lease"]["epoch"], &head["run"]["attempts"]), (&json!(2), &json!(2)));
    keel.commit(&session, &first, assistant_message("g", "late", &[1])).await.refused(409, "fenced", "");
}
