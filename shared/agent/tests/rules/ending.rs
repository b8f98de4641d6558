//! S and R3a: how an attempt ends, and what it leaves behind.

use std::time::Duration;

use keel_agent::{Ended, Time};
use keel_kernel::head::FailReason;
use keel_kernel::{Kind, RunStatus, Seq};
use serde_json::{Value, json};

use crate::support::{ATTEMPTS, BACKOFF_MS, LEASE_MS, Ledger, check_partials, text_of};

const DONE: Ended = Ended::Settled(RunStatus::Done);
const PENDING: Ended = Ended::Settled(RunStatus::Pending);
const FAILED: Ended = Ended::Settled(RunStatus::Failed);

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// How the last generation with partials died, if it did.
fn death(ledger: &Ledger) -> Option<&'static str> {
    ledger.partials().last().and_then(|partial| partial.dead)
}

#[tokio::test(start_paused = true)]
async fn s4_input_that_commits_right_before_the_settle_is_seen_by_it() {
    let ledger = Ledger::new();
    ledger.queue("hello");
    ledger.before_settle(|ledger| _ = ledger.queue("just now"));
    let a = ledger.claim("a");
    assert_eq!(a.answer_run().await, PENDING);
    assert_eq!(
        ledger.input_seqs(),
        [json!([1])],
        "the answer is written once, and does not claim to have seen it"
    );
    assert_eq!(ledger.summaries(), ["done"]);
    assert_eq!(ledger.claim("b").answer_run().await, DONE);
    assert_eq!(ledger.input_seqs()[1], json!([2]));
}

