//! H: a turn whose calls wait for a person, a child or a budget.

use keel_agent::tool::ToolOutput;
use keel_agent::{CallState, Ended};
use keel_kernel::{Kind, Millis, RunStatus, WaitReason};
use serde_json::json;

use crate::support::{Ledger, locked, text_of};

const DONE: Ended = Ended::Settled(RunStatus::Done);

fn results(ledger: &Ledger) -> Vec<String> {
    ledger.payloads(Kind::ToolResult).iter().map(text_of).collect()
}

#[tokio::test(start_paused = true)]
async fn h1_h3_what_can_run_runs_and_the_run_waits_for_the_rest() {
    let ledger = Ledger::new();
    ledger.set_call_state("pay", CallState::Unopened);
    ledger.queue("!tool pay {\"amount\":7}\n!tool echo {\"x\":1}\n!then\n!say all done");
    let owner = ledger.claim("a");
    assert_eq!(owner.answer_run().await, Ended::Parked);
    assert_eq!(locked(&ledger.outside).opened, ["pay"]);
    assert_eq!(results(&ledger), [r#"{"x":1}"#], "the other call did not wait");
    let head = ledger.head();
    assert_eq!((head.run.status, head.run.waits), (RunStatus::Waiting, Some(WaitReason::Decision)));
    assert_eq!(
        (head.run.attempts, ledger.summaries().len()),
        (0, 0),
        "no attempt is spent, none is summed up"
    );

    ledger.set_call_state("pay", CallState::Known(ToolOutput::error("denied: too much")));
    let owner = ledger.claim("b");
    assert_eq!(owner.answer_run().await, DONE);
    assert_eq!(results(&ledger)[1], "denied: too much");
    assert!(owner.tools.ran().is_empty(), "H3: a denied call is never run");
    assert_eq!(owner.provider.contexts()[0][2..], ["result:call_0", "result:call_1"], "in source order");
}

#[tokio::test(start_paused = true)]
async fn h3_an_edited_call_runs_with_what_the_person_wrote() {
    let ledger = Ledger::new();
    ledger.set_call_state("echo", CallState::Ready(Some(json!({ "x": 2 }))));
    ledger.queue("!tool echo {\"x\":1}");
    assert_eq!(ledger.claim("a").answer_run().await, DONE);
    assert_eq!(results(&ledger), [r#"{"x":2}"#]);
    let asked = ledger.answers()[0]["content"][0]["arguments"].clone();
    assert_eq!(asked, json!({ "x": 1 }), "the ledger keeps what the model asked");
}

#[tokio::test(start_paused = true)]
async fn h1_an_answer_between_the_look_and_the_park_is_not_missed() {
    let ledger = Ledger::new();
    ledger.set_call_state("pay", CallState::Waits(WaitReason::Decision, Some(Millis(u64::MAX))));
    ledger.queue("!tool pay");
    ledger.before_park(|ledger| ledger.set_call_state("pay", CallState::Known(ToolOutput::of("paid"))));
    assert_eq!(ledger.claim("a").answer_run().await, DONE, "it looked again instead of waiting for ever");
    assert_eq!(results(&ledger), ["paid"]);
}

#[tokio::test(start_paused = true)]
async fn h4_a_cancel_of_a_waiting_run_abandons_what_it_waits_for() {
    let ledger = Ledger::new();
    ledger.set_call_state("child", CallState::Waits(WaitReason::Child, None));
    ledger.queue("!tool child");
    let owner = ledger.claim("a");
    assert_eq!(owner.answer_run().await, Ended::Parked);
    owner.cancel();
    let successor = ledger.claim("b");
    successor.signals.send_modify(|signals| signals.cancel = true);
    assert_eq!(successor.answer_run().await, Ended::Settled(RunStatus::Failed));
    assert_eq!(locked(&ledger.outside).abandoned, ["child"]);
    assert_eq!(results(&ledger), ["not finished: the run was cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn h5_a_reached_budget_parks_before_the_next_request_and_more_goes_on() {
    let ledger = Ledger::new();
    locked(&ledger.outside).budget = Some(1);
    ledger.queue("!tool echo\n!then\n!say over");
    let owner = ledger.claim("a");
    assert_eq!(owner.answer_run().await, Ended::Parked, "its tools have run, the next request is not made");
    assert_eq!(owner.provider.contexts().len(), 1);
    assert_eq!(ledger.head().run.waits, Some(WaitReason::Budget));
    locked(&ledger.outside).budget = Some(1_000);
    ledger.nudge();
    assert_eq!(ledger.claim("b").answer_run().await, DONE);
}
