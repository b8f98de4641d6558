//! Sessions made at the same moment: one call makes it, and nobody gets a failure for having been slower.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use keel_tests::Keel;
use serde_json::{Value, json};

/// Calls at once.
const CALLERS: usize = 32;

/// Makes sessions of these descriptions, all at once; how often each status came.
async fn create(keel: &Keel, bodies: Vec<Value>) -> BTreeMap<u16, usize> {
    let answers = join_all(bodies.into_iter().map(|body| keel.post("/v1/sessions", body))).await;
    let mut statuses = BTreeMap::new();
    for answer in answers {
        *statuses.entry(answer.status).or_default() += 1;
    }
    statuses
}

/// An id that no other test has, on a deployment that other tests use too.
async fn fresh_id(keel: &Keel) -> String {
    format!("{}-y", keel.session().await.rsplit('/').next().unwrap_or_default())
}

#[tokio::test]
async fn i8_thirty_two_equal_creations_make_one_session_and_the_others_find_it() {
    let keel = Keel::without_worker().await;
    let body = json!({ "sessionId": fresh_id(&keel).await, "title": "t", "budget": { "maxTokens": 10 } });
    let statuses = create(&keel, vec![body; CALLERS]).await;
    assert_eq!(statuses, BTreeMap::from([(200, CALLERS - 1), (201, 1)]));
}

#[tokio::test]
async fn i8_of_thirty_two_creations_that_differ_one_makes_the_session_and_the_others_are_refused() {
    let keel = Keel::without_worker().await;
    let id = fresh_id(&keel).await;
    let body = |n: usize| json!({ "sessionId": id, "title": format!("title {n}") });
    let statuses = create(&keel, (0..CALLERS).map(body).collect()).await;
    assert_eq!(statuses, BTreeMap::from([(201, 1), (409, CALLERS - 1)]));
    let found = keel.get(&format!("/v1/sessions/{id}")).await.ok(200);
    let title = found["title"].as_str().unwrap_or_default().to_owned();
    let same = keel.post("/v1/sessions", json!({ "sessionId": id, "title": title })).await.ok(200);
    assert_eq!(same, found, "the winner's description is the session's");
    let listed = keel.get("/v1/sessions?limit=200").await.ok(200);
    let rows = listed["sessions"].as_array().cloned().unwrap_or_default();
    assert_eq!(rows.iter().filter(|row| row["sessionId"] == json!(id)).count(), 1, "it is listed once");
}
