//! What a commit costs: the figures that the architecture relies on.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{ConsumedCapacity, ReturnConsumedCapacity, TransactWriteItem, Update};

use crate::support::{client, item, key, n, put, put_new, s, step_head};

async fn client_with_head() -> Client {
    let client = client().await;
    put(&client, "state", item([("pk", s("t#1")), ("sk", s("head")), ("seq", n(0))])).await;
    client
}

fn event(seq: u64, bytes: usize) -> TransactWriteItem {
    let row = item([("pk", s("t#1")), ("sk", s(format!("e#{seq:016}"))), ("payload", s("x".repeat(bytes)))]);
    put_new("events", row)
}

fn dedupe_key(seq: u64) -> TransactWriteItem {
    let row = item([("pk", s("t#1")), ("sk", s(format!("k#inputId#{seq}"))), ("hash", s("0".repeat(64)))]);
    put_new("events", row)
}

/// The head's update by this expression, without values.
fn head(expression: &str, values: &[(&str, aws_sdk_dynamodb::types::AttributeValue)]) -> TransactWriteItem {
    let mut update =
        Update::builder().table_name("state").set_key(Some(key("t#1", "head"))).update_expression(expression);
    for (name, value) in values {
        update = update.expression_attribute_values(*name, value.clone());
    }
    TransactWriteItem::builder().update(update.build().expect("table, key and expression are given")).build()
}

async fn commit(
    client: &Client,
    actions: Vec<TransactWriteItem>,
    detail: ReturnConsumedCapacity,
) -> Vec<ConsumedCapacity> {
    let answer =
        client.transact_write_items().set_transact_items(Some(actions)).return_consumed_capacity(detail);
    answer.send().await.expect("nothing stands in the way").consumed_capacity.expect("capacity was asked for")
}

fn total(consumed: &[ConsumedCapacity]) -> f64 {
    consumed.iter().map(|table| table.capacity_units().expect("each table's units are reported")).sum()
}

#[tokio::test]
async fn a_commit_with_a_key_costs_six_units_and_one_without_costs_four() {
    let client = client_with_head().await;
    let actions = vec![step_head("t#1", 0), event(1, 600), dedupe_key(1)];
    let consumed = commit(&client, actions, ReturnConsumedCapacity::Total).await;
    println!("TOTAL: {consumed:#?}");
    assert_eq!(total(&consumed), 6.0);

    let actions = vec![step_head("t#1", 1), event(2, 600)];
    let consumed = commit(&client, actions, ReturnConsumedCapacity::Total).await;
    assert_eq!(total(&consumed), 4.0);
}

#[tokio::test]
async fn a_commits_detail_tells_the_tables_apart_and_no_index_takes_part() {
    let client = client_with_head().await;
    let actions = vec![step_head("t#1", 0), event(1, 600), dedupe_key(1)];
    let consumed = commit(&client, actions, ReturnConsumedCapacity::Indexes).await;
    println!("INDEXES: {consumed:#?}");
    assert_eq!(total(&consumed), 6.0);
    let by_table: BTreeMap<_, _> =
        consumed.iter().map(|c| (c.table_name().unwrap(), c.capacity_units())).collect();
    assert_eq!(by_table, BTreeMap::from([("events", Some(4.0)), ("state", Some(2.0))]));
    assert!(
        consumed
            .iter()
            .all(|table| table.global_secondary_indexes().is_none_or(|indexes| indexes.is_empty()))
    );
}

#[tokio::test]
async fn an_event_over_a_kilobyte_costs_two_more() {
    let client = client_with_head().await;
    let consumed =
        commit(&client, vec![step_head("t#1", 0), event(1, 1100)], ReturnConsumedCapacity::Total).await;
    assert_eq!(total(&consumed), 6.0);
}

/// Index writes are billed at their plain price also inside a transaction: one unit to enter or leave, two to move,
/// nothing for a commit that leaves the index's attributes alone. So what changes per commit must not be indexed.
#[tokio::test]
async fn the_due_index_costs_when_a_head_enters_moves_or_leaves_and_not_otherwise() {
    let client = client_with_head().await;
    let shard = (":shard", s("3"));
    let steps = [
        ("enters", head("SET dueShard = :shard, dueAt = :at", &[shard, (":at", n(10))]), 3.0, Some(1.0)),
        ("stays", head("SET seq = :seq", &[(":seq", n(1))]), 2.0, None),
        ("moves", head("SET dueAt = :at", &[(":at", n(20))]), 4.0, Some(2.0)),
        ("leaves", head("REMOVE dueShard, dueAt", &[]), 3.0, Some(1.0)),
    ];
    for (what, action, units, index_units) in steps {
        let consumed = commit(&client, vec![action], ReturnConsumedCapacity::Indexes).await;
        let index = consumed[0].global_secondary_indexes().and_then(|indexes| indexes.get("due"));
        println!("{what}: {consumed:?}");
        assert_eq!(total(&consumed), units, "{what}");
        assert_eq!(index.and_then(|due| due.capacity_units()), index_units, "{what}");
    }
}

#[tokio::test]
async fn an_empty_query_costs_half_a_unit_and_a_strong_get_one() {
    let client = client_with_head().await;
    let query = client
        .query()
        .table_name("events")
        .key_condition_expression("pk = :pk AND sk > :sk")
        .expression_attribute_values(":pk", s("t#1"))
        .expression_attribute_values(":sk", s("e#0000000000000007"))
        .return_consumed_capacity(ReturnConsumedCapacity::Total);
    let consumed = query.send().await.unwrap().consumed_capacity.unwrap();
    assert_eq!(consumed.capacity_units(), Some(0.5));

    let get = client
        .get_item()
        .table_name("state")
        .set_key(Some(key("t#1", "head")))
        .consistent_read(true)
        .return_consumed_capacity(ReturnConsumedCapacity::Total);
    let consumed = get.send().await.unwrap().consumed_capacity.unwrap();
    assert_eq!(consumed.capacity_units(), Some(1.0));
}
