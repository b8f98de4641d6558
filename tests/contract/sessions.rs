//! Sessions: what a client creates, lists, describes and closes.

use keel_tests::{Keel, Reply, assistant_message};
use reqwest::Method;
use serde_json::{Value, json};

fn id(session: &str) -> &str {
    session.rsplit('/').next().unwrap()
}

/// An id that no other test has, on a deployment that other tests use too.
async fn fresh_id(keel: &Keel) -> String {
    // The id of a session that Keel named, with a suffix, is not used elsewhere.
    format!("{}-x", id(&keel.session().await))
}

async fn patch(keel: &Keel, session: &str, if_match: Option<&str>, body: &Value) -> Reply {
    let headers: Vec<(&str, &str)> = if_match.map(|tag| ("if-match", tag)).into_iter().collect();
    keel.send(Method::PATCH, session, &headers, body.to_string().into()).await
}

#[tokio::test]
async fn i3_creating_the_same_session_again_returns_it() {
    let keel = Keel::without_worker().await;
    let body = json!({
        "sessionId": fresh_id(&keel).await, "title": "t", "model": "fake", "system": "be kind",
        "metadata": { "a": [1, null] }, "maxAttempts": 5,
    });
    let created = keel.post("/v1/sessions", body.clone()).await;
    assert!(created.headers.contains_key("etag"));
    let created = created.ok(201);
    for member in ["sessionId", "title", "model", "system", "metadata"] {
        assert_eq!(created[member], body[member]);
    }
    assert_eq!((&created["status"], &created["run"]["status"]), (&json!("open"), &json!("idle")));
    assert_eq!((&created["seq"], &created["unanswered"]), (&json!(0), &json!([])));
    assert_eq!(created["run"]["maxAttempts"], 5);
    // The same body in another spelling.
    let members = body.to_string()[1..].replace("\"maxAttempts\":5,", "");
    let again = format!("{{ \"maxAttempts\" : 5, {members}");
    let again = keel.send(Method::POST, "/v1/sessions", &[], again.into()).await.ok(200);
    assert_eq!(again, created);
    let mut other = body.clone();
    other["title"] = json!("another");
    let problem = keel.post("/v1/sessions", other).await;
    problem.refused(409, "session_exists", "/sessionId");
    let path = format!("/v1/sessions/{}", body["sessionId"].as_str().unwrap());
    assert_eq!(keel.get(&path).await.ok(200), created);
    // Another tenant's session with the same id is another session.
    let other = keel.as_caller(&Keel::other_key());
    other.post("/v1/sessions", json!({ "sessionId": body["sessionId"] })).await.ok(201);
    assert_eq!(keel.get(&path).await.ok(200), created);
}

#[tokio::test]
async fn v6_a_number_of_attempts_is_a_number_in_bounds() {
    let keel = Keel::without_worker().await;
    for bad in [json!(0), json!(-1), json!(21), json!(1.5), json!("3")] {
        let created = keel.post("/v1/sessions", json!({ "maxAttempts": bad })).await;
        created.refused(400, "invalid_payload", "/maxAttempts");
    }
}

