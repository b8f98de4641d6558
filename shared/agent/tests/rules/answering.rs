//! A, D, V and I7: what is asked of the model, and what of it reaches the ledger.

use std::time::Duration;

use keel_agent::{Ended, SessionPortError};
use keel_kernel::{Kind, RunStatus};
use serde_json::{Value, json};

use crate::support::{BACKOFF_MS, LEASE_MS, Ledger, text_of};

const DONE: Ended = Ended::Settled(RunStatus::Done);
const PENDING: Ended = Ended::Settled(RunStatus::Pending);

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// The ids of the calls of all messages, in order.
fn call_ids(ledger: &Ledger) -> Vec<String> {
    let blocks = ledger
        .answers()
        .into_iter()
        .flat_map(|answer| answer["content"].as_array().cloned().unwrap_or_default());
    let calls = blocks.filter(|block| block["type"] == "toolCall");
    calls.map(|call| call["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a1_s1_a_simple_answer_is_three_events() {
    let ledger = Ledger::new();
    ledger.queue("hello");
    assert_eq!(ledger.claim("a").answer_run().await, DONE);
    assert_eq!(ledger.kinds(), ["user.message", "assistant.message", "run.finished"]);
    let answer = &ledger.answers()[0];
    assert_eq!(answer["inputSeqs"], json!([1]));
    assert_eq!(answer["stopReason"], "end_turn");
    assert_eq!(text_of(answer), "You said: hello");
    let summary = &ledger.payloads(Kind::RunFinished)[0];
    assert_eq!(summary["status"], "done");
    assert_eq!((&summary["attempt"], &summary["turns"]), (&json!(1), &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn a1_an_answer_names_what_its_request_newly_presented() {
    let ledger = Ledger::new();
    ledger.queue("one");
    ledger.queue("two");
    ledger.queue("!tool echo {}\n!then\n!say bye");
    assert_eq!(ledger.claim("a").answer_run().await, DONE);
    assert_eq!(ledger.input_seqs(), [json!([1, 2, 3]), json!([])], "and no input twice");
}

#[tokio::test(start_paused = true)]
async fn d2_input_queued_in_mid_run_is_left_for_the_next_one() {
    let ledger = Ledger::new();
    ledger.queue("!stream 5 100\n!tool echo {}");
    let a = ledger.claim("a");
    assert_eq!(a.answer_run_and(250, || ledger.queue("later")).await, PENDING);
    assert_eq!(ledger.input_seqs(), [json!([1]), json!([])]);
    assert!(a.provider.contexts().iter().flatten().all(|message| message != "user:later"));
    assert_eq!(ledger.claim("b").answer_run().await, DONE);
    assert_eq!(ledger.input_seqs()[2], json!([2]));
    assert_eq!(ledger.summaries(), ["done", "done"]);
}

#[tokio::test(start_paused = true)]
async fn d3_guides_enter_one_per_request_behind_all_sibling_results() {
    let ledger = Ledger::new();
    ledger.queue("!tool sleep {\"ms\":1000}\n!tool sleep {\"ms\":500}");
    let a = ledger.claim("a");
    let guides = || {
        ledger.guide("first");
        ledger.guide("second");
    };
    assert_eq!(a.answer_run_and(100, guides).await, DONE);
    assert_eq!(ledger.input_seqs(), [json!([1]), json!([3]), json!([4])]);
    let contexts = a.provider.contexts();
    assert_eq!(contexts.len(), 3);
    assert_eq!(contexts[1][1..], ["assistant", "result:call_0", "result:call_1", "user:first"]);
    assert_eq!(contexts[2][5..], ["assistant", "user:second"]);
    assert_eq!(ledger.summaries(), ["done"], "all inside one run");
}

#[tokio::test(start_paused = true)]
async fn d3_a_guide_between_two_results_waits_for_the_slower_one() {
    let ledger = Ledger::new();
    ledger.queue("!tool sleep {\"ms\":1000}\n!tool echo {}");
    let a = ledger.claim("a");
    assert_eq!(a.answer_run_and(500, || ledger.guide("now")).await, DONE);
    let order = ["user.message", "assistant.message", "tool.result", "user.message", "tool.result"];
    assert_eq!(ledger.kinds()[..5], order);
    assert_eq!(a.provider.contexts()[1][2..], ["result:call_0", "result:call_1", "user:now"]);
}

#[tokio::test(start_paused = true)]
async fn d3_a_guide_does_not_interrupt_a_stream_and_is_answered_in_the_same_run() {
    let ledger = Ledger::new();
    ledger.queue("!stream 10 100");
    let a = ledger.claim("a");
    assert_eq!(a.answer_run_and(450, || ledger.guide("also")).await, DONE);
    assert_eq!(ledger.input_seqs(), [json!([1]), json!([2])]);
    assert!(text_of(&ledger.answers()[0]).ends_with("word9 "));
    assert_eq!(ledger.summaries(), ["done"]);
}

#[tokio::test(start_paused = true)]
async fn d3_a_guide_that_comes_after_the_last_allowed_request_starts_the_next_run() {
    let ledger = Ledger::new();
    ledger.queue("!stream 10 100");
    let mut a = ledger.claim("a");
    a.context.max_turns = 1;
    assert_eq!(a.answer_run_and(450, || ledger.guide("also")).await, PENDING);
    assert_eq!(ledger.summaries(), ["done"]);
    assert_eq!(ledger.claim("b").answer_run().await, DONE);
    assert_eq!(ledger.input_seqs(), [json!([1]), json!([2])]);
}

#[tokio::test(start_paused = true)]
async fn d5_a_guide_that_came_during_the_request_is_not_among_what_it_saw() {
    let ledger = Ledger::new();
    ledger.queue("!stream 4 100\n!tool echo {}");
    let a = ledger.claim("a");
    assert_eq!(a.answer_run_and(150, || ledger.guide("also")).await, DONE);
    assert_eq!(ledger.input_seqs(), [json!([1]), json!([2])]);
    assert_eq!(ledger.kinds()[1..3], ["user.message", "assistant.message"], "though it was there before");
    assert_eq!(a.provider.contexts()[0], ["user:!stream 4 100\n!tool echo {}"]);
}

#[tokio::test(start_paused = true)]
async fn a3_a_failed_attempt_is_tried_again_for_the_same_input() {
    let ledger = Ledger::new();
    ledger.queue("!say before\n!fail 1");
    assert_eq!(ledger.claim("a").answer_run().await, PENDING);
    let failed = &ledger.answers()[0];
    assert_eq!((&failed["stopReason"], &failed["error"]), (&json!("error"), &json!("it fails for now")));
    assert_eq!(ledger.summaries(), ["failed"]);
    pass(BACKOFF_MS).await;
    let b = ledger.claim("b");
    assert_eq!(b.context.attempt, 2);
    assert_eq!(b.answer_run().await, DONE);
    assert_eq!(ledger.input_seqs(), [json!([1]), json!([1])]);
    assert_eq!(b.provider.contexts()[0].len(), 1, "a failed message never enters the context");
    assert_eq!(ledger.summaries(), ["failed", "done"], "S1: one per settled attempt");
}

#[tokio::test(start_paused = true)]
async fn a3_a_turn_that_failed_behind_its_tools_is_taken_again() {
    let ledger = Ledger::new();
    ledger.queue("!tool echo {}\n!then\n!fail 1\n!say there");
    assert_eq!(ledger.claim("a").answer_run().await, PENDING);
    pass(BACKOFF_MS).await;
    let b = ledger.claim("b");
    assert_eq!(b.answer_run().await, DONE);
    assert_eq!(b.tools.ran(), [""; 0], "the call has its result");
    assert_eq!(b.provider.contexts()[0][1..], ["assistant", "result:call_0"]);
}

#[tokio::test(start_paused = true)]
async fn v2_ids_that_repeat_from_turn_to_turn_are_made_unique() {
    let ledger = Ledger::new();
    ledger.queue("!tool echo {\"n\":1}\n!tool echo {\"n\":2}\n!then\n!tool echo {\"n\":3}\n!then\n!say end");
    assert_eq!(ledger.claim("a").answer_run().await, DONE);
    ledger.queue("!tool echo {\"n\":4}");
    assert_eq!(ledger.claim("b").answer_run().await, DONE);
    let ids = call_ids(&ledger);
    assert_eq!(ids.len(), 4);
    assert_eq!(ids[..2], ["call_0", "call_1"], "an id that is new stays as it is");
    assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{ids:?}");
    let results: Vec<Value> = ledger.payloads(Kind::ToolResult);
    for (n, id) in ids.iter().enumerate() {
        let result = results.iter().find(|result| result["toolCallId"] == *id.as_str()).unwrap();
        assert_eq!(text_of(result), format!("{{\"n\":{}}}", n + 1), "each result is its own call's");
    }
}

#[tokio::test(start_paused = true)]
async fn i7_a_second_owner_runs_an_open_call_again_and_one_result_is_kept() {
    let ledger = Ledger::new();
    let ms = LEASE_MS + 5_000;
    ledger.queue(&format!("!tool sleep {{\"ms\":{ms}}}\n!tool echo {{}}"));
    let a = ledger.claim("a");
    let second = async {
        pass(LEASE_MS).await; // the first owner has not kept its lease, but lives
        let b = ledger.claim("b");
        (b.answer_run().await, b.tools.ran())
    };
    let (first, second) = tokio::join!(a.answer_run(), second);
    assert_eq!(first, Ended::Lost, "C2: its late result is fenced");
    assert_eq!(second, (DONE, vec!["call_0".to_owned()]), "the call that had its result is not run again");
    let results = ledger.payloads(Kind::ToolResult);
    assert_eq!(results.len(), 2);
    assert_eq!(ledger.summaries(), ["done"]);
    let epochs: Vec<u64> = ledger.events().iter().filter_map(|event| event.epoch).map(|e| e.0).collect();
    assert_eq!(epochs, [1, 1, 2, 2, 2], "nothing of the first owner's comes behind the second's claim");
}

#[tokio::test(start_paused = true)]
async fn i6_a_result_whose_answer_was_lost_is_not_made_again() {
    let ledger = Ledger::new();
    ledger.queue("!tool sleep {\"ms\":1000}");
    let a = ledger.claim("a");
    let end = async {
        pass(500).await;
        *ledger.lose_answer.lock().unwrap() = true; // of the result, written at 1000 ms
    };
    let (ended, ()) = tokio::join!(a.try_answer_run(), end);
    assert!(matches!(ended, Err(SessionPortError::Store(_))));
    pass(LEASE_MS).await;
    let b = ledger.claim("b");
    assert_eq!(b.answer_run().await, DONE);
    assert_eq!((b.tools.ran().len(), ledger.payloads(Kind::ToolResult).len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn c2_an_owner_that_lost_its_lease_writes_nothing_more() {
    let ledger = Ledger::new();
    ledger.queue("!stream 10 10000");
    let a = ledger.claim("a");
    let takeover = || {
        ledger.claim("b");
    };
    assert_eq!(a.answer_run_and(LEASE_MS, takeover).await, Ended::Lost);
    assert_eq!(ledger.kinds(), ["user.message"]);
}

#[tokio::test(start_paused = true)]
async fn c6_an_owner_of_a_closed_session_stops() {
    let ledger = Ledger::new();
    ledger.queue("!hang");
    let a = ledger.claim("a");
    let close = || {
        ledger.close();
        a.signals.send_modify(|signals| signals.lost = true);
    };
    assert_eq!(a.answer_run_and(100, close).await, Ended::Lost);
    assert_eq!(ledger.kinds(), ["user.message"]);
}

#[tokio::test(start_paused = true)]
async fn s4a_calls_of_a_message_that_met_the_token_limit_are_not_run() {
    let ledger = Ledger::new();
    ledger.queue("!tool echo {\"x\":1}\n!tool clock\n!limit");
    let a = ledger.claim("a");
    assert_eq!(a.answer_run().await, DONE);
    assert_eq!(a.tools.ran(), [""; 0]);
    assert_eq!(ledger.answers()[0]["stopReason"], "max_tokens");
    let results = ledger.payloads(Kind::ToolResult);
    assert_eq!(results.len(), 2, "each gets a result");
    assert!(results.iter().all(|result| result["isError"] == true));
    assert_eq!(ledger.answers().len(), 2, "and the model sees them");
    assert_eq!(a.provider.contexts()[1][2..], ["result:call_0", "result:call_1"]);
}

#[tokio::test(start_paused = true)]
async fn i7_a_failing_and_an_unknown_tool_give_error_results_and_the_run_goes_on() {
    let ledger = Ledger::new();
    ledger.queue("!tool fail {\"message\":\"no\"}\n!tool nobody\n!tool clock");
    assert_eq!(ledger.claim("a").answer_run().await, DONE);
    let errors: Vec<Value> =
        ledger.payloads(Kind::ToolResult).iter().map(|result| result["isError"].clone()).collect();
    assert_eq!(errors, [true, true, false]);
    let timings = &ledger.payloads(Kind::RunFinished)[0]["toolTimings"];
    assert_eq!(timings.as_array().unwrap().len(), 3, "V4");
}
