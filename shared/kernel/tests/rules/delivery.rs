//! D and A: when an input enters the context, and when it is answered.

use keel_kernel::Guard;
use keel_kernel::commit::decide;
use keel_kernel::transcript::{Entry, LeftOut};
use keel_kernel::{Commit, Delivery, Kind, LeaseToken, NewEvent, RunStatus, Seq};
use serde_json::json;

use crate::support::{LEASE_MS, Session, answer, event, failed, finished, guide, message, queue, result};

fn running() -> (Session, LeaseToken) {
    let mut session = Session::native();
    session.input(queue("r1"));
    let token = session.claim("a");
    (session, token)
}

/// The inputs that a request prepared now presents.
fn presented(session: &Session) -> Vec<u64> {
    let history = session.history();
    history.transcript(session.head.run.watermark).presented.iter().map(|seq| seq.0).collect()
}

/// The context's entries as short names: `u1` an input, `a2` an answer, `t3` a result, `s4` a summary, `-c` an orphan.
fn context(session: &Session) -> String {
    let history = session.history();
    let transcript = history.transcript(session.head.run.watermark);
    let names: Vec<String> = transcript
        .entries
        .iter()
        .map(|entry| match entry {
            Entry::Summary(event) => format!("s{}", event.seq),
            Entry::User(event) => format!("u{}", event.seq),
            Entry::Assistant(event) => format!("a{}", event.seq),
            Entry::ToolResult(event) => format!("t{}", event.seq),
            Entry::Orphan(call) => format!("-{}", call.id),
        })
        .collect();
    names.join(" ")
}

fn delivery(session: &Session, seq: u64) -> Option<&str> {
    let event = session.events.iter().find(|event| event.seq == Seq(seq))?;
    event.payload.get("delivery").and_then(|delivery| delivery.as_str())
}

/// An assistant message from before inputSeqs.
fn legacy(generation: &str) -> NewEvent {
    message(generation, None, &[], "end_turn")
}

#[test]
fn d1_absent_delivery_is_a_queue() {
    let (mut session, _) = running();
    let new = event(Kind::UserMessage, &json!({ "text": "hi" }), queue("r2").key);
    session.input(new);
    assert_eq!(presented(&session), [1], "an input without delivery waits like a queued one");
    assert_eq!(Delivery::default(), Delivery::Queue);
}

#[test]
fn d2_queued_input_waits_for_the_next_run() {
    let (mut session, token) = running();
    session.input(queue("r2"));
    assert_eq!(presented(&session), [1]);
    let history = session.history();
    assert_eq!(history.transcript(session.head.run.watermark).left_out, [(Seq(2), LeftOut::Waiting)]);
    session.own(&token, vec![answer("g1", &[1], &["c"]), result("c")]);
    assert_eq!(presented(&session), [0_u64; 0], "not even at this run's later requests");
    session.own(&token, vec![answer("g2", &[], &[])]);
    assert_eq!(session.settle(&token, keel_kernel::run::Outcome::Succeeded), RunStatus::Pending);
    session.claim("b");
    assert_eq!(presented(&session), [2]);
}

#[test]
fn d2_a_takeover_of_the_same_run_does_not_let_queued_input_in() {
    let (mut session, _) = running();
    session.input(queue("r2"));
    session.pass(LEASE_MS);
    session.claim("b");
    assert_eq!(presented(&session), [1]);
}

#[test]
fn d3_guides_enter_one_per_request_oldest_first_behind_the_tool_results() {
    let (mut session, token) = running();
    session.own(&token, vec![answer("g1", &[1], &["c1", "c2"])]); // 2
    session.input(guide("r2")); // 3
    session.own(&token, vec![result("c2")]); // 4
    session.input(queue("r3")); // 5
    session.input(guide("r4")); // 6
    session.own(&token, vec![result("c1")]); // 7
    assert_eq!(presented(&session), [3], "one at a time, and the queued one not at all");
    assert_eq!(context(&session), "u1 a2 t7 t4 u3", "siblings in the order of the calls, the guide behind");
    session.own(&token, vec![answer("g2", &[3], &[])]); // 8
    assert_eq!(presented(&session), [6]);
    assert_eq!(context(&session), "u1 a2 t7 t4 u3 a8 u6");
    session.own(&token, vec![answer("g3", &[6], &[])]);
    assert_eq!(presented(&session), [0_u64; 0]);
    let history = session.history();
    assert!(!history.guide_waits(session.head.run.watermark, &[]));
}