#[tokio::test]
async fn the_list_is_newest_first_with_pages_and_a_filter() {
    let keel = Keel::without_worker().await;
    let mut created = Vec::new();
    for _ in 0..5 {
        created.push(id(&keel.session().await).to_owned());
    }
    let mut listed: Vec<String> = Vec::new();
    let mut moments: Vec<String> = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = keel.get(&format!("/v1/sessions?limit=3{cursor}")).await.ok(200);
        let rows = page["sessions"].as_array().unwrap();
        assert!(rows.len() <= 3);
        for row in rows {
            listed.push(row["sessionId"].as_str().unwrap().to_owned());
            moments.push(row["createdAt"].as_str().unwrap().to_owned());
        }
        assert_eq!(page["hasMore"], page["cursor"].is_string());
        match page["cursor"].as_str() {
            Some(next) if !created.iter().all(|id| listed.contains(id)) => cursor = format!("&cursor={next}"),
            _ => break,
        }
    }
    assert!(moments.is_sorted_by(|newer, older| newer >= older), "newest first: {moments:?}");
    assert!(created.iter().all(|id| listed.iter().filter(|listed| *listed == id).count() == 1), "each once");
    // By status: the session's, or its run's.
    let closed = keel.session().await;
    keel.post(&format!("{closed}/close"), json!({})).await.ok(200);
    let pending = keel.session().await;
    keel.say(&pending, "x").await;
    for (status, member) in [("closed", &closed), ("pending", &pending)] {
        let page = keel.get(&format!("/v1/sessions?status={status}&limit=200")).await.ok(200);
        let rows = page["sessions"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["status"] == status || row["run"]["status"] == status));
        assert!(rows.iter().any(|row| row["sessionId"] == id(member)));
    }
    for (query, name) in
        [("limit=0", "limit"), ("limit=201", "limit"), ("status=lost", "status"), ("by=x", "by")]
    {
        let answer = keel.get(&format!("/v1/sessions?{query}")).await;
        answer.refused(400, "invalid_request", &format!("/{name}"));
    }
    // Another tenant sees none of them.
    let theirs = keel.as_caller(&Keel::other_key()).get("/v1/sessions?limit=200").await.ok(200);
    for row in theirs["sessions"].as_array().unwrap() {
        assert!(!created.iter().any(|id| row["sessionId"] == id.as_str()));
    }
}

#[tokio::test]
async fn a_description_changes_under_its_tag() {
    let keel = Keel::without_worker().await;
    let session = keel.session_with(json!({ "title": "one", "metadata": { "a": 1 } })).await;
    let read = async || keel.get(&session).await;
    let first = read().await.headers["etag"].to_str().unwrap().to_owned();
    let changed = patch(&keel, &session, Some(&first), &json!({ "title": "two" })).await;
    let second = changed.headers["etag"].to_str().unwrap().to_owned();
    assert_ne!(first, second);
    let row = changed.ok(200);
    assert_eq!((&row["title"], &row["metadata"]), (&json!("two"), &json!({ "a": 1 })), "the rest stays");
    // A tag of an older revision.
    let stale = patch(&keel, &session, Some(&first), &json!({ "title": "three" })).await;
    assert_eq!(stale.refused(412, "precondition_failed", "")["etag"], second.as_str());
    assert_eq!(read().await.ok(200)["title"], "two");
    // Events and runs do not change the tag; `*` matches any; none is needed; null removes a member.
    keel.say(&session, "x").await;
    patch(&keel, &session, Some(&second), &json!({ "model": "m" })).await.ok(200);
    patch(&keel, &session, Some("*"), &json!({ "system": "s" })).await.ok(200);
    let row = patch(&keel, &session, None, &json!({ "title": null, "metadata": null })).await.ok(200);
    assert_eq!((row.get("title"), row.get("metadata")), (None, None));
    assert_eq!((&row["model"], &row["system"]), (&json!("m"), &json!("s")));
    for (body, pointer) in [
        (json!({ "title": 1 }), "/title"),
        (json!({ "sessionId": "x" }), "/sessionId"),
        (json!({ "status": "closed" }), "/status"),
        (json!({ "metadata": [] }), "/metadata"),
    ] {
        patch(&keel, &session, None, &body).await.refused(400, "invalid_payload", pointer);
    }
}

#[tokio::test]
async fn c6_closing_is_idempotent_and_ends_a_live_run() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "x").await;
    let first = keel.post(&format!("{session}/close"), json!({})).await.ok(200);
    assert_eq!((&first["status"], &first["run"]["status"]), (&json!("closed"), &json!("failed")));
    assert_eq!(first["run"]["reason"], "closed");
    assert_eq!(keel.post(&format!("{session}/close"), json!({})).await.ok(200), first);
    assert_eq!(keel.ask(&session, "me").await.status, 204);
    // It can still be read.
    assert_eq!(keel.events(&session).await.len(), 1);
}

