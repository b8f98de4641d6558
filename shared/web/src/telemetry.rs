//! Logs: JSON lines for a log service, or short lines for a person at a terminal. Counts go to standard output in
//! CloudWatch's embedded metric format: CloudWatch reads them from the function's log, so no agent is needed.

use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use keel_env::metric;
use keel_env::trace::Trace;
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt};

/// Who reads the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A log service, which reads metrics from the log, for the stage of this name.
    Machine {
        /// What the deployment is called.
        stage: String,
    },
    /// A person.
    Person,
}

/// Starts logging to standard error. `filter` is a directive as of `RUST_LOG`; one that does not parse logs at `info`.
pub fn start(reader: Reader, filter: &str) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    // Counts are not log lines.
    let filter = filter.and(filter_fn(|line| line.target() != metric::TARGET));
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(false);
    let log = tracing_subscriber::registry();
    match reader {
        Reader::Machine { stage } => {
            let counts = filter_fn(|line| line.target() == metric::TARGET);
            let lines = lines.json().flatten_event(true).with_filter(filter);
            log.with(lines).with(Counts { stage }.with_filter(counts)).init();
        }
        Reader::Person => log.with(lines.compact().with_filter(filter)).init(),
    }
}

/// Writes each count as a line to standard output.
struct Counts {
    stage: String,
}

/// A counting event's fields.
#[derive(Default)]
struct Counted {
    metric: String,
    n: u64,
    status: Option<String>,
}

impl Visit for Counted {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "n" {
            self.n = value;
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "metric" => value.clone_into(&mut self.metric),
            "status" => self.status = Some(value.to_owned()),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl<S: Subscriber> Layer<S> for Counts {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut counted = Counted::default();
        event.record(&mut counted);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let line = format!("{}\n", counted.line(&self.stage, now, Trace::current()));
        // If the line cannot be written, requests are answered all the same.
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }
}

impl Counted {
    /// CloudWatch's embedded metric format. The trace is a property: a dimension would be a metric for each request.
    fn line(&self, stage: &str, now_ms: u64, trace: Option<Trace>) -> Value {
        let mut dimensions = vec![json!(["Stage"])];
        if self.status.is_some() {
            dimensions.push(json!(["Stage", "Status"]));
        }
        let mut line = json!({
            "_aws": {
                "Timestamp": now_ms,
                "CloudWatchMetrics": [{
                    "Namespace": "Keel",
                    "Dimensions": dimensions,
                    "Metrics": [{ "Name": self.metric, "Unit": "Count" }],
                }],
            },
            "Stage": stage,
        });
        line[&self.metric] = json!(self.n);
        if let Some(status) = &self.status {
            line["Status"] = json!(status);
        }
        if let Some(trace) = trace {
            line["trace"] = json!(trace.id());
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_reads_as_an_embedded_metric() {
        let counted = Counted { metric: "RunsSettled".into(), n: 1, status: Some("done".into()) };
        let trace = Trace::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        assert_eq!(
            counted.line("dev", 1_764_547_200_000, trace),
            json!({
                "_aws": {
                    "Timestamp": 1_764_547_200_000_u64,
                    "CloudWatchMetrics": [{
                        "Namespace": "Keel",
                        "Dimensions": [["Stage"], ["Stage", "Status"]],
                        "Metrics": [{ "Name": "RunsSettled", "Unit": "Count" }],
                    }],
                },
                "Stage": "dev",
                "RunsSettled": 1,
                "Status": "done",
                "trace": "4bf92f3577b34da6a3ce929d0e0e4736",
            })
        );
    }

    #[test]
    fn a_count_without_a_status_has_one_dimension() {
        let counted = Counted { metric: "Inputs".into(), n: 2, status: None };
        let line = counted.line("dev", 0, None);
        assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([["Stage"]]));
        assert_eq!(line["Inputs"], 2);
        assert!(line.get("trace").is_none() && line.get("Status").is_none());
    }
}
