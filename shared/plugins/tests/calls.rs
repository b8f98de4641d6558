//! Plugins against servers in the test, some of which misbehave.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderMap, Method, StatusCode};
use keel_agent::Tools as _;
use keel_kernel::event::ToolCall;
use keel_kernel::{DedupeKey, SessionId, TenantId};
use keel_ledger::SessionKey;
use keel_plugins::{EgressPolicy, PluginClient, PluginTools};
use keel_settings::{Plugin, Secrets, SecretsError};
use secrecy::SecretString;
use serde_json::{Value, json};
use standardwebhooks::Webhook;

/// Visibly fake, as base64.
const SECRET: &str = "whsec_bm90LWEtc2VjcmV0LW5vdC1hLXNlY3JldA==";

struct Fixed;

#[async_trait]
impl Secrets for Fixed {
    async fn get(&self, tenant: &TenantId, name: &str) -> Result<Option<SecretString>, SecretsError> {
        Ok((tenant.as_str() == "acme" && name == "signing").then(|| SECRET.to_owned().into()))
    }

    async fn put(&self, _: &TenantId, _: &str, _: SecretString) -> Result<(), SecretsError> {
        Ok(())
    }

    async fn remove(&self, _: &TenantId, _: &str) -> Result<(), SecretsError> {
        Ok(())
    }
}

type Asked = Arc<Mutex<Vec<(String, HeaderMap, Bytes)>>>;

async fn serve(
    State(asked): State<Asked>,
    method: Method,
    uri: http::Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    asked.lock().unwrap().push((uri.path().to_owned(), headers.clone(), body.clone()));
    let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
    match uri.path() {
        "/adds" => {
            let sum = sent["arguments"]["a"].as_i64().unwrap() + sent["arguments"]["b"].as_i64().unwrap();
            axum::Json(json!({ "output": { "sum": sum } })).into_response()
        }
        "/text" => "plain words".into_response(),
        "/says-no" => axum::Json(json!({ "output": "no such account", "isError": true })).into_response(),
        "/fails" => (StatusCode::BAD_GATEWAY, "behind the tool").into_response(),
        "/redirects" => Redirect::temporary("/adds").into_response(),
        "/huge" => vec![b'x'; 2 * 1024 * 1024].into_response(),
        "/mcp" if method == Method::POST => mcp(&sent),
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

/// A minimal Model Context Protocol server.
fn mcp(sent: &Value) -> Response {
    let result = match sent["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": sent["params"]["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "stub", "version": "1" },
        }),
        "tools/list" => json!({ "tools": [
            { "name": "upper", "description": "Shouts.", "inputSchema": { "type": "object", "required": ["text"] } },
            { "name": "echo", "inputSchema": { "type": "object" } },
            { "name": "no.model/takes this", "inputSchema": { "type": "object" } },
            { "name": "breaks", "inputSchema": { "type": "object" } },
        ] }),
        "tools/call" if sent["params"]["name"] == "breaks" => return StatusCode::BAD_GATEWAY.into_response(),
        "tools/call" => {
            let text = sent["params"]["arguments"]["text"].as_str().unwrap_or_default().to_uppercase();
            json!({ "content": [{ "type": "text", "text": text }], "isError": text == "NO" })
        }
        _ => return StatusCode::ACCEPTED.into_response(), // a notification
    };
    axum::Json(json!({ "jsonrpc": "2.0", "id": sent["id"], "result": result })).into_response()
}

async fn server() -> (String, Asked) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Asked::default();
    let router = Router::new().fallback(serve).with_state(asked.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, asked)
}

fn call(tool: &str, arguments: Value) -> ToolCall {
    ToolCall { id: DedupeKey::parse("call_7").unwrap(), name: tool.to_owned(), arguments }
}

async fn tools(egress: EgressPolicy, plugin: Value) -> PluginTools {
    let caller = Arc::new(PluginClient::new(egress, Arc::new(Fixed), None).unwrap());
    let at =
        SessionKey { tenant: TenantId::parse("acme").unwrap(), session: SessionId::parse("s1").unwrap() };
    let plugin: Plugin = serde_json::from_value(plugin).unwrap();
    PluginTools::load(caller, at, None, vec![plugin]).await
}

const LOCAL: EgressPolicy = EgressPolicy { loopback: true, private: false };

fn http_plugin(url: &str, secret: &str) -> Value {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    json!({
        "name": "p", "kind": "http", "url": url, "secret": secret,
        "tools": [{ "name": "add", "description": "Adds.", "parameters": schema }],
    })
}

async fn posted(url: &str, arguments: Value) -> (String, bool) {
    let output = tools(LOCAL, http_plugin(url, "signing")).await.call(&call("add", arguments)).await;
    (output.text, output.is_error)
}