#[tokio::test]
async fn c4_an_external_session_names_its_backend() {
    let keel = Keel::without_worker().await;
    let session =
        keel.session_with(json!({ "stateOwner": "external", "backend": "b", "externalRef": "r" })).await;
    let row = keel.get(&session).await.ok(200);
    assert_eq!(row["stateOwner"], "external");
    assert_eq!((&row["backend"], &row["externalRef"]), (&json!("b"), &json!("r")));
    for (body, pointer) in [
        (json!({ "stateOwner": "external", "backend": "b" }), "/externalRef"),
        (json!({ "stateOwner": "external", "backend": "", "externalRef": "r" }), "/backend"),
        (json!({ "stateOwner": "native", "backend": "b" }), "/backend"),
        (json!({ "externalRef": "r" }), "/externalRef"),
        (json!({ "stateOwner": "External" }), "/stateOwner"),
    ] {
        keel.post("/v1/sessions", body).await.refused(400, "invalid_payload", pointer);
    }
    keel.post(&format!("{session}/cancel"), json!({})).await.refused(409, "external_session", "");
}

#[tokio::test]
async fn a2_inputs_say_what_became_of_each() {
    let keel = Keel::without_worker().await;
    let session = keel.session_with(json!({ "maxAttempts": 2 })).await;
    let input =
        async |seq: usize| keel.get(&format!("{session}/inputs")).await.ok(200)["inputs"][seq - 1].clone();
    let sent = json!({ "requestId": "r1", "text": "one" });
    keel.post(&format!("{session}/input"), sent).await.ok(201);
    let expected = json!({
        "seq": 1, "requestId": "r1", "delivery": "queue", "answeredBy": null, "unanswered": "queued",
    });
    assert_eq!(input(1).await, expected);
    let lease = keel.claim(&session, "me").await;
    keel.say(&session, "two").await;
    assert_eq!(
        (&input(1).await["unanswered"], &input(2).await["unanswered"]),
        (&json!("running"), &json!("queued"))
    );
    keel.settle(&session, &lease, "failed").await.ok(200);
    assert_eq!(input(1).await["unanswered"], "failed_attempt");
    let lease = keel.claim(&session, "me").await;
    let seqs = keel.commit(&session, &lease, assistant_message("g", "x", &[1])).await.ok(200)["seqs"].clone();
    assert_eq!(input(1).await["answeredBy"], seqs[0]);
    assert_eq!(input(1).await.get("unanswered"), None);
    keel.post(&format!("{session}/cancel"), json!({})).await.ok(200);
    keel.settle(&session, &lease, "cancelled").await.ok(200);
    assert_eq!(input(2).await["unanswered"], "cancelled");
}

#[tokio::test]
async fn a3_run_queues_what_is_owed_and_nothing_else() {
    let keel = Keel::without_worker().await;
    let session = keel.session_with(json!({ "maxAttempts": 1 })).await;
    let run = async || keel.post(&format!("{session}/run"), json!({})).await.ok(200);
    assert_eq!(run().await["queued"], false, "there was no input");
    keel.say(&session, "x").await;
    let lease = keel.claim(&session, "me").await;
    assert_eq!(run().await["queued"], false, "a run is live, and no other is queued");
    assert_eq!(keel.settle(&session, &lease, "failed").await.ok(200)["run"]["status"], "failed");
    let queued = run().await;
    assert_eq!((&queued["queued"], &queued["run"]["status"]), (&json!(true), &json!("pending")));
    let lease = keel.claim(&session, "me").await;
    keel.commit(&session, &lease, assistant_message("g", "x", &[1])).await.ok(200);
    keel.settle(&session, &lease, "succeeded").await.ok(200);
    assert_eq!(run().await["queued"], false, "all is answered");
}

