//! Start-up: every program asks for its first invocation, although it can reach nothing but its Runtime API.

use keel_tests::runtime::{PROGRAMS, programs, start_times};
use serde_json::{Value, json};

use crate::{QUARTER, World};

/// How often each is started.
const STARTS: usize = 20;

#[tokio::test]
async fn every_program_starts_and_asks_for_work() {
    for name in PROGRAMS {
        let mut taken = start_times(&programs().join(name), STARTS).await;
        taken.sort_unstable();
        println!(
            "{name}: median {:.1} ms, worst {:.1} ms of {STARTS}",
            taken[STARTS / 2].as_secs_f64() * 1e3,
            taken[STARTS - 1].as_secs_f64() * 1e3
        );
    }
}

/// The other entry: a function URL's payload, format 2.0.
#[tokio::test]
async fn a_function_urls_request_is_understood() {
    let world = World::new().await;
    let (_edge, mut api) = world.environment("keel-edge", &[]).await;
    let path = "/v1/capabilities";
    let event = json!({
        "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "",
        "headers": { "host": "x.lambda-url.eu-central-1.on.aws" },
        "requestContext": {
            "accountId": "anonymous", "apiId": "x", "domainName": "x.lambda-url.eu-central-1.on.aws", "domainPrefix": "x",
            "http": {
                "method": "GET", "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1", "userAgent": "t",
            },
            "requestId": "r", "routeKey": "$default", "stage": "$default",
            "time": "01/Dec/2025:00:00:00 +0000", "timeEpoch": 1_764_547_200_000_u64,
        },
        "isBase64Encoded": false,
    });
    let answer = api.invoke(event, QUARTER).reply().await;
    assert_eq!(answer["statusCode"], 200, "{answer}");
    let body: Value = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
    assert_eq!(body["apiVersion"], "v1", "{body}");
}