#[test]
fn d3_a_guide_waits_until_a_request_has_presented_it() {
    let (mut session, _) = running();
    let watermark = session.head.run.watermark;
    assert!(!session.history().guide_waits(watermark, &[]), "the run's own input is no waiting guide");
    session.input(queue("r2"));
    assert!(!session.history().guide_waits(watermark, &[]));
    session.input(guide("r3"));
    assert!(session.history().guide_waits(watermark, &[]));
    assert!(session.history().guide_waits(watermark, &[Seq(1)]));
    assert!(!session.history().guide_waits(watermark, &[Seq(1), Seq(3)]));
    session.input(guide("r4"));
    assert!(session.history().guide_waits(watermark, &[Seq(1), Seq(3)]));
}

#[test]
fn d3_a_guide_left_over_is_the_next_runs_input() {
    let (mut session, token) = running();
    session.input(guide("r2"));
    session.input(guide("r3"));
    session.own(&token, vec![answer("g1", &[1], &[])]);
    assert_eq!(session.settle(&token, keel_kernel::run::Outcome::Succeeded), RunStatus::Pending);
    session.claim("b");
    assert_eq!(presented(&session), [2, 3], "what a run is given enters together");
}

#[test]
fn d4_without_an_active_attempt_a_guide_becomes_a_queue() {
    let mut session = Session::native();
    session.input(guide("idle"));
    assert_eq!(session.head.run.status, RunStatus::Pending);
    session.input(guide("pending"));
    let token = session.claim("a");
    session.input(guide("running"));
    session.own(&token, vec![answer("g1", &[1, 2], &[]), answer("g2", &[3], &[])]);
    session.settle(&token, keel_kernel::run::Outcome::Succeeded);
    let done = session.input(guide("done"));
    session.cancel().unwrap();
    let after = session.input(guide("failed"));
    for seq in [1, 2, done, after] {
        assert_eq!(delivery(&session, seq), Some("queue"), "event {seq}");
    }
    assert_eq!(delivery(&session, 3), Some("guide"));
}

#[test]
fn d4_the_check_is_part_of_the_write() {
    for new in [guide("r2"), queue("r2")] {
        let (mut session, _) = running();
        let id = session.commit_id();
        let commit = Commit { id: &id, lease: None, lease_ms: 0, events: &[new] };
        let transition = decide(&session.head, session.now, &commit).unwrap();
        assert!(transition.guards.contains(&Guard::Run(session.head.run.clone())), "{:?}", transition.guards);
    }
}

#[test]
fn d5_a_request_presents_what_its_snapshot_held() {
    let (mut session, token) = running();
    let snapshot = session.history();
    let watermark = session.head.run.watermark;
    session.input(guide("r2")); // 2: while the model speaks
    assert_eq!(snapshot.transcript(watermark).presented, [Seq(1)]);
    session.own(&token, vec![answer("g1", &[1], &[])]); // the snapshot's inputs, not the ledger's of now
    assert_eq!(session.unanswered(), [2]);
    assert_eq!(context(&session), "u1 a3 u2", "the context shows what the model saw, in that order");
}

#[test]
fn a2_only_a_completed_answer_that_names_an_input_answers_it() {
    let (mut session, token) = running();
    session.input(guide("r2"));
    session.own(&token, vec![failed("g1", &[1]), message("g2", Some(&[1, 2]), &[], "aborted")]);
    assert_eq!(session.unanswered(), [1, 2]);
    session.own(&token, vec![answer("g3", &[2], &[])]);
    assert_eq!(session.unanswered(), [1], "the one that is named, not those before it");
    session.own(&token, vec![message("g4", Some(&[1]), &[], "max_tokens")]);
    assert_eq!(session.unanswered(), [0_u64; 0]);
}

