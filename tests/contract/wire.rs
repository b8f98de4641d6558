//! W: the wire.

use std::collections::BTreeSet;

use keel_tests::Keel;
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn w1_capabilities_tell_features_limits_and_hooks() {
    let keel = Keel::start().await;
    // Without a key: a client reads it before it has one.
    let capabilities = keel.as_caller("").get("/v1/capabilities").await.ok(200);
    assert_eq!(capabilities["apiVersion"], "v1");
    assert!(capabilities["serviceVersion"].as_str().unwrap().starts_with("keel/"));
    assert!(capabilities["hooks"].is_array());
    let features = capabilities["features"].as_object().unwrap();
    assert!(features.values().all(Value::is_boolean), "{features:?}");
    let limits = capabilities["limits"].as_object().unwrap();
    assert!(limits.values().all(Value::is_u64), "{limits:?}");
    for (limit, value) in [
        ("bodyBytes", 1024 * 1024),
        ("payloadBytes", 256 * 1024),
        ("eventsPageDefault", 200),
        ("eventsPageMax", 1_000),
        ("eventsWaitSecondsMax", 20),
        ("requestIdLength", 128),
        ("sessionIdLength", 64),
        ("sessionsPageDefault", 50),
        ("sessionsPageMax", 200),
    ] {
        assert_eq!(limits[limit], value, "{limit}");
    }
}

/// W2: calls whose flag is true work; calls whose flag is false are 404.
#[tokio::test]
async fn w2_a_flag_is_true_only_where_the_feature_works() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    let features = keel.get("/v1/capabilities").await.ok(200)["features"].clone();
    let routes = [
        ("events.stream", Method::GET, format!("{session}/events/stream?until=settled"), json!({})),
        ("partials", Method::GET, format!("{session}/events/stream?partials=1&until=settled"), json!({})),
        ("events.wait", Method::GET, format!("{session}/events?wait=0"), json!({})),
        ("owners", Method::POST, "/v1/runs/claim".into(), json!({ "owner": "me", "sessionId": "no-such" })),
        ("sessions.list", Method::GET, "/v1/sessions".into(), json!({})),
        ("sessions.cancel", Method::POST, format!("{session}/cancel"), json!({})),
        (
            "sessions.external",
            Method::POST,
            "/v1/sessions".into(),
            json!({ "stateOwner": "external", "backend": "b", "externalRef": "r" }),
        ),
        ("transcript", Method::GET, format!("{session}/transcript"), json!({})),
        ("decisions", Method::GET, "/v1/decisions".into(), json!({})),
        ("export", Method::GET, format!("{session}/export"), json!({})),
        ("fork", Method::POST, format!("{session}/fork"), json!({ "afterSeq": 0 })),
        ("hooks", Method::GET, "/v1/hooks/x".into(), json!({})),
        ("plugins", Method::GET, "/v1/plugins".into(), json!({})),
        ("settings.models", Method::GET, "/v1/settings/models".into(), json!({})),
        ("settings.secrets", Method::GET, "/v1/settings/secrets".into(), json!({})),
        ("budgets", Method::GET, "/v1/settings/budget".into(), json!({})),
        ("compaction", Method::POST, format!("{session}/compact"), json!({})),
        ("subagents", Method::GET, format!("{session}/subagents"), json!({})),
        ("triggers", Method::GET, "/v1/triggers/x".into(), json!({})),
    ];
    let tested: BTreeSet<&str> = routes.iter().map(|(flag, ..)| *flag).collect();
    let flags: BTreeSet<&str> = features.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(flags, tested, "every flag is looked at");
    for (flag, method, path, body) in routes {
        let answer = keel.send(method, &path, &[], body.to_string().into()).await;
        if features[flag] == true {
            // A claim for a missing session is answered by the owner API: 204, or a problem.
            assert!(answer.status < 300 || flag == "owners", "{flag}: {} {}", answer.status, answer.text);
            assert_ne!(answer.status, 405, "{flag}");
        } else {
            answer.refused(404, "not_found", "");
        }
    }
}

