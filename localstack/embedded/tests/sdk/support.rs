//! A store with its tables, and short names for attribute values.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeValue, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use keel_embedded::{Embedded, tables};

pub(crate) type Item = HashMap<String, AttributeValue>;

pub(crate) async fn client() -> Client {
    let client = Embedded::memory().expect("a store in memory opens").client();
    tables::create_missing(&client, "").await.expect("an empty store takes the tables");
    client
}

pub(crate) fn s(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(crate) fn n(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub(crate) fn map<const N: usize>(members: [(&str, AttributeValue); N]) -> AttributeValue {
    AttributeValue::M(item(members))
}

pub(crate) fn item<const N: usize>(members: [(&str, AttributeValue); N]) -> Item {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(crate) fn key(pk: &str, sk: &str) -> Item {
    item([("pk", s(pk)), ("sk", s(sk))])
}

/// A put on condition that the item is absent; a refusal carries the item that is there.
pub(crate) fn put_new(table: &str, item: Item) -> TransactWriteItem {
    let put = Put::builder()
        .table_name(table)
        .set_item(Some(item))
        .condition_expression("attribute_not_exists(pk)")
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .build()
        .expect("table and item are given");
    TransactWriteItem::builder().put(put).build()
}

/// The head's step from `seq` to the next, on condition that it stands there.
pub(crate) fn step_head(pk: &str, seq: u64) -> TransactWriteItem {
    let update = Update::builder()
        .table_name("state")
        .set_key(Some(key(pk, "head")))
        .update_expression("SET seq = :next")
        .condition_expression("seq = :seq")
        .expression_attribute_values(":seq", n(seq))
        .expression_attribute_values(":next", n(seq + 1))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .build()
        .expect("table, key and expression are given");
    TransactWriteItem::builder().update(update).build()
}

pub(crate) async fn put(client: &Client, table: &str, item: Item) {
    client
        .put_item()
        .table_name(table)
        .set_item(Some(item))
        .send()
        .await
        .expect("an unconditional put succeeds");
}

pub(crate) async fn get(client: &Client, table: &str, pk: &str, sk: &str) -> Option<Item> {
    let answer =
        client.get_item().table_name(table).set_key(Some(key(pk, sk))).consistent_read(true).send().await;
    answer.expect("a get succeeds").item
}