#[tokio::test]
async fn s_cancel_is_idempotent_and_unqueues_a_pending_run() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    let cancel = async || keel.post(&format!("{session}/cancel"), json!({})).await.ok(200)["run"].clone();
    assert_eq!(cancel().await["status"], "idle", "there is nothing to cancel");
    keel.say(&session, "x").await;
    for _ in 0..2 {
        let run = cancel().await;
        assert_eq!((&run["status"], &run["reason"]), (&json!("failed"), &json!("cancelled")));
    }
    assert_eq!(keel.ask(&session, "me").await.status, 204);
    keel.post(&format!("{session}/run"), json!({})).await.ok(200);
    let lease = keel.claim(&session, "me").await;
    for _ in 0..2 {
        let run = cancel().await;
        assert_eq!((&run["status"], &run["cancelRequested"]), (&json!("running"), &json!(true)));
    }
    keel.settle(&session, &lease, "cancelled").await.ok(200);
    assert_eq!(cancel().await["cancelRequested"], false);
    assert_eq!(keel.events(&session).await.len(), 2, "a cancel writes nothing itself");
}

#[tokio::test]
async fn c3_a_session_of_another_tenant_is_as_if_missing_to_the_byte() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "x").await;
    let other = keel.as_caller(&Keel::other_key());
    let lease = json!({ "owner": "me", "epoch": 1 });
    let partial = json!({ "lease": lease, "generationId": "g", "index": 0, "delta": "x" });
    for (path, body) in [
        ("lease/renew", json!({ "lease": lease })),
        ("lease/release", json!({ "lease": lease })),
        ("commits", json!({ "lease": lease, "events": [assistant_message("g", "x", &[1])] })),
        ("partials", partial),
        ("settle", json!({ "lease": lease, "outcome": "succeeded" })),
        ("external-events", json!({ "backend": "b", "externalRef": "r", "requestId": "e" })),
    ] {
        let theirs = other.post(&format!("{session}/{path}"), body.clone()).await;
        let missing = other.post(&format!("/v1/sessions/no-such/{path}"), body).await;
        let mut bodies = [theirs.refused(404, "not_found", ""), missing.refused(404, "not_found", "")];
        for body in &mut bodies {
            assert!(body["requestId"].is_string());
            body["requestId"] = json!("the one thing that differs");
        }
        assert_eq!(bodies[0].to_string(), bodies[1].to_string(), "{path}");
    }
    // A claim that names the session finds nothing either.
    let theirs = other.ask(&session, "me").await;
    let missing = other.ask("/v1/sessions/no-such", "me").await;
    assert_eq!(theirs.status, missing.status);
    assert_ne!(theirs.status, 200);
    assert_eq!(keel.events(&session).await.len(), 1);
}

/// The context is a projection: failed messages and waiting inputs are left out, and the client sees why.
#[tokio::test]
async fn l5_a3_d2_a_transcript_shows_what_the_next_request_presents_and_what_it_leaves_out() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "one").await;
    let lease = keel.claim(&session, "me").await;
    let mut failed = assistant_message("g1", "no", &[1]);
    failed["payload"]["stopReason"] = json!("error");
    keel.commit(&session, &lease, failed).await.ok(200);
    keel.say(&session, "two").await; // queued: the run that was claimed before does not see it
    let shown = keel.get(&format!("{session}/transcript")).await.ok(200);
    let seqs = |shown: &Value| {
        shown["entries"].as_array().unwrap().iter().map(|entry| entry["seq"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(seqs(&shown), [1]);
    assert_eq!((&shown["inputSeqs"], &shown["owedTurn"]), (&json!([1]), &json!(true)));
    assert_eq!(shown["leftOut"], json!([{ "seq": 2, "why": "failed" }, { "seq": 3, "why": "waiting" }]));

    keel.commit(&session, &lease, assistant_message("g2", "yes", &[1])).await.ok(200);
    keel.settle(&session, &lease, "succeeded").await.ok(200);
    let shown = keel.get(&format!("{session}/transcript")).await.ok(200);
    assert_eq!((seqs(&shown), &shown["inputSeqs"]), (vec![json!(1), json!(4), json!(3)], &json!([3])));
}
