//! K: contexts that are too long.

use keel_agent::compact::{Window, bounded};
use keel_agent::{Ended, Time};
use keel_kernel::{Kind, RunStatus, Seq};

use crate::support::{Ledger, Owner};

const DONE: Ended = Ended::Settled(RunStatus::Done);

/// A model that reads little: some 60 words of which a quarter is kept.
const SMALL: Window = Window { tokens: 400, reserve: 100, keep: 60 };

fn small(mut owner: Owner) -> Owner {
    owner.context.window = SMALL;
    owner
}

fn words(n: usize) -> String {
    "word ".repeat(n)
}

/// Questions and answers, as long as a hundred tokens each.
async fn talk(ledger: &std::sync::Arc<Ledger>, turns: usize) {
    for turn in 0..turns {
        ledger.queue(&format!("question {turn} {}", words(60)));
        assert_eq!(small(ledger.claim(&format!("t{turn}"))).answer_run().await, DONE);
    }
}

#[tokio::test(start_paused = true)]
async fn k1_a_long_conversation_is_summarised_again_and_again_and_goes_on() {
    let ledger = Ledger::new();
    talk(&ledger, 12).await;
    let summaries = ledger.payloads(Kind::Compaction);
    assert!(summaries.len() >= 2, "it was compacted {} times", summaries.len());
    for summary in &summaries {
        assert!(summary["summary"].as_str().unwrap().starts_with("A summary of"));
        assert!(summary["tokensBefore"].as_u64().unwrap() > SMALL.tokens - SMALL.reserve);
    }
    ledger.queue("and now?");
    let owner = small(ledger.claim("last"));
    owner.answer_run().await;
    let context = owner.provider.contexts().pop().unwrap();
    assert_eq!(context[0], "summary");
    assert!(context.len() < 12, "what was summarised is gone: {context:?}");
}

#[tokio::test(start_paused = true)]
async fn k1_k2_input_that_comes_while_a_summary_is_written_is_kept_and_answered_in_its_turn() {
    let ledger = Ledger::new();
    talk(&ledger, 3).await;
    let asked = ledger.queue(&format!("the last question {}", words(120)));
    let mut owner = small(ledger.claim("a"));
    owner.slow_ms = 1_000;
    let (queued, guided) = (std::sync::Mutex::new(0), std::sync::Mutex::new(0));
    let ended = owner
        .answer_run_and(500, || {
            *queued.lock().unwrap() = ledger.queue("queued meanwhile");
            *guided.lock().unwrap() = ledger.guide("guided meanwhile");
        })
        .await;
    let (queued, guided) = (*queued.lock().unwrap(), *guided.lock().unwrap());
    assert!(ledger.kinds().iter().filter(|kind| **kind == "compaction").count() >= 1);
    let compaction = ledger.events().iter().rfind(|event| event.kind == Kind::Compaction).unwrap().seq;
    assert!(Seq(queued) < compaction, "it came before the summary was committed");
    assert_eq!(ended, Ended::Settled(RunStatus::Pending), "S4: the queued one starts the next run");
    let named: Vec<_> = ledger.input_seqs().into_iter().skip(3).collect();
    assert_eq!(
        named,
        [serde_json::json!([asked, guided])],
        "D3: the guide came in at the boundary, the other did not"
    );
    assert_eq!(small(ledger.claim("b")).answer_run().await, DONE);
    assert_eq!(ledger.input_seqs().last().unwrap(), &serde_json::json!([queued]));
}

