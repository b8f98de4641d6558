//! The gateway and the routers agree: every route has a path that leads to the function that serves it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::template::{file, members, template, text};

/// The path that catches all others.
const REST: &str = "/{proxy+}";

/// The routes in a function's router.
fn routes(function: &str) -> Vec<String> {
    let source = file(&format!("functions/{function}/src/lib.rs"));
    let found: Vec<String> = source
        .split(".route(\"")
        .skip(1)
        .map(|rest| rest.split_once('"').expect("the route ends").0.to_owned())
        .collect();
    assert_eq!(found.len(), source.matches(".route(").count(), "{function}: a route that is no plain text");
    assert!(!found.is_empty());
    found
}

/// Where each path of the gateway leads.
fn paths(template: &Value) -> BTreeMap<String, Value> {
    let paths = members(&template["Resources"]["Api"]["Properties"]["DefinitionBody"]["paths"]).iter();
    paths
        .map(|(path, methods)| {
            // The path takes any method: the function answers 405 as a problem document.
            assert_eq!(
                members(methods).keys().collect::<Vec<_>>(),
                ["x-amazon-apigateway-any-method"],
                "{path}"
            );
            let any = &methods["x-amazon-apigateway-any-method"];
            assert!(any["security"].is_null(), "{path}: keys are checked in the function");
            (path.clone(), any["x-amazon-apigateway-integration"].clone())
        })
        .collect()
}

#[test]
fn every_route_has_a_path_to_its_function() {
    let mut paths = paths(&template());
    for (folder, function) in [("edge", "Edge"), ("kernel", "Kernel"), ("stream", "Stream")] {
        for route in routes(folder) {
            let leads = paths.remove(&route).unwrap_or_else(|| panic!("{route} has no path"));
            assert_eq!(leads["type"], "aws_proxy", "{route}");
            assert_eq!(leads["httpMethod"], "POST", "{route}: how the gateway calls a function");
            assert!(text(&leads["uri"]).contains(&format!("/functions/${{{function}.Arn}}/")), "{route}");
        }
    }
    let rest = paths.remove(REST).expect("what is no path is answered by a function");
    assert!(text(&rest["uri"]).contains("${Edge.Arn}"));
    assert!(paths.is_empty(), "paths without a route: {paths:?}");
}

#[test]
fn the_stream_is_streamed_and_nothing_else_is() {
    for (path, leads) in paths(&template()) {
        let uri = text(&leads["uri"]);
        if path.ends_with("/events/stream") {
            assert_eq!(leads["responseTransferMode"], "STREAM");
            assert!(
                uri.contains("lambda:path/2021-11-15/") && uri.ends_with("/response-streaming-invocations")
            );
        } else {
            // Calling a function in the wrong mode, streaming or not, gives an empty response.
            assert!(leads["responseTransferMode"].is_null(), "{path}");
            assert!(uri.contains("lambda:path/2015-03-31/") && uri.ends_with("/invocations"), "{path}");
        }
    }
}

/// The stream's function ends before the gateway's timeout.
#[test]
fn the_gateway_waits_longer_than_the_stream_lives() {
    let template = template();
    let stream = &paths(&template)["/v1/sessions/{id}/events/stream"];
    let function = &template["Resources"]["Stream"]["Properties"]["Timeout"];
    assert!(stream["timeoutInMillis"].as_u64().unwrap() > 1_000 * function.as_u64().unwrap());
}

/// The gateway's own refusals have the form of a function's.
#[test]
fn the_gateways_own_refusals_are_problem_documents() {
    let template = template();
    let body = &template["Resources"]["Api"]["Properties"]["DefinitionBody"];
    let errors = file("docs/errors.md");
    for (name, answer) in members(&body["x-amazon-apigateway-gateway-responses"]) {
        assert_eq!(
            answer["responseParameters"]["gatewayresponse.header.Content-Type"], "'application/problem+json'",
            "{name}"
        );
        let problem: Value =
            serde_json::from_str(text(&answer["responseTemplates"]["application/json"])).unwrap();
        let code = text(&problem["code"]);
        assert!(errors.contains(&format!("| `{code}` |")), "{name}: {code}");
        assert_eq!(problem["type"], format!("urn:keel:problem:{code}"), "{name}");
        for member in ["title", "detail", "requestId"] {
            assert!(problem[member].is_string(), "{name}: {member}");
        }
        if let Some(status) = answer["statusCode"].as_str() {
            assert_eq!(problem["status"].to_string(), status, "{name}");
        }
    }
}
