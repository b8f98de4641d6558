//! Reading a range in order, in pages, and through the sparse index.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;

use crate::support::{Item, client, item, n, put, s};

async fn session_of_events(client: &Client, count: u64) {
    // Written backwards, so that the order read is that of the keys.
    for seq in (1..=count).rev() {
        put(client, "events", item([("pk", s("t#1")), ("sk", s(format!("e#{seq:016}")))])).await;
        put(client, "events", item([("pk", s("t#1")), ("sk", s(format!("k#inputId#{seq}")))])).await;
        put(client, "events", item([("pk", s("t#2")), ("sk", s(format!("e#{seq:016}")))])).await;
    }
}

fn query(client: &Client, condition: &str) -> QueryFluentBuilder {
    client
        .query()
        .table_name("events")
        .key_condition_expression(condition)
        .expression_attribute_values(":pk", s("t#1"))
}

fn sks(items: &[Item]) -> Vec<&str> {
    items.iter().map(|item| item["sk"].as_s().expect("sk is a string").as_str()).collect()
}

#[tokio::test]
async fn a_prefix_selects_events_and_leaves_their_keys_out() {
    let client = client().await;
    session_of_events(&client, 3).await;
    let answer = query(&client, "pk = :pk AND begins_with(sk, :e)")
        .expression_attribute_values(":e", s("e#"))
        .consistent_read(true)
        .send()
        .await
        .unwrap();
    assert_eq!(sks(answer.items()), ["e#0000000000000001", "e#0000000000000002", "e#0000000000000003"]);
    assert_eq!(answer.last_evaluated_key(), None);
}

#[tokio::test]
async fn a_range_includes_both_ends_and_reads_backwards_too() {
    let client = client().await;
    session_of_events(&client, 12).await;
    let range = || {
        query(&client, "pk = :pk AND sk BETWEEN :from AND :to")
            .expression_attribute_values(":from", s("e#0000000000000009"))
            .expression_attribute_values(":to", s("e#0000000000000011"))
    };
    let answer = range().send().await.unwrap();
    assert_eq!(sks(answer.items()), ["e#0000000000000009", "e#0000000000000010", "e#0000000000000011"]);
    let answer = range().scan_index_forward(false).limit(1).send().await.unwrap();
    assert_eq!(sks(answer.items()), ["e#0000000000000011"]);
}

#[tokio::test]
async fn pages_follow_each_other_without_gap_or_overlap() {
    let client = client().await;
    session_of_events(&client, 7).await;
    let (mut read, mut pages, mut from) = (Vec::new(), 0, None);
    loop {
        let answer = query(&client, "pk = :pk AND begins_with(sk, :e)")
            .expression_attribute_values(":e", s("e#"))
            .limit(3)
            .set_exclusive_start_key(from)
            .send()
            .await
            .unwrap();
        pages += 1;
        read.extend(sks(answer.items()).into_iter().map(str::to_owned));
        from = answer.last_evaluated_key.clone();
        if from.is_none() {
            break;
        }
    }
    let all: Vec<_> = (1..=7).map(|seq| format!("e#{seq:016}")).collect();
    assert_eq!((read, pages), (all, 3));
}

#[tokio::test]
async fn the_due_index_holds_only_what_is_due_and_forgets_it_again() {
    let client = client().await;
    put(&client, "state", item([("pk", s("t#1")), ("sk", s("head"))])).await;
    for (session, due) in [("t#2", 20), ("t#3", 10), ("t#4", 30)] {
        let head = item([
            ("pk", s(session)),
            ("sk", s("head")),
            ("dueShard", s("0")),
            ("dueAt", n(due)),
            ("x", n(1)),
        ]);
        put(&client, "state", head).await;
    }
    let due = || {
        client
            .query()
            .table_name("state")
            .index_name("due")
            .key_condition_expression("dueShard = :shard AND dueAt <= :now")
            .expression_attribute_values(":shard", s("0"))
            .expression_attribute_values(":now", n(20))
            .send()
    };
    let answer = due().await.unwrap();
    let sessions: Vec<&AttributeValue> = answer.items().iter().map(|item| &item["pk"]).collect();
    assert_eq!(sessions, [&s("t#3"), &s("t#2")], "in order of time, numerically");
    assert!(!answer.items()[0].contains_key("x"), "keys only");

    let clear = client
        .update_item()
        .table_name("state")
        .key("pk", s("t#3"))
        .key("sk", s("head"))
        .update_expression("REMOVE dueShard, dueAt");
    clear.send().await.unwrap();
    assert_eq!(due().await.unwrap().count(), 1);
}
