//! What only a deployment with a real queue shows: `make e2e` says where it is. Nothing else runs these tests
//! (`.config/nextest.toml`), and without their variables they fail.

use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::QueueAttributeName;
use keel_tests::{Keel, TIMEOUT, kinds, var};
use serde_json::json;

fn needed(name: &str) -> String {
    var(name).unwrap_or_else(|| panic!("{name} is not set: make up, make e2e"))
}

/// The queues' own address.
fn sqs() -> Client {
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(needed("KEEL_AWS_URL"))
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "the emulator's"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .build();
    Client::from_conf(config)
}

#[tokio::test]
async fn a_message_that_is_no_hint_ends_in_the_dead_letter_queue() {
    let (sqs, hints, dead) = (sqs(), needed("KEEL_HINTS_URL"), needed("KEEL_DEAD_HINTS_URL"));
    let poison = format!("no hint {}", std::process::id());
    sqs.send_message().queue_url(&hints).message_group_id("dev").message_body(&poison).send().await.unwrap();
    let waiting = async {
        loop {
            let received = sqs
                .receive_message()
                .queue_url(&dead)
                .wait_time_seconds(5)
                .max_number_of_messages(10)
                .send()
                .await
                .unwrap();
            for message in received.messages() {
                if message.body() == Some(&poison) {
                    return message.receipt_handle().unwrap().to_owned();
                }
            }
        }
    };
    let receipt = tokio::time::timeout(TIMEOUT, waiting).await.expect("the queue gives up on it");
    sqs.delete_message().queue_url(&dead).receipt_handle(receipt).send().await.unwrap();

    // The input beside it was answered.
    let keel = Keel::start().await;
    let session = keel.session().await;
    keel.say(&session, "hello").await;
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    assert_eq!(kinds(&keel.events(&session).await), ["user.message", "assistant.message", "run.finished"]);
}

/// A valid hint for a run that always fails: the kernel counts its attempts, not the queue.
#[tokio::test]
async fn s_a_run_that_fails_every_time_is_settled_failed_with_its_reason() {
    let keel = Keel::start().await;
    let session = keel.session_with(json!({ "maxAttempts": 2 })).await;
    keel.say(&session, "!fail 9").await;
    let row = keel.settled(&session).await;
    assert_eq!((&row["run"]["status"], &row["run"]["reason"]), (&json!("failed"), &json!("attempts_spent")));
    assert_eq!((&row["run"]["attempts"], &row["unanswered"]), (&json!(2), &json!([1])));
}

#[tokio::test]
async fn hints_that_come_many_times_are_answered_once() {
    let keel = Keel::start().await;
    let (sqs, hints) = (sqs(), needed("KEEL_HINTS_URL"));
    let session = keel.session().await;
    keel.say(&session, "!stream 60 50").await;
    let hint = json!({ "tenant": "dev", "session": session.rsplit('/').next().unwrap() }).to_string();
    for _ in 0..5 {
        sqs.send_message()
            .queue_url(&hints)
            .message_group_id("dev")
            .message_body(&hint)
            .send()
            .await
            .unwrap();
    }
    let row = keel.get(&session).await.ok(200);
    assert_ne!(row["run"]["status"], "done", "the hints came before the run was over");
    let row = keel.settled(&session).await;
    assert_eq!((&row["run"]["status"], &row["run"]["attempts"]), (&json!("done"), &json!(1)));
    until_drained(&sqs, &hints).await;
    assert_eq!(kinds(&keel.events(&session).await), ["user.message", "assistant.message", "run.finished"]);
    let row = keel.get(&session).await.ok(200);
    assert_eq!((&row["run"]["status"], &row["run"]["attempts"]), (&json!("done"), &json!(1)));
}

/// Waits until the queue holds nothing, neither waiting nor being worked on: then every hint of ours was taken.
async fn until_drained(sqs: &Client, queue: &str) {
    use QueueAttributeName::{
        ApproximateNumberOfMessages as Waiting, ApproximateNumberOfMessagesNotVisible as Taken,
    };
    let draining = async {
        loop {
            let asked =
                sqs.get_queue_attributes().queue_url(queue).attribute_names(Waiting).attribute_names(Taken);
            let counts = asked.send().await.expect("the queue answers").attributes.expect("it has counts");
            if (counts[&Waiting].as_str(), counts[&Taken].as_str()) == ("0", "0") {
                return;
            }
            // Not to be lucky: only so as not to ask a thousand times a second. PATIENCE bounds the whole.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, draining).await.expect("the queue is drained");
}