#[tokio::test]
async fn w1_missing_and_bad_credentials_are_401() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    let good = keel_tests::KEY;
    let wrong_secret = format!("{good}x");
    for key in ["", "x", "keel_", "keel_dev.local_", "keel_dev.nobody_not-a-secret", &wrong_secret] {
        for path in
            [&session, "/v1/sessions", &format!("{session}/events"), &format!("{session}/events/stream")]
        {
            let answer = keel.as_caller(key).get(path).await;
            answer.refused(401, "unauthenticated", "");
            assert!(answer.headers["www-authenticate"].to_str().unwrap().starts_with("Bearer"));
        }
        let claim = keel.as_caller(key).post("/v1/runs/claim", json!({ "owner": "me" })).await;
        claim.refused(401, "unauthenticated", "");
    }
    // Not a bearer token.
    let basic = [("authorization", "Basic a2VlbDprZWVs")];
    keel.as_caller("").send(Method::GET, &session, &basic, Vec::new()).await.refused(
        401,
        "unauthenticated",
        "",
    );
}

#[tokio::test]
async fn w1_a_scope_that_does_not_reach_is_403() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    keel.say(&session, "x").await;
    let client = keel.as_caller(&Keel::client_key());
    client.get(&session).await.ok(200);
    client.say(&session, "y").await;
    let lease = json!({ "owner": "me", "epoch": 1 });
    for path in [
        "/v1/runs/claim".to_owned(),
        format!("{session}/lease/renew"),
        format!("{session}/lease/release"),
        format!("{session}/commits"),
        format!("{session}/partials"),
        format!("{session}/settle"),
    ] {
        let body = json!({ "owner": "me", "lease": lease });
        client.post(&path, body).await.refused(403, "forbidden", "");
        // The same for a missing session: the scope is checked first.
        client.post(&path.replace(&session, "/v1/sessions/no-such"), json!({})).await.refused(
            403,
            "forbidden",
            "",
        );
    }
    assert_eq!(keel.get(&session).await.ok(200)["run"]["status"], "pending");
}

#[tokio::test]
async fn w1_every_answer_has_a_request_id() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    let mut ids = BTreeSet::new();
    for (caller, path, status) in [
        (&keel, "/v1/capabilities", 200),
        (&keel, session.as_str(), 200),
        (&keel, "/v1/sessions/no-such", 404),
        (&keel, "/v1/nothing", 404),
        (&keel.as_caller("x"), &session, 401),
    ] {
        let answer = caller.get(path).await;
        assert_eq!(answer.status, status);
        let id = answer.headers["x-request-id"].to_str().unwrap().to_owned();
        if status >= 400 {
            assert_eq!(answer.json()["requestId"], id.as_str());
        }
        ids.insert(id);
    }
    assert_eq!(ids.len(), 5, "each its own");
    // The caller's id, if it is valid.
    let echoed = async |id: &str| {
        let answer =
            keel.send(Method::GET, "/v1/sessions/no-such", &[("x-request-id", id)], Vec::new()).await;
        let header = answer.headers["x-request-id"].to_str().unwrap().to_owned();
        assert_eq!(answer.json()["requestId"], header.as_str());
        header
    };
    assert_eq!(echoed("mine-1").await, "mine-1");
    for insane in ["two words", "", &"x".repeat(129)] {
        assert_ne!(echoed(insane).await, insane);
    }
}

#[tokio::test]
async fn w1_an_unknown_path_is_404_and_another_method_405() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    for path in ["/", "/v1", "/v2/sessions", "/v1/session", "/v1/sessions/", &format!("{session}/nothing")] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let answer = keel.send(method, path, &[], b"{}".to_vec()).await;
            answer.refused(404, "not_found", "");
        }
    }
    for (method, path) in [
        (Method::DELETE, session.clone()),
        (Method::PUT, "/v1/sessions".into()),
        (Method::GET, format!("{session}/input")),
        (Method::POST, format!("{session}/events/stream")),
        (Method::GET, "/v1/runs/claim".into()),
        (Method::POST, "/v1/capabilities".into()),
    ] {
        let answer = keel.send(method, &path, &[], b"{}".to_vec()).await;
        answer.refused(405, "method_not_allowed", "");
    }
}
