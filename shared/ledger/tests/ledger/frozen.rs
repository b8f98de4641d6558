//! Items as earlier code wrote them, kept byte for byte. Today's code must read them and go on from them, since nobody
//! rewrites them (L1). A new schema version adds a file; no file is ever changed.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use keel_kernel::{Kind, OwnerId, RunStatus, Seq};
use keel_ledger::StoreError;
use keel_ledger::dynamo::read_item;
use keel_ledger::port::Consistency;
use keel_ledger::{Store as _, items};
use serde_json::{Value, json};

use crate::support::{World, answer, key, rows, session, text};

const V1: &str = include_str!("frozen/v1.json");

/// DynamoDB's JSON, as far as our items need it.
fn value(json: &Value) -> AttributeValue {
    let (kind, value) = json.as_object().unwrap().iter().next().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    match kind.as_str() {
        "S" => AttributeValue::S(text(value)),
        "N" => AttributeValue::N(text(value)),
        "BOOL" => AttributeValue::Bool(value.as_bool().unwrap()),
        "SS" => AttributeValue::Ss(value.as_array().unwrap().iter().map(text).collect()),
        "M" => AttributeValue::M(item(value)),
        unknown => panic!("{unknown}"),
    }
}

fn item(json: &Value) -> HashMap<String, AttributeValue> {
    json.as_object().unwrap().iter().map(|(name, attribute)| (name.clone(), value(attribute))).collect()
}

/// A world whose tables hold the kept items.
async fn world() -> World {
    let tables: Value = serde_json::from_str(V1).unwrap();
    let world = World::empty().await;
    for (table, items) in tables.as_object().unwrap() {
        for kept in items.as_array().unwrap() {
            world.client.put_item().table_name(table).set_item(Some(item(kept))).send().await.unwrap();
        }
    }
    world
}

#[tokio::test]
async fn l1_yesterdays_items_are_read_and_gone_on_from() {
    let world = world().await;
    let at = session("kept");
    let head = world.ledger().head(&at).await.unwrap();
    assert_eq!((head.ledger.seq, head.run.status, head.run.attempts), (Seq(3), RunStatus::Running, 1));
    assert_eq!(head.ledger.open_calls.iter().map(ToString::to_string).collect::<Vec<_>>(), ["call-1"]);
    assert_eq!(head.ledger.unanswered.iter().copied().collect::<Vec<_>>(), [Seq(3)]);
    let lease = head.lease.clone().expect("it was running");
    assert_eq!((lease.owner.as_str(), head.epoch.0), ("w1", 1));
    let described = world.ledger().session(&at).await.unwrap();
    assert_eq!((described.description.max_attempts, described.description.revision), (3, 1));
    let page = world.ledger().events(&at, Seq::ZERO, 10, Consistency::Strong).await.unwrap();
    let kinds: Vec<Kind> = page.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [Kind::UserMessage, Kind::AssistantMessage, Kind::UserMessage]);
    assert_eq!(page.events[1].epoch.map(|epoch| epoch.0), Some(1));
    assert_eq!(rows(&world.client, &at).await.keys.len(), 3, "each event's key");
    let told = world.store.partials(&at, "").await.unwrap();
    assert_eq!((told.len(), told[0].1.text.as_str(), told[0].1.dead.as_deref()), (1, "par", Some("lost")));
    let api_key = world.tenants().api_key(&at.tenant, "k1").await.unwrap().expect("it is known");
    assert_eq!(api_key.scopes, ["client"]);

    // The same request again is the first submission, and a new one comes after it.
    let again = world.ledger().input(&at, text("first"), Some(key("r1"))).await.unwrap();
    assert_eq!((again.created, again.events[0].seq), (false, Seq(1)));
    world.rig.env.advance(120_000);
    let owner = OwnerId::parse("w2").unwrap();
    let claimed = world.ledger().claim(&at, &owner).await.unwrap().expect("its lease ran out");
    let next =
        world.ledger().commit(&at, None, Some(claimed.token), vec![answer("g2", &[3], &[])]).await.unwrap();
    assert_eq!(next.events[0].seq, Seq(4));
}

/// After a roll-back older code meets newer items.
#[tokio::test]
async fn a_newer_version_is_refused_by_name_and_nothing_is_guessed() {
    let tables: Value = serde_json::from_str(V1).unwrap();
    let newer = |kept: &Value| {
        let mut newer = kept.clone();
        newer["v"] = json!({ "N": (items::VERSION + 1).to_string() });
        item(&newer)
    };
    let plain = read_item;
    let refused = |read: Result<(), StoreError>| {
        let error = read.expect_err("it is newer").to_string();
        assert!(error.contains("schema version 2 is newer than this code"), "{error}");
    };
    let of = |table: &str, sk: &str| {
        let all = tables[table].as_array().unwrap().iter();
        all.clone().find(|kept| kept["sk"]["S"].as_str().unwrap().starts_with(sk)).unwrap().clone()
    };
    refused(items::read_head(&plain(newer(&of("state", "head")))).map(drop));
    refused(items::read_event(&plain(newer(&of("events", "e#")))).map(drop));
    refused(items::read_key(&plain(newer(&of("events", "k#")))).map(drop));
    for (table, sk) in [("state", "meta"), ("state", "key#"), ("partials", "")] {
        let world = world().await;
        world.client.put_item().table_name(table).set_item(Some(newer(&of(table, sk)))).send().await.unwrap();
        let at = session("kept");
        refused(match table {
            "partials" => world.store.partials(&at, "").await.map(drop),
            _ if sk == "meta" => world.store.session(&at).await.map(drop),
            _ => world.tenants().api_key(&at.tenant, "k1").await.map(drop),
        });
    }
}