#[test]
fn a3_a_failed_message_owes_a_turn_and_never_enters_the_context() {
    let (mut session, token) = running();
    session.own(&token, vec![answer("g1", &[1], &["c"]), result("c")]);
    session.own(&token, vec![answer("g2", &[], &[])]);
    assert!(!session.head.is_owed());
    session.own(&token, vec![message("g3", Some(&[]), &["d"], "error")]); // 5
    assert!(session.head.is_owed(), "even where every call has its result");
    let history = session.history();
    let transcript = history.transcript(session.head.run.watermark);
    assert!(transcript.owed_turn);
    assert!(transcript.open_calls.is_empty(), "a failed message's calls are not run");
    assert!(transcript.left_out.contains(&(Seq(5), LeftOut::Failed)));
    assert_eq!(context(&session), "u1 a2 t3 a4");
    session.own(&token, vec![answer("g4", &[], &[])]);
    assert!(!session.head.is_owed());
}

#[test]
fn a3_a_turn_is_owed_behind_the_results_of_a_turn() {
    let (mut session, token) = running();
    session.own(&token, vec![answer("g1", &[1], &["c"])]);
    session.own(&token, vec![result("c")]);
    assert!(session.unanswered().is_empty() && session.head.is_owed());
}

#[test]
fn a4_the_watermark_decides_until_input_seqs_do() {
    let (mut session, token) = running(); // watermark 1
    session.input(queue("r2"));
    session.own(&token, vec![legacy("g1")]); // 3
    assert_eq!(session.unanswered(), [2], "read up to the watermark, and not up to the message");
    assert_eq!(context(&session), "u1 a3");
    session.own(&token, vec![finished("done")]); // 4
    session.settle(&token, keel_kernel::run::Outcome::Succeeded);
    let token = session.claim("b"); // watermark 4
    session.input(guide("r3")); // 5
    session.own(&token, vec![answer("g2", &[2], &[])]); // 6: from it on, inputSeqs decides
    session.settle(&token, keel_kernel::run::Outcome::Succeeded); // 7
    let token = session.claim("c"); // watermark 7
    session.own(&token, vec![legacy("g3")]); // 8
    assert_eq!(session.unanswered(), [5], "it names none, so it answers none");
    assert_eq!(context(&session), "u1 a3 u2 a6 a8 u5");
}

#[test]
fn a4_a_failed_legacy_message_answers_nothing() {
    let (mut session, token) = running();
    session.own(&token, vec![message("g1", None, &[], "error")]);
    assert_eq!(session.unanswered(), [1]);
}

#[test]
fn a5_pending_input_and_watermark_survive_a_takeover() {
    let (mut session, _) = running();
    session.input(queue("r2"));
    let (unanswered, watermark) = (session.unanswered(), session.head.run.watermark);
    for owner in ["b", "c"] {
        session.pass(LEASE_MS);
        let token = session.claim(owner);
        session.own(&token, vec![event(Kind::Compaction, &json!({ "summary": "s" }), None)]);
        assert_eq!((session.unanswered(), session.head.run.watermark), (unanswered.clone(), watermark));
    }
    assert_eq!(watermark, Some(Seq(1)));
}

#[test]
fn l5_k1_a_compaction_stands_for_what_was_before_and_keeps_the_last_answer_and_what_is_presented() {
    let (mut session, token) = running();
    session.own(&token, vec![answer("g1", &[1], &["c"]), result("c"), answer("g2", &[], &[])]); // 2, 3, 4
    session.input(guide("r2")); // 5
    let summary = json!({ "summary": "s", "firstKeptSeq": 6 });
    session.own(&token, vec![event(Kind::Compaction, &summary, None)]); // 6
    assert_eq!(context(&session), "s6 a4 u5", "an input that no answer has named is never summarised away");
}

#[test]
fn l5_a_call_that_was_talked_past_is_an_orphan_and_not_open() {
    let (mut session, token) = running();
    session.own(&token, vec![answer("g1", &[1], &["c"]), answer("g2", &[], &["d"])]);
    let history = session.history();
    let transcript = history.transcript(session.head.run.watermark);
    let open: Vec<&str> = transcript.open_calls.iter().map(|open| open.call.id.as_str()).collect();
    assert_eq!(open, ["d"]);
    assert_eq!(context(&session), "u1 a2 -c a3");
    assert!(session.head.ledger.open_calls.len() == 2, "its result may still come");
}