#[tokio::test(start_paused = true)]
async fn s4_d3_a_guide_that_commits_right_before_the_settle_is_answered_in_the_run() {
    let ledger = Ledger::new();
    ledger.queue("hello");
    ledger.before_settle(|ledger| _ = ledger.guide("just now"));
    ledger.before_settle(|ledger| _ = ledger.guide("once more"));
    let a = ledger.claim("a");
    assert_eq!(a.answer_run().await, DONE);
    assert_eq!(ledger.input_seqs(), [json!([1]), json!([2]), json!([4])]);
    assert_eq!(ledger.summaries(), ["done"]);
    assert_eq!(ledger.head().ledger.unanswered.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn s_a_failure_is_retried_until_the_budget_is_spent() {
    let ledger = Ledger::new();
    ledger.queue("!error no");
    for attempt in 1..=ATTEMPTS {
        let owner = ledger.claim("a");
        assert_eq!(owner.context.attempt, attempt);
        assert_eq!(owner.answer_run().await, if attempt < ATTEMPTS { PENDING } else { FAILED });
        let summary = ledger.payloads(Kind::RunFinished).pop().unwrap();
        assert_eq!((&summary["status"], &summary["attempt"]), (&json!("failed"), &json!(attempt)));
        assert_eq!(summary["error"], "no");
        pass(BACKOFF_MS).await;
    }
    assert_eq!(ledger.head().run.reason, Some(FailReason::AttemptsSpent));
    ledger.queue("again");
    assert_eq!(ledger.claim("b").answer_run().await, DONE);
    assert_eq!(ledger.input_seqs().pop(), Some(json!([1, 8])), "later input answers what was left");
}

#[tokio::test(start_paused = true)]
async fn s_an_attempt_past_the_budget_fails_without_asking_the_model() {
    let ledger = Ledger::new();
    ledger.queue("hello");
    for _ in 0..ATTEMPTS {
        ledger.claim("dies");
        pass(LEASE_MS).await;
    }
    let last = ledger.claim("a");
    assert_eq!(last.answer_run().await, FAILED);
    assert_eq!(last.provider.contexts().len(), 0);
    assert_eq!(ledger.kinds(), ["user.message", "run.finished"]);
    assert_eq!(ledger.summaries(), ["failed"]);
}

#[tokio::test(start_paused = true)]
async fn s_an_attempt_makes_no_more_requests_than_it_may() {
    let ledger = Ledger::new();
    ledger.queue(&["!tool echo {}"; 5].join("\n!then\n"));
    let mut a = ledger.claim("a");
    a.context.max_turns = 2;
    assert_eq!(a.answer_run().await, PENDING);
    assert_eq!((a.provider.contexts().len(), a.tools.ran().len()), (2, 2), "the last turn's tools are run");
    let summary = &ledger.payloads(Kind::RunFinished)[0];
    assert_eq!((&summary["status"], &summary["turns"]), (&json!("failed"), &json!(2)));
    pass(BACKOFF_MS).await;
    assert_eq!(ledger.claim("b").answer_run().await, DONE, "the next attempt goes on where this one stopped");
    assert_eq!(ledger.payloads(Kind::ToolResult).len(), 5);
}

#[tokio::test(start_paused = true)]
async fn s5_a_hand_over_in_mid_stream_is_no_attempt_and_a_successor_goes_on() {
    let ledger = Ledger::new();
    ledger.queue("!stream 50 100");
    let a = ledger.claim("a");
    assert_eq!(a.answer_run_and(1_050, || a.time(Time::Stop)).await, Ended::HandedOver);
    assert_eq!(ledger.kinds(), ["user.message"], "S1: no summary, since nothing was settled");
    let run = ledger.head().run;
    assert_eq!((run.status, run.attempts, run.handovers), (RunStatus::Pending, 0, 1));
    assert_eq!(run.watermark, Some(Seq(1)));
    assert_eq!(death(&ledger), Some("handed_over"));
    assert!(ledger.partials().len() > 5, "it had partials before it died");
    let b = ledger.claim("b");
    assert_eq!(b.context.attempt, 1);
    assert_eq!(b.answer_run().await, DONE);
    assert_eq!(ledger.input_seqs(), [json!([1])]);
}

#[tokio::test(start_paused = true)]
async fn s5_a_hand_over_in_mid_tool_leaves_the_call_open_for_the_successor() {
    let ledger = Ledger::new();
    ledger.queue("!tool sleep {\"ms\":5000}\n!tool echo {}");
    let a = ledger.claim("a");
    assert_eq!(a.answer_run_and(1_000, || a.time(Time::Stop)).await, Ended::HandedOver);
    assert_eq!(ledger.kinds(), ["user.message", "assistant.message", "tool.result"]);
    let b = ledger.claim("b");
    assert_eq!(b.answer_run().await, DONE);
    assert_eq!(b.tools.ran(), ["call_0"]);
    assert_eq!(ledger.payloads(Kind::ToolResult).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn s5_with_little_time_what_runs_may_end_and_nothing_is_begun() {
    let ledger = Ledger::new();
    ledger.queue("!stream 10 100\n!tool echo {}");
    let a = ledger.claim("a");
    assert_eq!(a.answer_run_and(150, || a.time(Time::NoNewRequest)).await, Ended::HandedOver);
    assert_eq!(ledger.kinds(), ["user.message", "assistant.message"]);
    assert_eq!(a.tools.ran(), [""; 0]);
    let ledger = Ledger::new();
    ledger.queue("!stream 10 100");
    let a = ledger.claim("a");
    assert_eq!(a.answer_run_and(150, || a.time(Time::NoNewRequest)).await, DONE, "settling needs no time");
}

#[tokio::test(start_paused = true)]
async fn s_a_cancel_in_mid_stream_keeps_what_was_said_as_aborted() {
    let ledger = Ledger::new();
    ledger.queue("!stream 100 50");
    let a = ledger.claim("a");
    assert_eq!(a.answer_run_and(1_020, || a.cancel()).await, FAILED);
    assert_eq!(ledger.head().run.reason, Some(FailReason::Cancelled));
    assert_eq!(ledger.kinds(), ["user.message", "assistant.message", "run.finished"]);
    let answer = &ledger.answers()[0];
    assert_eq!((&answer["stopReason"], &answer["inputSeqs"]), (&json!("aborted"), &json!([1])));
    assert!(text_of(answer).starts_with("word0 word1 ") && text_of(answer).ends_with("word20 "));
    assert_eq!(ledger.summaries(), ["cancelled"]);
    assert_eq!(death(&ledger), Some("aborted"));
    // A2: it answered nothing, and the next run, started by later input, answers both.
    ledger.queue("hello");
    let b = ledger.claim("b");
    assert_eq!(b.answer_run().await, DONE);
    assert_eq!(ledger.input_seqs()[1], json!([1, 4]));
    assert_eq!(b.provider.contexts()[0].len(), 2, "A3");
}

#[tokio::test(start_paused = true)]
async fn s_a_cancel_in_mid_tool_gives_open_calls_an_error_result() {
    let ledger = Ledger::new();
    ledger.queue("!tool sleep {\"ms\":60000}\n!tool echo {}\n!tool sleep {\"ms\":60000}");
    let a = ledger.claim("a");
    assert_eq!(a.answer_run_and(1_000, || a.cancel()).await, FAILED);
    let results: Vec<Value> = ledger
        .payloads(Kind::ToolResult)
        .iter()
        .map(|result| json!([result["toolCallId"], result["isError"]]))
        .collect();
    assert_eq!(results, [json!(["call_1", false]), json!(["call_0", true]), json!(["call_2", true])]);
    assert_eq!(ledger.kinds()[5..], ["assistant.message", "run.finished"]);
    assert_eq!(ledger.answers()[1]["stopReason"], "aborted");
    assert_eq!(ledger.summaries(), ["cancelled"]);
    assert!(ledger.head().ledger.open_calls.is_empty());
}

#[tokio::test(start_paused = true)]
async fn s_a_cancel_fits_where_many_calls_are_open() {
    let ledger = Ledger::new();
    ledger.queue(&["!tool sleep {\"ms\":60000}"; 32].join("\n"));
    let a = ledger.claim("a");
    assert_eq!(a.answer_run_and(1_000, || a.cancel()).await, FAILED);
    assert_eq!(ledger.payloads(Kind::ToolResult).len(), 32);
    assert_eq!(ledger.summaries(), ["cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn s_a_cancel_stops_a_model_that_hangs() {
    let ledger = Ledger::new();
    ledger.queue("!hang");
    let a = ledger.claim("a");
    assert_eq!(a.answer_run_and(5_000, || a.cancel()).await, FAILED);
    let answer = &ledger.answers()[0];
    assert_eq!((&answer["stopReason"], &answer["content"]), (&json!("aborted"), &json!([])));
}

#[tokio::test(start_paused = true)]
async fn s_a_cancel_comes_before_a_hand_over() {
    let ledger = Ledger::new();
    ledger.queue("!hang");
    let a = ledger.claim("a");
    a.time(Time::Stop);
    a.cancel();
    assert_eq!(a.answer_run().await, FAILED);
    assert_eq!(ledger.summaries(), ["cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn s4_input_after_a_cancel_starts_the_next_run() {
    let ledger = Ledger::new();
    ledger.queue("!hang");
    let a = ledger.claim("a");
    let cancel = || {
        a.cancel();
        ledger.queue("hello");
    };
    assert_eq!(a.answer_run_and(1_000, cancel).await, PENDING);
    assert_eq!(ledger.claim("b").answer_run().await, DONE);
    assert_eq!(ledger.input_seqs(), [json!([1]), json!([1, 2])]);
}

#[tokio::test(start_paused = true)]
async fn d5_a1_an_aborted_message_names_what_its_request_presented() {
    let ledger = Ledger::new();
    ledger.queue("!stream 100 50");
    let a = ledger.claim("a");
    let meanwhile = || {
        ledger.guide("the model never saw this");
        a.cancel();
    };
    assert_eq!(a.answer_run_and(1_020, meanwhile).await, FAILED);
    assert_eq!(ledger.input_seqs(), [json!([1])]);
}

#[tokio::test(start_paused = true)]
async fn s2_a_summary_that_is_refused_does_not_change_a_failures_or_a_cancels_outcome() {
    let ledger = Ledger::new();
    *ledger.refuse_summaries.lock().unwrap() = true;
    ledger.queue("!error no");
    assert_eq!(ledger.claim("a").answer_run().await, PENDING);
    let ledger = Ledger::new();
    *ledger.refuse_summaries.lock().unwrap() = true;
    ledger.queue("!hang");
    let a = ledger.claim("a");
    assert_eq!(a.answer_run_and(1_000, || a.cancel()).await, FAILED);
    assert_eq!(ledger.head().run.reason, Some(FailReason::Cancelled));
    assert_eq!(ledger.summaries(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn s2_a_summary_that_is_refused_does_not_change_a_successs_outcome() {
    let ledger = Ledger::new();
    *ledger.refuse_summaries.lock().unwrap() = true;
    ledger.queue("hello");
    assert_eq!(ledger.claim("a").answer_run().await, DONE);
    assert_eq!(ledger.input_seqs(), [json!([1])]);
}

#[tokio::test(start_paused = true)]
async fn r3a_partials_are_a_prefix_of_their_generations_text() {
    let ledger = Ledger::new();
    ledger.queue("!stream 30 40\n!tool echo {}\n!then\n!stream 500 1");
    assert_eq!(ledger.claim("a").answer_run().await, DONE);
    let partials = ledger.partials();
    assert!(partials.len() > 10 && partials.iter().all(|partial| partial.dead.is_none()));
    for answer in ledger.answers() {
        let of = |partial: &&keel_agent::Partial| answer["generationId"] == *partial.generation_id;
        let joined: String = partials.iter().filter(of).map(|partial| partial.text.as_str()).collect();
        assert_eq!(joined, text_of(&answer), "of a completed one they are the whole of it");
    }
}

#[tokio::test(start_paused = true)]
async fn r3a_a_generation_that_fails_says_so_last() {
    let ledger = Ledger::new();
    ledger.queue("!stream 10 100\n!error no");
    assert_eq!(ledger.claim("a").answer_run().await, PENDING);
    assert_eq!(death(&ledger), Some("error"));
    assert!(ledger.partials().iter().rev().skip(1).all(|partial| partial.dead.is_none()));
}

#[tokio::test(start_paused = true)]
async fn r3_partials_that_fail_leave_no_hole_and_do_not_touch_the_answer() {
    let ledger = Ledger::new();
    *ledger.partials_fail_from.lock().unwrap() = Some(3);
    ledger.queue("!stream 30 100");
    let a = ledger.claim("a");
    let again = || *ledger.partials_fail_from.lock().unwrap() = None;
    assert_eq!(a.answer_run_and(1_500, again).await, DONE);
    assert_eq!(ledger.partials().len(), 3, "after a hole nothing would be a prefix any more");
    assert!(text_of(&ledger.answers()[0]).ends_with("word29 "));
}

#[tokio::test(start_paused = true)]
async fn r3a_a_generation_whose_answer_is_refused_says_that_it_died() {
    let ledger = Ledger::new();
    // I4a: no payload holds this number, so the answer becomes a failed message without its text.
    ledger.queue("!say hello\n!tool echo {\"n\":9007199254740993}");
    assert_eq!(ledger.claim("a").answer_run().await, PENDING);
    assert_eq!(ledger.answers()[0]["stopReason"], "error");
}

#[tokio::test(start_paused = true)]
async fn r3a_a_fenced_owners_generation_says_that_it_died() {
    let ledger = Ledger::new();
    ledger.queue("!stream 10 10000");
    let a = ledger.claim("a");
    let lost = || a.signals.send_modify(|signals| signals.lost = true);
    assert_eq!(a.answer_run_and(25_000, lost).await, Ended::Lost);
    assert!(!ledger.partials().is_empty());
    check_partials(&ledger.partials(), &ledger.events(), false);
}
