//! Transactions: all or nothing, each obstacle named, and a token that makes a repetition harmless.

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::error::TransactionCanceledException;
use aws_sdk_dynamodb::types::{Get, TransactGetItem, TransactWriteItem, Update};

use crate::support::{Item, client, get, item, key, n, put, put_new, s, step_head};

fn head(seq: u64) -> Item {
    item([("pk", s("t#1")), ("sk", s("head")), ("seq", n(seq))])
}

fn event(seq: u64, text: &str) -> Item {
    item([("pk", s("t#1")), ("sk", s(format!("e#{seq:016}"))), ("payload", s(text))])
}

fn canceled(error: TransactWriteItemsError) -> TransactionCanceledException {
    match error {
        TransactWriteItemsError::TransactionCanceledException(canceled) => canceled,
        other => panic!("not a cancellation: {other:?}"),
    }
}

#[tokio::test]
async fn a_refusal_names_every_obstacle_with_its_item_and_writes_nothing() {
    let client = client().await;
    put(&client, "state", head(5)).await;
    put(&client, "events", event(4, "there")).await;
    let key_row = item([("pk", s("t#1")), ("sk", s("k#inputId#a")), ("seq", n(4))]);
    let refused = client
        .transact_write_items()
        .transact_items(step_head("t#1", 3))
        .transact_items(put_new("events", event(4, "mine")))
        .transact_items(put_new("events", key_row))
        .send()
        .await
        .unwrap_err();
    let refused = canceled(refused.into_service_error());
    let reasons = refused.cancellation_reasons();
    let codes: Vec<_> = reasons.iter().map(|reason| reason.code().unwrap()).collect();
    assert_eq!(codes, ["ConditionalCheckFailed", "ConditionalCheckFailed", "None"]);
    assert_eq!(reasons[0].item, Some(head(5)));
    assert_eq!(reasons[1].item, Some(event(4, "there")));
    assert_eq!(reasons[2].item, None);

    assert_eq!(get(&client, "state", "t#1", "head").await, Some(head(5)));
    assert_eq!(get(&client, "events", "t#1", "k#inputId#a").await, None);
}

#[tokio::test]
async fn a_condition_on_an_absent_item_fails_without_an_item() {
    let client = client().await;
    let refused = client.transact_write_items().transact_items(step_head("t#9", 1)).send().await.unwrap_err();
    let refused = canceled(refused.into_service_error());
    assert_eq!(refused.cancellation_reasons()[0].code(), Some("ConditionalCheckFailed"));
    assert_eq!(refused.cancellation_reasons()[0].item, None);
}

#[tokio::test]
async fn a_token_that_comes_again_is_a_success_that_writes_nothing() {
    let client = client().await;
    put(&client, "state", head(0)).await;
    let count = Update::builder()
        .table_name("state")
        .set_key(Some(key("t#1", "head")))
        .update_expression("ADD seq :one")
        .expression_attribute_values(":one", n(1))
        .build()
        .unwrap();
    let count = TransactWriteItem::builder().update(count).build();
    let send = |token: &str| {
        client.transact_write_items().transact_items(count.clone()).client_request_token(token).send()
    };
    send("token-1").await.unwrap();
    send("token-1").await.unwrap();
    assert_eq!(get(&client, "state", "t#1", "head").await, Some(head(1)));
    send("token-2").await.unwrap();
    assert_eq!(get(&client, "state", "t#1", "head").await, Some(head(2)));

    // The token stands for one request's items; with others it is a mistake, not a repetition.
    let other =
        client.transact_write_items().transact_items(step_head("t#1", 2)).client_request_token("token-1");
    let refused = other.send().await.unwrap_err().into_service_error();
    assert!(refused.is_idempotent_parameter_mismatch_exception(), "{refused:?}");
}

#[tokio::test]
async fn a_refused_transaction_leaves_its_token_free() {
    let client = client().await;
    let send = || {
        client.transact_write_items().transact_items(step_head("t#1", 1)).client_request_token("again").send()
    };
    canceled(send().await.unwrap_err().into_service_error());
    put(&client, "state", head(1)).await;
    send().await.unwrap();
    assert_eq!(get(&client, "state", "t#1", "head").await, Some(head(2)));
}

#[tokio::test]
async fn two_actions_on_one_item_are_invalid() {
    let client = client().await;
    let twice = client
        .transact_write_items()
        .transact_items(put_new("events", event(1, "a")))
        .transact_items(put_new("events", event(1, "b")));
    let refused = twice.send().await.unwrap_err().into_service_error();
    assert_eq!(refused.meta().code(), Some("ValidationException"), "{refused:?}");
}

#[tokio::test]
async fn a_read_of_several_items_keeps_their_places() {
    let client = client().await;
    put(&client, "events", event(2, "there")).await;
    let read = |sk: &str| {
        let get = Get::builder().table_name("events").set_key(Some(key("t#1", sk))).build().unwrap();
        TransactGetItem::builder().get(get).build()
    };
    let answer = client
        .transact_get_items()
        .transact_items(read("e#0000000000000001"))
        .transact_items(read("e#0000000000000002"))
        .send()
        .await
        .unwrap();
    let items: Vec<_> = answer.responses().iter().map(|response| response.item.clone()).collect();
    assert_eq!(items, [None, Some(event(2, "there"))]);
}
