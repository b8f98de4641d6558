//! Single items: conditions, what a refusal carries, and the arithmetic of update expressions.

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};

use crate::support::{client, get, item, key, map, n, put, s};

#[tokio::test]
async fn an_item_comes_back_as_it_was_put() {
    let client = client().await;
    // Payloads are JSON text: the order of keys and the spelling of numbers must be kept.
    let text = r#"{"b":1.0,"a":[1e3,"é\u0000"]}"#;
    let event = item([("pk", s("t#1")), ("sk", s("e#0000000000000001")), ("payload", s(text)), ("n", n(7))]);
    put(&client, "events", event.clone()).await;
    assert_eq!(get(&client, "events", "t#1", "e#0000000000000001").await, Some(event));
    assert_eq!(get(&client, "events", "t#1", "e#0000000000000002").await, None);
}

#[tokio::test]
async fn a_failed_condition_is_typed_and_carries_the_item_that_stood_in_the_way() {
    let client = client().await;
    let stands = item([("pk", s("t#1")), ("sk", s("head")), ("seq", n(3)), ("run", map([("epoch", n(2))]))]);
    put(&client, "state", stands.clone()).await;
    let refused = client
        .put_item()
        .table_name("state")
        .set_item(Some(key("t#1", "head")))
        .condition_expression("attribute_not_exists(pk)")
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .send()
        .await
        .unwrap_err()
        .into_service_error();
    assert!(refused.is_conditional_check_failed_exception(), "{refused:?}");
    let aws_sdk_dynamodb::operation::put_item::PutItemError::ConditionalCheckFailedException(refused) =
        refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(refused.item, Some(stands));
}

#[tokio::test]
async fn a_whole_map_can_be_a_condition() {
    let client = client().await;
    let run = |epoch: u64| {
        map([
            ("id", s("run_1")),
            ("epoch", n(epoch)),
            ("lease", map([("owner", s("w1")), ("until", n(1_700_000_000_000_u64))])),
            ("calls", AttributeValue::L(vec![s("a"), s("b")])),
            ("error", AttributeValue::Null(true)),
        ])
    };
    put(&client, "state", item([("pk", s("t#1")), ("sk", s("head")), ("run", run(2))])).await;
    let swap = |from: AttributeValue, to: AttributeValue| {
        client
            .update_item()
            .table_name("state")
            .set_key(Some(key("t#1", "head")))
            .update_expression("SET #run = :to")
            .condition_expression("#run = :run")
            .expression_attribute_names("#run", "run")
            .expression_attribute_values(":run", from)
            .expression_attribute_values(":to", to)
            .send()
    };
    let refused = swap(run(1), run(9)).await.unwrap_err().into_service_error();
    assert!(refused.is_conditional_check_failed_exception(), "{refused:?}");
    swap(run(2), run(3)).await.unwrap();
    let head = get(&client, "state", "t#1", "head").await.unwrap();
    assert_eq!(head["run"], run(3));

    // A map with one member more or less is another map; so is one with a list in another order.
    let more = map([("id", s("run_1")), ("epoch", n(3))]);
    let refused = swap(more, run(9)).await.unwrap_err().into_service_error();
    assert!(refused.is_conditional_check_failed_exception(), "{refused:?}");
}

#[tokio::test]
async fn equal_numbers_are_equal_however_they_are_written() {
    let client = client().await;
    put(&client, "state", item([("pk", s("t#1")), ("sk", s("head")), ("run", map([("epoch", n("1"))]))]))
        .await;
    let see = |epoch: &str| {
        client
            .update_item()
            .table_name("state")
            .set_key(Some(key("t#1", "head")))
            .update_expression("SET seen = :seen")
            .condition_expression("#run = :run")
            .expression_attribute_names("#run", "run")
            .expression_attribute_values(":run", map([("epoch", n(epoch))]))
            .expression_attribute_values(":seen", s(epoch))
            .send()
    };
    for same in ["1.0", "1e0", "10E-1"] {
        see(same).await.unwrap();
        assert_eq!(get(&client, "state", "t#1", "head").await.unwrap()["seen"], s(same));
    }
    // Near is not equal.
    for other in ["1.0000000001", "-1", "2"] {
        let refused = see(other).await.unwrap_err().into_service_error();
        assert!(refused.is_conditional_check_failed_exception(), "{other}: {refused:?}");
    }
    assert_eq!(
        get(&client, "state", "t#1", "head").await.unwrap()["seen"],
        s("10E-1"),
        "nothing was written"
    );
}

#[tokio::test]
async fn update_expressions_count_append_and_default() {
    let client = client().await;
    let step = || {
        client
            .update_item()
            .table_name("state")
            .set_key(Some(key("t#1", "head")))
            .update_expression(
                "SET pend = list_append(if_not_exists(pend, :none), :new), seq = if_not_exists(seq, :zero) + :one \
                 REMOVE gone ADD hops :one, owners :owner",
            )
            .expression_attribute_values(":none", AttributeValue::L(Vec::new()))
            .expression_attribute_values(":new", AttributeValue::L(vec![n(4)]))
            .expression_attribute_values(":zero", n(0))
            .expression_attribute_values(":one", n(1))
            .expression_attribute_values(":owner", AttributeValue::Ss(vec!["w1".to_owned()]))
            .return_values(ReturnValue::AllNew)
            .send()
    };
    step().await.unwrap();
    let head = step().await.unwrap().attributes.unwrap();
    assert_eq!(head["pend"], AttributeValue::L(vec![n(4), n(4)]));
    assert_eq!((&head["seq"], &head["hops"]), (&n(2), &n(2)));
    assert_eq!(head["owners"], AttributeValue::Ss(vec!["w1".to_owned()]));

    let delete = client
        .update_item()
        .table_name("state")
        .set_key(Some(key("t#1", "head")))
        .update_expression("REMOVE pend[0] DELETE owners :owner")
        .expression_attribute_values(":owner", AttributeValue::Ss(vec!["w1".to_owned()]))
        .return_values(ReturnValue::AllNew);
    let head = delete.send().await.unwrap().attributes.unwrap();
    assert_eq!(head["pend"], AttributeValue::L(vec![n(4)]));
    assert!(!head.contains_key("owners"), "a set that becomes empty is gone");
}