#[tokio::test]
async fn i7_a_call_is_signed_and_carries_the_same_id_every_time() {
    let (url, asked) = server().await;
    for _ in 0..2 {
        let output = posted(&format!("{url}/adds"), json!({ "a": 2, "b": 3 })).await;
        assert_eq!(output, (r#"{"sum":5}"#.to_owned(), false));
    }
    let asked = asked.lock().unwrap();
    let webhook = Webhook::new(SECRET).unwrap();
    for (_, headers, body) in asked.iter() {
        webhook.verify(body, headers).unwrap();
        assert_eq!(headers["webhook-id"], "s1.call_7");
        let sent: Value = serde_json::from_slice(body).unwrap();
        assert_eq!(
            (&sent["tool"], &sent["toolCallId"], &sent["sessionId"], &sent["tenant"]),
            (&json!("add"), &json!("call_7"), &json!("s1"), &json!("acme"))
        );
    }
    let mut forged = asked[0].2.to_vec();
    forged.push(b' ');
    assert!(webhook.verify(&forged, &asked[0].1).is_err(), "the signature is the body's");
}

#[tokio::test]
async fn whatever_a_tool_answers_becomes_a_result() {
    let (url, asked) = server().await;
    let said = async |path: &str| posted(&format!("{url}{path}"), json!({ "a": 1, "b": 1 })).await;
    assert_eq!(said("/text").await, ("plain words".to_owned(), false));
    assert_eq!(said("/says-no").await, ("no such account".to_owned(), true));
    assert_eq!(said("/fails").await, ("the tool answered 502: behind the tool".to_owned(), true));
    assert!(said("/huge").await.0.contains("larger than"));
    let before = asked.lock().unwrap().len();
    assert!(said("/redirects").await.0.contains("redirects"));
    assert_eq!(asked.lock().unwrap().len(), before + 1, "it was not followed");
    let (text, is_error) = posted(&format!("{url}/adds"), json!({ "a": "two" })).await;
    assert!(is_error && text.contains("/a"), "{text}");
    assert_eq!(asked.lock().unwrap().len(), before + 1, "what does not fit is not sent");
    let nobody = posted("http://127.0.0.1:1/", json!({})).await;
    assert!(
        nobody.1 && nobody.0.contains("could not be reached") && !nobody.0.contains("127"),
        "{}",
        nobody.0
    );
}

#[tokio::test]
async fn a_call_goes_no_further_than_it_may_and_nowhere_without_its_secret() {
    let (url, asked) = server().await;
    let world = EgressPolicy::default();
    let output = tools(world, http_plugin(&url, "signing")).await.call(&call("add", json!({}))).await;
    assert!(output.is_error && output.text.contains("its address"), "{}", output.text);
    let output = tools(LOCAL, http_plugin(&url, "other")).await.call(&call("add", json!({}))).await;
    assert!(output.text.contains("there is no secret \"other\""), "{}", output.text);
    let named = http_plugin("https://localhost:9/", "signing");
    let output = tools(world, named).await.call(&call("add", json!({}))).await;
    assert!(output.is_error, "a name that leads here is not followed either");
    assert!(asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_mcp_server_is_asked_what_it_has_and_called() {
    let (url, asked) = server().await;
    let plugin = json!({
        "name": "m", "kind": "mcp", "url": format!("{url}/mcp?key=visibly-fake"), "secret": "signing",
        "policies": { "upper": { "approval": "always" } },
    });
    let tools = tools(LOCAL, plugin).await;
    let specs = tools.specs();
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["breaks", "upper"], "echo is a name of our own, the other one nobody's");
    assert!(specs[1].policy.asks(&json!({})));
    let output = tools.call(&call("breaks", json!({}))).await;
    assert!(
        output.is_error && !output.text.contains("visibly-fake"),
        "an address is not told: {}",
        output.text
    );
    let output = tools.call(&call("upper", json!({ "text": "hey" }))).await;
    assert_eq!((output.text.as_str(), output.is_error), ("HEY", false));
    let output = tools.call(&call("upper", json!({ "text": "no" }))).await;
    assert!(output.is_error);
    let output = tools.call(&call("upper", json!({}))).await;
    assert!(output.text.contains("text"), "its own schema is checked: {}", output.text);
    let asked = asked.lock().unwrap();
    assert!(asked.iter().all(|(_, headers, _)| headers["authorization"] == format!("Bearer {SECRET}")));
}

#[tokio::test]
async fn a_server_that_is_not_there_brings_no_tools_and_stops_nobody() {
    let plugin = json!({ "name": "m", "kind": "mcp", "url": "http://127.0.0.1:1/mcp" });
    let tools = tools(LOCAL, plugin).await;
    assert!(tools.specs().is_empty());
    assert!(tools.call(&call("upper", json!({}))).await.is_error);
}
