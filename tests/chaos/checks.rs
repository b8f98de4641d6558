//! What must hold of every ledger, whatever the network did.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use keel_tests::assert_gap_free;
use serde_json::Value;

use crate::traffic::ClientRecord;

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) inputs: u64,
    pub(crate) retries: u64,
    events: u64,
    answers: u64,
    failed: u64,
    tools: u64,
    attempts: u64,
}

impl Counts {
    /// L2, I2, I3, I6, I7, A2: no gap, each key's event at the seq its client was given, one answer per input.
    pub(crate) fn check(&mut self, record: &ClientRecord, events: &[Value]) {
        let session = &record.session;
        assert_gap_free(events);
        let mut requests = BTreeMap::new();
        let mut results = BTreeSet::new();
        let mut answered = BTreeMap::new();
        for event in events {
            let payload = &event["payload"];
            match event["kind"].as_str().unwrap() {
                "user.message" => {
                    let request = payload["requestId"].as_str().unwrap();
                    assert_eq!(
                        requests.insert(request, event["seq"].as_u64().unwrap()),
                        None,
                        "{session}: {request}"
                    );
                }
                "tool.result" => {
                    let call = payload["toolCallId"].as_str().unwrap();
                    assert!(results.insert(call), "{session}: {call} has two results");
                    self.tools += 1;
                }
                "assistant.message"
                    if ["error", "aborted"].contains(&payload["stopReason"].as_str().unwrap()) =>
                {
                    self.failed += 1;
                }
                "assistant.message" => {
                    self.answers += 1;
                    for seq in payload["inputSeqs"].as_array().unwrap() {
                        let before = answered.insert(seq.as_u64().unwrap(), &event["seq"]);
                        assert_eq!(before, None, "{session}: {seq} is answered twice");
                    }
                }
                "run.finished" => self.attempts += 1,
                kind => panic!("{session}: {kind}"),
            }
        }
        for (request, seq) in &record.acknowledged {
            assert_eq!(
                requests.get(request.as_str()),
                Some(seq),
                "{session}: {request} is at the acknowledged seq"
            );
        }
        assert_eq!(requests.len(), record.acknowledged.len() + 1, "{session}: no input that no client sent");
        let inputs: BTreeSet<u64> = requests.values().copied().collect();
        assert!(inputs.iter().eq(answered.keys()), "{session}: each input has its answer");
        self.inputs += requests.len() as u64;
        self.retries += record.retries;
        self.events += events.len() as u64;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inputs, retries, events, answers, failed, tools, attempts } = self;
        write!(
            f,
            "{inputs} inputs ({retries} sent again), {events} events, {answers} answers, {failed} failed messages, \
             {tools} tool results, {attempts} settled attempts"
        )
    }
}
