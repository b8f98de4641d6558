//! The owner API invoked directly: the same function, given the event that the gateway would send.

use std::sync::Arc;

use keel_embedded::{Dispatch, Embedded, tables};
use keel_env::{Env as _, SystemEnv};
use keel_fn_kernel::{Owners, router};
use keel_kernel::budget::Budget;
use keel_kernel::{Payload, SessionDescription, SessionId, TenantId};
use keel_lambda::behind_gateway;
use keel_ledger::dynamo::{Dynamo, Tables};
use keel_ledger::hints::LocalHints;
use keel_ledger::notifier::CommitNotifier;
use keel_ledger::tenant_store::ApiKeyRow;
use keel_ledger::{Ledger, LedgerConfig, SessionKey, TenantStore};
use keel_web::auth::{ApiKey, Auth};
use keel_web::service::finish;
use lambda_http::Adapter;
use lambda_http::request::LambdaRequest;
use lambda_runtime::{Context, LambdaEvent, Service as _};
use serde_json::{Value, json};

const KEY: &str = "keel_acme.invoker_not-a-secret";

/// Whose claims end at once, as if each had died.
async fn owners() -> Owners {
    let embedded = Embedded::memory().expect("a store in memory").with_dispatch(Dispatch::Inline);
    tables::create_missing(&embedded.client(), "").await.expect("an empty store takes the tables");
    let tables = Dynamo::new(embedded.client(), Tables::with_prefix(""));
    let tenants = TenantStore::new(tables.clone());
    let key = ApiKey::parse(KEY).expect("a key");
    let row = ApiKeyRow { hash: key.hash(), scopes: vec!["owner".to_owned()], created_ms: 1 };
    let tenant = TenantId::parse("acme").expect("a name");
    tenants.put_api_key(&tenant, &key.id, &row).await.expect("it is written");
    let (hints, _) = LocalHints::channel();
    let (store, env) = (Arc::new(tables), Arc::new(SystemEnv));
    let ledger = Ledger::new(
        store,
        Arc::new(hints),
        CommitNotifier::none(),
        env,
        LedgerConfig { lease_ms: 0, ..LedgerConfig::default() },
    );
    Owners { ledger, auth: Auth::new(tenants) }
}

/// The payload of an invocation, as `aws lambda invoke` sends it.
fn event(path: &str, key: &str, body: &Value) -> LambdaRequest {
    let event = json!({
        "resource": "/{proxy+}",
        "path": path,
        "httpMethod": "POST",
        "headers": { "authorization": format!("Bearer {key}"), "content-type": "application/json" },
        "requestContext": { "resourcePath": "/{proxy+}", "httpMethod": "POST", "stage": "prod", "path": path },
        "body": body.to_string(),
        "isBase64Encoded": false,
    });
    serde_json::from_value(event).expect("lambda_http knows the event")
}

async fn invoke(owners: Owners, event: LambdaRequest) -> Value {
    let mut function = Adapter::from(behind_gateway(finish(router(owners))));
    let answer = function.call(LambdaEvent::new(event, Context::default())).await.expect("it answers");
    serde_json::to_value(answer).expect("an answer is JSON")
}

#[tokio::test]
async fn c2_the_owner_api_answers_a_direct_invocation() {
    let nothing = invoke(owners().await, event("/v1/runs/claim", KEY, &json!({ "owner": "me" }))).await;
    assert_eq!(nothing["statusCode"], 204, "{nothing}");

    let no_such = json!({ "lease": { "owner": "me", "epoch": 1 }, "events": [] });
    let refused = invoke(owners().await, event("/v1/sessions/none/commits", KEY, &no_such)).await;
    let body: Value = serde_json::from_str(refused["body"].as_str().expect("a body")).expect("a problem");
    assert_eq!((&refused["statusCode"], &body["status"]), (&json!(404), &json!(404)), "{body}");

    let stranger = invoke(owners().await, event("/v1/runs/claim", "keel_acme.other_no", &json!({}))).await;
    assert_eq!(stranger["statusCode"], 401);
}

#[tokio::test]
async fn c2_a_run_whose_owner_died_is_claimed_without_its_sessions_name() {
    let owners = owners().await;
    let at = SessionKey {
        tenant: TenantId::parse("acme").expect("a name"),
        session: SessionId::parse("left").expect("a name"),
    };
    let description = SessionDescription::native(at.session.clone(), SystemEnv.now());
    owners.ledger.create(&at, &description, Budget::default()).await.expect("it is new");
    let payload = Payload::from_value(&json!({ "text": "hello" })).expect("strict JSON");
    owners.ledger.input(&at, payload, None).await.expect("an input commits");
    for epoch in 1..=2 {
        let claimed = invoke(owners.clone(), event("/v1/runs/claim", KEY, &json!({ "owner": "me" }))).await;
        let body: Value = serde_json::from_str(claimed["body"].as_str().unwrap_or_default()).expect("JSON");
        assert_eq!(body["lease"]["epoch"], epoch, "{claimed}");
    }
}
