//! D: when an input enters the context.

use keel_tests::{Keel, assistant_calls, assistant_message, input_seqs, kinds, of_kind, result, text};
use serde_json::{Value, json};

async fn guide(keel: &Keel, session: &str, text: &str) -> Value {
    keel.post(&format!("{session}/input"), json!({ "text": text, "delivery": "guide" })).await.ok(201)
}

#[tokio::test]
async fn d1_delivery_is_queue_or_guide_and_absent_means_queue() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    assert_eq!(keel.say(&session, "x").await["delivery"], "queue");
    let before = keel.ledger(&session).await;
    for bad in [json!("Queue"), json!(""), json!("now"), json!(null), json!(1), json!(["queue"])] {
        let input = json!({ "text": "x", "delivery": bad });
        keel.post(&format!("{session}/input"), input.clone()).await.refused(
            400,
            "invalid_payload",
            "/delivery",
        );
        let event = json!({ "kind": "user.message", "payload": input });
        keel.post(&format!("{session}/events"), event).await.refused(400, "invalid_payload", "/delivery");
    }
    assert_eq!(keel.ledger(&session).await, before);
}

#[tokio::test]
async fn d2_queued_input_is_answered_by_the_next_run() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    keel.say(&session, "!tool sleep {\"ms\":2000}\n!then\n!say one").await;
    keel.wait_for_seq(&session, 2).await; // the call is committed
    let queued = keel.say(&session, "two").await;
    assert_eq!((&queued["delivery"], &queued["run"]["status"]), (&json!("queue"), &json!("running")));
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    let expected = [
        "user.message",
        "assistant.message",
        "user.message",
        "tool.result",
        "assistant.message",
        "run.finished",
        "assistant.message",
        "run.finished",
    ];
    assert_eq!(kinds(&events), expected);
    assert_eq!(input_seqs(&events), [&json!([1]), &json!([]), &json!([3])]);
    assert_eq!(text(&events[4]), "one", "the current run did not present it");
    assert_eq!(text(&events[6]), "You said: two");
}

/// The same if nothing but the input is committed between the claim and the settle.
#[tokio::test]
async fn d2_s4_input_queued_during_a_stream_is_answered_by_the_next_run() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    let mut stream = keel.stream(&format!("{session}/events/stream?partials=1"), None).await;
    keel.say(&session, "!stream 20 50").await;
    while stream.next().await.expect("more frames").event != "partial" {}
    assert_eq!(keel.say(&session, "two").await["run"]["status"], "running");
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    assert_eq!(input_seqs(&events), [&json!([1]), &json!([2])]);
    assert_eq!(of_kind(&events, "run.finished").len(), 2);
}

#[tokio::test]
async fn d3_guides_enter_the_run_one_per_request_behind_the_tool_results() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    keel.say(&session, "!tool sleep {\"ms\":2000}\n!tool echo {}\n!then\n!say unguided").await;
    keel.wait_for_seq(&session, 3).await; // the quick call's result; the slow one still runs
    let guides = [guide(&keel, &session, "left").await, guide(&keel, &session, "right").await];
    assert!(guides.iter().all(|guide| guide["delivery"] == "guide"));
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    assert_eq!(of_kind(&events, "run.finished").len(), 1, "all in one run");
    let [first, second] = [&guides[0]["seq"], &guides[1]["seq"]];
    assert_eq!(input_seqs(&events), [&json!([1]), &json!([first]), &json!([second])]);
    let last_result = of_kind(&events, "tool.result").last().unwrap()["seq"].as_u64();
    let answers = of_kind(&events, "assistant.message");
    assert!(answers[1]["seq"].as_u64() > last_result, "after every sibling's result");
    assert_eq!((text(answers[1]), text(answers[2])), ("You said: left".into(), "You said: right".into()));
}

#[tokio::test]
async fn d4_a_guide_without_an_active_attempt_is_a_queue_and_the_answer_says_so() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    // Without a run, then with a pending one: no attempt is active.
    for expected in [1, 2] {
        let submitted = guide(&keel, &session, "x").await;
        assert_eq!((&submitted["seq"], &submitted["delivery"]), (&json!(expected), &json!("queue")));
    }
    let lease = keel.claim(&session, "me").await;
    assert_eq!(guide(&keel, &session, "x").await["delivery"], "guide");
    keel.commit(&session, &lease, assistant_message("g", "x", &[1, 2, 3])).await.ok(200);
    keel.settle(&session, &lease, "succeeded").await.ok(200);
    assert_eq!(guide(&keel, &session, "x").await["delivery"], "queue", "the attempt is over");
    let events = keel.events(&session).await;
    let delivered: Vec<&Value> =
        of_kind(&events, "user.message").iter().map(|input| &input["payload"]["delivery"]).collect();
    assert_eq!(delivered, ["queue", "queue", "guide", "queue"]);
}

/// D4: the check and the write are one step. Whether the settle or the guide comes first, the response agrees with the ledger.
#[tokio::test]
async fn d4_a_guide_that_races_the_settle_is_what_its_answer_says() {
    let keel = Keel::without_worker().await;
    for _ in 0..10 {
        let session = keel.session().await;
        keel.say(&session, "x").await;
        let lease = keel.claim(&session, "me").await;
        keel.commit(&session, &lease, assistant_message("g", "x", &[1])).await.ok(200);
        let (settled, guided) =
            tokio::join!(keel.settle(&session, &lease, "succeeded"), guide(&keel, &session, "y"));
        let settled = settled.ok(200);
        let events = keel.events(&session).await;
        let [finished, input] = ["run.finished", "user.message"]
            .map(|kind| of_kind(&events, kind).last().unwrap()["seq"].as_u64().unwrap());
        assert_eq!(events[input as usize - 1]["payload"]["delivery"], guided["delivery"]);
        // Before the settle the attempt was active, and the settle saw the input (S4); afterwards no attempt was active.
        let (delivery, status) = if input < finished { ("guide", "pending") } else { ("queue", "done") };
        assert_eq!(guided["delivery"], delivery);
        assert_eq!(settled["run"]["status"], status);
        assert_eq!(keel.get(&session).await.ok(200)["run"]["status"], "pending");
    }
}

#[tokio::test]
async fn d5_a_guide_that_comes_during_a_stream_is_not_among_what_its_answer_saw() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    let mut stream = keel.stream(&format!("{session}/events/stream?partials=1"), None).await;
    keel.say(&session, "!stream 40 50").await;
    while stream.next().await.expect("more frames").event != "partial" {}
    let guided = guide(&keel, &session, "and this").await; // during the request
    assert_eq!(guided["delivery"], "guide");
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    let expected = ["user.message", "user.message", "assistant.message", "assistant.message", "run.finished"];
    assert_eq!(kinds(&events), expected);
    assert_eq!(input_seqs(&events), [&json!([1]), &json!([2])]);
    assert!(text(&events[2]).ends_with("word39 "), "its stream was not interrupted (D3)");
}

/// D5: an owner outside Keel also names what its request presented, whatever was committed meanwhile.
#[tokio::test]
async fn d5_an_owners_answer_names_its_snapshot() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "one").await;
    let lease = keel.claim(&session, "me").await;
    guide(&keel, &session, "two").await;
    keel.commit(&session, &lease, assistant_calls("g1", &["c"], &[1])).await.ok(200);
    let head = keel.commit(&session, &lease, result("c")).await.ok(200)["head"].clone();
    assert_eq!(head["unanswered"], json!([2]));
}
