//! The fault proxy.

use std::path::Path;
use std::process::Stdio;

use keel_tests::TIMEOUT;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::{Duration, sleep, timeout};

/// A running proxy; killed when dropped.
pub(crate) struct Proxy {
    port: u16,
    client: Client,
    _child: Child,
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// Which faults there are, and how often. The first rule that fires is applied.
fn rules() -> Value {
    let rule = |probability: f64, fault: (&str, Value)| {
        let mut rule = json!({ "service": "dynamodb", "probability": probability });
        rule[fault.0] = fault.1;
        rule
    };
    let transaction = |probability: f64, error: Value| {
        let mut rule = rule(probability, ("error", error));
        rule["operation"] = json!("TransactWriteItems");
        rule
    };
    let conflict = json!({
        "code": "TransactionCanceledException",
        "status": 400,
        "fields": { "CancellationReasons": [{ "Code": "TransactionConflict" }, { "Code": "None" }] },
    });
    json!([
        rule(0.04, ("response", json!({ "abort_bytes": 0 }))), // carried out, and the answer is lost
        rule(0.02, ("response", json!({ "truncate_frac": 0.5 }))),
        rule(0.03, ("reset", json!(true))),
        rule(0.03, ("error", json!({ "code": "ProvisionedThroughputExceededException" }))),
        rule(0.02, ("error", json!({ "code": "ThrottlingException" }))),
        rule(0.02, ("error", json!({ "code": "InternalServerError", "status": 500 }))),
        rule(0.03, ("latency", json!({ "min": 20, "max": 400 }))),
        rule(0.005, ("timeout_ms", json!(3_500))), // longer than a request may take
        transaction(0.05, conflict),
        transaction(0.03, json!({ "code": "TransactionInProgressException", "status": 400 })),
    ])
}

impl Proxy {
    /// A proxy before a DynamoDB, without faults for now.
    pub(crate) async fn before(upstream: u16) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin/microburst");
        assert!(program.exists(), "the fault proxy is not installed: make chaos does that");
        let port = free_port();
        let child = Command::new(program)
            .args(["--upstream", &format!("http://127.0.0.1:{upstream}"), "--port", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let proxy = Self { port, client: Client::new(), _child: child };
        let healthy = async {
            while proxy.client.get(proxy.control("health")).send().await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(TIMEOUT, healthy).await.expect("the proxy starts");
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn control(&self, path: &str) -> String {
        format!("{}/_microburst/{path}", self.url())
    }

    /// From now on requests fail.
    pub(crate) async fn fail(&self) {
        self.set_rules(&rules()).await;
    }

    async fn set_rules(&self, rules: &Value) {
        let answer = self.client.post(self.control("rules")).json(rules).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }

    /// Ends the faults; how many there were, by rule.
    pub(crate) async fn heal(&self) -> Value {
        let stats: Value = self.client.get(self.control("stats")).send().await.unwrap().json().await.unwrap();
        self.set_rules(&json!([])).await;
        json!([stats["requests"], stats["by_rule"]])
    }
}
