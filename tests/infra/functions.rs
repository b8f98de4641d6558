//! The functions are the programs that are built, with the settings that they need.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::template::{file, list, members, resources, template, text};

const SOURCES: [&str; 6] = [
    "shared/lambda/src/lib.rs",
    "functions/edge/src/main.rs",
    "functions/kernel/src/main.rs",
    "functions/kernel/src/bin/sweep.rs",
    "functions/stream/src/main.rs",
    "functions/worker/src/main.rs",
];

fn properties<'a>(template: &'a Value, name: &str) -> &'a Value {
    &template["Resources"][name]["Properties"]
}

#[test]
fn every_program_is_a_function() {
    let built: BTreeSet<String> = ["edge", "kernel", "stream", "worker"]
        .iter()
        .flat_map(|function| {
            let manifest = file(&format!("functions/{function}/Cargo.toml"));
            let programs = manifest.split("[[bin]]").skip(1);
            let name =
                |part: &str| part.split("name = \"").nth(1)?.split_once('"').map(|(name, _)| name.to_owned());
            programs.map(|part| name(part).expect("a program has a name")).collect::<Vec<_>>()
        })
        .collect();
    let template = template();
    let deployed = resources(&template, "AWS::Serverless::Function").into_iter();
    let program = |uri: &Value| {
        let zip =
            text(uri).strip_prefix("../target/lambda/").and_then(|zip| zip.strip_suffix("/bootstrap.zip"));
        zip.expect("where make build puts it").to_owned()
    };
    assert_eq!(deployed.map(|(_, function)| program(&function["CodeUri"])).collect::<BTreeSet<_>>(), built);
}

#[test]
fn every_variable_that_is_set_is_read() {
    let template = template();
    let sources: String = SOURCES.iter().map(|path| file(path)).collect();
    let functions =
        resources(&template, "AWS::Serverless::Function").into_iter().map(|(_, function)| function);
    let mut set = BTreeSet::new();
    for function in functions.chain([&template["Globals"]["Function"]]) {
        let variables = function["Environment"]["Variables"].as_object();
        set.extend(variables.into_iter().flat_map(|variables| variables.keys()));
    }
    assert!(set.len() >= 5, "{set:?}");
    for name in set {
        // Set by the runtime and read by lambda_http.
        assert!(
            name == "AWS_LAMBDA_HTTP_IGNORE_STAGE_IN_PATH" || sources.contains(&format!("\"{name}\"")),
            "{name}"
        );
    }
}

#[test]
fn s5_the_worker_may_feed_its_own_queue_and_fails_message_by_message() {
    let template = template();
    let worker = properties(&template, "Worker");
    assert_eq!(worker["RecursiveLoop"], "Allow");
    let source = &worker["Events"]["Hints"];
    assert_eq!(source["Type"], "SQS");
    assert_eq!(source["Properties"]["FunctionResponseTypes"], json!(["ReportBatchItemFailures"]));
    assert_eq!(source["Properties"]["BatchSize"], 1, "one run for one invocation: its time is the run's");
    assert!(!source["Properties"]["ScalingConfig"]["MaximumConcurrency"].is_null());
    let queue = properties(&template, "Hints");
    assert!(queue["VisibilityTimeout"].as_u64() >= worker["Timeout"].as_u64(), "the event source demands it");
    assert_eq!(queue["RedrivePolicy"]["deadLetterTargetArn"], "DeadHints.Arn");
}

#[test]
fn the_sweep_comes_every_minute_and_ends_before_the_next() {
    let template = template();
    let sweep = properties(&template, "Sweep");
    assert_eq!(sweep["Events"]["Minute"]["Properties"]["Schedule"], "rate(1 minute)");
    assert!(sweep["Timeout"].as_u64().unwrap() < 60);
}

/// Without a log group in the template, Lambda makes one that is kept for ever.
#[test]
fn every_log_is_kept_for_a_time_that_is_said() {
    let template = template();
    for (name, group) in resources(&template, "AWS::Logs::LogGroup") {
        assert_eq!(group["RetentionInDays"], "LogDays", "{name}");
    }
    for (name, function) in resources(&template, "AWS::Serverless::Function") {
        assert_eq!(function["LoggingConfig"]["LogGroup"], format!("{name}Logs"));
    }
}

#[test]
fn every_function_is_watched() {
    let template = template();
    let functions: BTreeSet<&str> =
        resources(&template, "AWS::Serverless::Function").into_iter().map(|(name, _)| name).collect();
    for alarm in ["ErrorsAlarm", "ThrottlesAlarm"] {
        let metrics = list(&properties(&template, alarm)["Metrics"]).iter();
        let watched: BTreeSet<&str> = metrics
            .filter(|metric| metric["Expression"].is_null())
            .map(|metric| text(&metric["MetricStat"]["Metric"]["Dimensions"][0]["Value"]))
            .collect();
        assert_eq!(watched, functions, "{alarm}");
    }
    // What the functions count themselves is counted under the names that alarms and the dashboard ask for.
    let metrics = file("shared/env/src/metric.rs");
    let dashboard = text(&properties(&template, "Dashboard")["DashboardBody"]);
    for (alarm, metric) in [("FencedAlarm", "Fenced"), ("StreamErrorsAlarm", "StreamErrors")] {
        let alarm = properties(&template, alarm);
        assert_eq!((&alarm["Namespace"], &alarm["MetricName"]), (&json!("Keel"), &json!(metric)));
        assert_eq!(alarm["Dimensions"], json!([{ "Name": "Stage", "Value": "Stage" }]));
        assert!(metrics.contains(&format!("\"{metric}\"")), "{metric} is counted");
    }
    let counted: BTreeSet<&str> =
        metrics.split("&str = \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let counted: BTreeSet<&str> = counted.into_iter().filter(|name| !name.contains(':')).collect();
    assert_eq!(counted.len(), 7, "{counted:?}");
    for metric in counted {
        assert!(dashboard.contains(&format!("[\"Keel\", \"{metric}\",")), "the dashboard shows {metric}");
    }
    let body: Value = serde_json::from_str(dashboard).expect("the dashboard is JSON");
    assert!(!list(&members(&body)["widgets"]).is_empty());
}
