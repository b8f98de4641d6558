//! The other entry, `infra/function-url.yaml`: the same functions, and every route goes to the function that serves it.

use serde_json::Value;

use crate::template::{file, list, resources, template_at, text};

/// Whether CloudFront's pattern matches a path.
fn matches(pattern: &str, path: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == path,
        Some((before, after)) => {
            let rest = path.strip_prefix(before);
            rest.is_some_and(|rest| (0..=rest.len()).any(|start| matches(after, &rest[start..])))
        }
    }
}

/// The origin that a path goes to: the first pattern that fits.
fn origin<'a>(distribution: &'a Value, path: &str) -> &'a str {
    let behaviors = list(&distribution["CacheBehaviors"]).iter();
    let fits = behaviors.into_iter().find(|behavior| matches(text(&behavior["PathPattern"]), path));
    text(&fits.unwrap_or(&distribution["DefaultCacheBehavior"])["TargetOriginId"])
}

#[test]
fn every_route_leads_to_its_function() {
    let template = template_at("infra/function-url.yaml");
    let distribution = &resources(&template, "AWS::CloudFront::Distribution")[0].1["DistributionConfig"];
    let mut routes = 0;
    for function in ["edge", "kernel", "stream"] {
        let source = file(&format!("functions/{function}/src/lib.rs"));
        for route in source.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            // A session's id may be any word.
            for id in ["s", "settle", "lease", "commits"] {
                let path = route.replace("{id}", id);
                assert_eq!(origin(distribution, &path), function, "{path}");
                routes += 1;
            }
        }
    }
    assert!(routes > 40, "{routes}");
}

#[test]
fn the_stream_is_streamed_and_nothing_is_cached() {
    let template = template_at("infra/function-url.yaml");
    for (name, url) in resources(&template, "AWS::Lambda::Url") {
        let mode = if name == "StreamUrl" { "RESPONSE_STREAM" } else { "BUFFERED" };
        assert_eq!(url["InvokeMode"], mode, "{name}");
        assert_eq!(url["AuthType"], "NONE", "{name}: keys are checked in the function");
    }
    let distribution = &resources(&template, "AWS::CloudFront::Distribution")[0].1["DistributionConfig"];
    let behaviors =
        list(&distribution["CacheBehaviors"]).iter().chain([&distribution["DefaultCacheBehavior"]]);
    for behavior in behaviors {
        assert_eq!(behavior["CachePolicyId"], "4135ea2d-6df8-44a3-9df3-4b5a84be39ad", "CachingDisabled");
        assert_eq!(behavior["ViewerProtocolPolicy"], "https-only");
        assert!(list(&behavior["AllowedMethods"]).contains(&"POST".into()));
    }
}
