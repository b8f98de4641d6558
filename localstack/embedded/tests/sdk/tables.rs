//! The tables are created once, as defined, and a file keeps them.

use aws_sdk_dynamodb::types::{BillingMode, ProjectionType, TimeToLiveStatus};
use keel_embedded::tables::{TablesError, create_missing};
use keel_embedded::{Dispatch, Embedded};

use crate::support::{get, item, n, put, s};

#[tokio::test]
async fn tables_are_made_where_absent_and_left_alone_where_not() {
    let client = Embedded::memory().unwrap().client();
    assert_eq!(create_missing(&client, "dev-").await.unwrap(), ["dev-events", "dev-state", "dev-partials"]);
    put(&client, "dev-state", item([("pk", s("t#1")), ("sk", s("head"))])).await;
    assert!(create_missing(&client, "dev-").await.unwrap().is_empty());
    assert!(get(&client, "dev-state", "t#1", "head").await.is_some());

    client.delete_table().table_name("dev-partials").send().await.unwrap();
    assert_eq!(create_missing(&client, "dev-").await.unwrap(), ["dev-partials"]);
    let mut names = client.list_tables().send().await.unwrap().table_names.unwrap();
    names.sort();
    assert_eq!(names, ["dev-events", "dev-partials", "dev-state"]);
}

#[tokio::test]
async fn the_tables_stand_as_the_file_defines_them() {
    let client = crate::support::client().await;
    let state = client.describe_table().table_name("state").send().await.unwrap().table.unwrap();
    assert_eq!(
        state.billing_mode_summary().and_then(|b| b.billing_mode()),
        Some(&BillingMode::PayPerRequest)
    );
    let due = &state.global_secondary_indexes()[0];
    assert_eq!(due.index_name(), Some("due"));
    assert_eq!(due.projection().and_then(|p| p.projection_type()), Some(&ProjectionType::KeysOnly));

    for (table, attribute) in [("events", None), ("state", None), ("partials", Some("ttl"))] {
        let answer = client.describe_time_to_live().table_name(table).send().await.unwrap();
        let ttl = answer.time_to_live_description.unwrap();
        assert_eq!(ttl.attribute_name.as_deref(), attribute, "{table}");
        assert_eq!(
            ttl.time_to_live_status == Some(TimeToLiveStatus::Enabled),
            attribute.is_some(),
            "{table}"
        );
    }
}

#[tokio::test]
async fn a_table_of_another_shape_is_an_error_and_not_used() {
    let client = crate::support::client().await;
    client.delete_table().table_name("state").send().await.unwrap();
    let events = client.describe_table().table_name("events").send().await.unwrap().table.unwrap();
    client
        .create_table()
        .table_name("state")
        .set_attribute_definitions(events.attribute_definitions)
        .set_key_schema(events.key_schema)
        .billing_mode(BillingMode::PayPerRequest)
        .send()
        .await
        .unwrap();
    let error = create_missing(&client, "").await.unwrap_err();
    assert!(matches!(&error, TablesError::Different { table } if table == "state"), "{error:?}");
}

#[tokio::test]
async fn a_file_that_is_opened_again_has_kept_its_items() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("absent/folder/keel.db");
    let head = item([("pk", s("t#1")), ("sk", s("head")), ("seq", n(7))]);
    {
        let client = Embedded::open(&path).unwrap().client();
        assert_eq!(create_missing(&client, "").await.unwrap().len(), 3);
        put(&client, "state", head.clone()).await;
    }
    let client = Embedded::open(&path).unwrap().with_dispatch(Dispatch::Inline).client();
    assert!(create_missing(&client, "").await.unwrap().is_empty());
    assert_eq!(get(&client, "state", "t#1", "head").await, Some(head));
}

#[tokio::test]
async fn a_path_that_cannot_be_opened_is_an_error_with_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "not a database, and long enough for its header to be read as one".repeat(20))
        .unwrap();
    let error = Embedded::open(&file).unwrap_err();
    assert!(std::error::Error::source(&error).is_some(), "{error}");
    let error = Embedded::open(file.join("below")).unwrap_err();
    assert!(std::error::Error::source(&error).is_some(), "{error}");
}

#[tokio::test]
async fn a_sweep_deletes_what_is_past_its_time_and_nothing_else() {
    for dispatch in [Dispatch::Inline, Dispatch::Blocking] {
        let embedded = Embedded::memory().unwrap().with_dispatch(dispatch);
        let client = embedded.client();
        create_missing(&client, "").await.unwrap();
        for (sk, ttl) in [("1#1", 1_u64), ("1#2", 99_999_999_999)] {
            put(&client, "partials", item([("pk", s("t#1")), ("sk", s(sk)), ("ttl", n(ttl))])).await;
        }
        // DynamoDB, too, still returns expired items until it deletes them.
        assert!(get(&client, "partials", "t#1", "1#1").await.is_some());
        assert_eq!(embedded.sweep_expired().await.unwrap(), 1);
        assert_eq!(get(&client, "partials", "t#1", "1#1").await, None);
        assert!(get(&client, "partials", "t#1", "1#2").await.is_some());
    }
}