#[tokio::test(start_paused = true)]
async fn k1_a_turn_that_is_cut_through_keeps_what_it_was_asked_and_its_calls_with_their_results() {
    let ledger = Ledger::new();
    let mut script = format!("!say {}", words(30));
    for step in 0..8 {
        script.push_str(&format!("\n!tool echo {{\"step\":{step},\"text\":\"{}\"}}\n!then", words(50)));
    }
    script.push_str("\n!say done");
    ledger.queue(&script);
    let owner = small(ledger.claim("a"));
    assert_eq!(owner.answer_run().await, DONE);
    let summaries = ledger.payloads(Kind::Compaction);
    assert!(!summaries.is_empty());
    let summary = summaries[0]["summary"].as_str().unwrap();
    assert!(summary.contains("word for word:\n!say word"), "{summary}");
    let contexts = owner.provider.contexts();
    let cut: Vec<_> = contexts.iter().filter(|context| context[0] == "summary").collect();
    assert!(!cut.is_empty(), "the turn was cut through: {contexts:?}");
    for context in cut {
        assert_eq!(
            context.get(1).map(String::as_str),
            Some("assistant"),
            "a result follows its call: {context:?}"
        );
        let calls = context.iter().filter(|entry| *entry == "assistant").count();
        let results = context.iter().filter(|entry| entry.starts_with("result:")).count();
        assert_eq!(calls, results, "{context:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn k1_an_input_that_waited_for_long_does_not_keep_what_came_before_its_answer() {
    let ledger = Ledger::new();
    let mut script = String::new();
    for step in 0..8 {
        script.push_str(&format!("!tool echo {{\"step\":{step},\"text\":\"{}\"}}\n!then\n", words(20)));
    }
    ledger.queue(&format!("{script}!say done"));
    let mut owner = ledger.claim("a");
    owner.slow_ms = 100;
    ledger.queue("asked early, answered late");
    assert_eq!(owner.answer_run().await, Ended::Settled(RunStatus::Pending));
    assert_eq!(ledger.claim("b").answer_run().await, DONE);
    ledger.queue("and now?");
    let mut owner = ledger.claim("c");
    owner.context.window = Window { keep: 100, ..SMALL }; // so that the late answer is kept
    assert_eq!(owner.answer_run().await, DONE);
    let summary = ledger.payloads(Kind::Compaction).pop().expect("it was compacted");
    let answers = ledger.events().iter().filter(|event| event.kind == Kind::AssistantMessage).count();
    let kept = owner.provider.contexts().pop().expect("the model was asked");
    assert!(kept.len() < answers, "what came before was summarised: {kept:?}");
    // The late answer stays. The input that it names stands before the first kept event, so the summary carries it, word for
    // word, and it is not shown a second time.
    assert_eq!(kept, ["summary", "assistant", "assistant", "user:and now?"]);
    let words = summary["summary"].as_str().unwrap_or_default();
    assert!(words.ends_with("\nasked early, answered late"), "{words}");
}

#[test]
fn k3_what_is_to_be_summarised_fits_the_window() {
    let window = Window::of(4_000);
    assert_eq!(bounded("short", &window, 0), "short");
    let long = format!("the beginning {} the end", "ä word ".repeat(10_000));
    let mut before = long.len();
    for tries in 0..3 {
        let bounded = bounded(&long, &window, tries);
        assert!(bounded.starts_with("the beginning") && bounded.ends_with("the end"));
        assert!(bounded.len() < before && bounded.len() < 10_000 >> tries, "{} bytes", bounded.len());
        before = bounded.len();
    }
}

#[tokio::test(start_paused = true)]
async fn k3_a_request_that_the_model_finds_too_long_is_made_once_more_of_a_shorter_context() {
    let ledger = Ledger::new();
    for turn in 0..4 {
        ledger.queue(&format!("question {turn} {}", words(60)));
        assert_eq!(ledger.claim(&format!("t{turn}")).answer_run().await, DONE);
    }
    ledger.queue("!overflow 300\n!say it fits now");
    let mut owner = ledger.claim("a");
    owner.context.window = Window { keep: 60, ..Window::default() };
    assert_eq!(owner.answer_run().await, DONE);
    assert_eq!(ledger.payloads(Kind::Compaction).len(), 1);
    assert!(
        ledger.answers().iter().all(|answer| answer["stopReason"] == "end_turn"),
        "nothing of the first try is kept"
    );

    ledger.queue("!overflow 0");
    let mut owner = ledger.claim("b");
    owner.context.window = Window { keep: 60, ..Window::default() };
    assert_eq!(
        owner.answer_run().await,
        Ended::Settled(RunStatus::Pending),
        "the second time is a failure like others"
    );
    assert_eq!(ledger.answers().last().unwrap()["stopReason"], "error");
}

#[tokio::test(start_paused = true)]
async fn k3_a_compaction_that_is_asked_for_is_made_of_any_context_and_stopped_like_anything_else() {
    let ledger = Ledger::new();
    for turn in 0..3 {
        ledger.queue(&format!("question {turn} {}", words(60)));
        assert_eq!(ledger.claim(&format!("t{turn}")).answer_run().await, DONE);
    }
    ledger.ask_compaction();
    let mut owner = ledger.claim("a");
    owner.context.window = Window { keep: 60, ..Window::default() };
    owner.slow_ms = 1_000;
    let ended = owner.answer_run_and(500, || owner.time(Time::Stop)).await;
    assert_eq!((ended, ledger.payloads(Kind::Compaction).len()), (Ended::HandedOver, 0), "S5");
    let mut owner = ledger.claim("b");
    owner.context.window = Window { keep: 60, ..Window::default() };
    assert_eq!(owner.answer_run().await, DONE);
    assert_eq!(ledger.payloads(Kind::Compaction).len(), 1);
    assert_eq!(owner.provider.contexts().len(), 1, "nothing else was asked of the model");
}
