//! Models and tools may return texts of any size with any characters. Each reaches the ledger, or the attempt fails with the
//! reason; none stops the owner.

use async_trait::async_trait;
use keel_agent::tool::{ToolOutput, ToolSpec};
use keel_agent::{Ended, Tools};
use keel_kernel::event::ToolCall;
use keel_kernel::{Kind, RunStatus, caps};
use serde_json::json;

use crate::support::{Ledger, text_of};

const DONE: Ended = Ended::Settled(RunStatus::Done);
const PENDING: Ended = Ended::Settled(RunStatus::Pending);

/// A tool that always gives this text.
struct FixedOutput(String);

#[async_trait]
impl Tools for FixedOutput {
    fn specs(&self) -> Vec<ToolSpec> {
        Vec::new()
    }

    async fn call(&self, _: &ToolCall) -> ToolOutput {
        ToolOutput::of(self.0.clone())
    }
}

/// The result of a call whose tool gives `text`.
async fn result_of(text: String) -> String {
    let ledger = Ledger::new();
    ledger.queue("!tool any\n!then\n!say end");
    let ended = ledger.claim("a").answer_run_with(&FixedOutput(text)).await;
    assert_eq!(ended.expect("the store does not fail"), DONE);
    text_of(&ledger.payloads(Kind::ToolResult)[0])
}

#[tokio::test(start_paused = true)]
async fn i7_a_long_result_is_cut_to_what_a_payload_holds() {
    assert_eq!(result_of("a\0b".to_owned()).await, "a\u{fffd}b");
    let long = result_of("é".repeat(caps::PAYLOAD_BYTES)).await;
    assert!(long.starts_with('é') && long.ends_with("[cut]") && long.len() < caps::PAYLOAD_BYTES);
}

#[tokio::test(start_paused = true)]
async fn i7_a_result_full_of_escapes_is_cut_to_what_a_payload_holds() {
    // In JSON a quote takes two bytes and a control character six: 150 KB of text are more than a payload holds.
    for text in ["\"".repeat(150_000), "\u{1}".repeat(60_000)] {
        let result = result_of(text.clone()).await;
        assert_eq!(result[..1_000], text[..1_000]);
    }
}

#[tokio::test(start_paused = true)]
async fn i7_a_tool_name_of_any_length_is_answered() {
    let ledger = Ledger::new();
    ledger.queue(&format!("!tool {}\n!then\n!say end", "x".repeat(140_000)));
    let ended = ledger.claim("a").answer_run().await;
    assert!(matches!(ended, Ended::Settled(RunStatus::Done | RunStatus::Pending)), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn s1_v4_a_summary_of_many_tools_is_written() {
    // As many turns as a worker allows, as many calls as a message may have, each with a long name.
    let call = format!("!tool {}", "n".repeat(100));
    let turn = vec![call; caps::CALLS_PER_MESSAGE].join("\n");
    let ledger = Ledger::new();
    ledger.queue(&vec![turn; 49].join("\n!then\n"));
    let mut a = ledger.claim("a");
    a.context.max_turns = 50;
    assert_eq!(a.answer_run_with(&FixedOutput(String::new())).await.unwrap(), DONE);
    assert_eq!(ledger.summaries(), ["done"]);
}

#[tokio::test(start_paused = true)]
async fn s_a_cancel_keeps_what_fits_of_what_was_said() {
    let ledger = Ledger::new();
    ledger.queue(&format!("!say {}\n!hang", "\"".repeat(131_000)));
    let a = ledger.claim("a");
    assert_eq!(a.answer_run_and(1_000, || a.cancel()).await, Ended::Settled(RunStatus::Failed));
    assert_eq!(ledger.answers()[0]["stopReason"], "aborted");
    assert!(text_of(&ledger.answers()[0]).starts_with("\"\"\""));
}

#[tokio::test(start_paused = true)]
async fn v2_an_answer_with_more_calls_than_a_message_may_have_is_a_failed_attempt() {
    let ledger = Ledger::new();
    ledger.queue(&["!tool echo {}"; caps::CALLS_PER_MESSAGE + 1].join("\n"));
    let a = ledger.claim("a");
    assert_eq!(a.answer_run().await, PENDING);
    assert_eq!(ledger.kinds(), ["user.message", "assistant.message", "run.finished"]);
    let answer = &ledger.answers()[0];
    assert_eq!((&answer["stopReason"], &answer["inputSeqs"]), (&json!("error"), &json!([1])));
    assert!(answer["error"].as_str().unwrap().contains("refused"));
    assert_eq!(a.tools.ran(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn i7_arguments_that_are_no_json_object_get_an_error_result() {
    let ledger = Ledger::new();
    ledger.queue("!tool echo {\"cut\": \n!tool echo [1]\n!tool echo\n!then\n!say end");
    let a = ledger.claim("a");
    assert_eq!(a.answer_run().await, DONE);
    assert_eq!(a.tools.ran(), ["call_2"], "the others are not run");
    let errors: Vec<_> =
        ledger.payloads(Kind::ToolResult).iter().map(|result| result["isError"] == true).collect();
    assert_eq!(errors.iter().filter(|error| **error).count(), 2);
}
