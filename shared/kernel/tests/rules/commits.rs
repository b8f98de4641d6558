//! C, I, L, V and A1, as far as a commit decides them.

use keel_kernel::Guard;
use keel_kernel::commit::decide;
use keel_kernel::{
    Commit, Epoch, KeyName, Kind, LeaseToken, LedgerState, NewEvent, OwnerId, Refusal, Rule, Seq, StateOwner,
    caps,
};
use serde_json::json;

use crate::support::{
    Committed, LEASE_MS, Session, answer, event, external, failed, finished, guide, key, message, queue,
    result,
};

/// One valid event of each kind.
fn one_of(kind: Kind) -> NewEvent {
    match kind {
        Kind::UserMessage => queue("r"),
        Kind::AssistantMessage => answer("g", &[], &[]),
        Kind::ToolResult => result("c"),
        Kind::RunFinished => finished("done"),
        Kind::ExternalEvent => external("x"),
        Kind::Compaction | Kind::RunStarted | Kind::RunFailed => event(kind, &json!({}), None),
    }
}

const OWNER_KINDS: [Kind; 6] = [
    Kind::AssistantMessage,
    Kind::ToolResult,
    Kind::Compaction,
    Kind::RunFinished,
    Kind::RunStarted,
    Kind::RunFailed,
];

/// A session with input 1 and an owner.
fn running() -> (Session, LeaseToken) {
    let mut session = Session::native();
    session.input(queue("r1"));
    let token = session.claim("a");
    (session, token)
}

/// A refused commit leaves no trace.
fn refused(session: &mut Session, token: Option<&LeaseToken>, events: Vec<NewEvent>) -> Refusal {
    let before = session.clone();
    let refusal = session.commit(token, events).expect_err("the commit is refused");
    assert_eq!(session.head, before.head, "nothing is written");
    assert_eq!(session.events, before.events, "nothing is written");
    assert_eq!(session.keys, before.keys, "nothing is written");
    refusal
}

#[test]
fn c1_an_owner_kind_without_a_token_is_refused_and_the_others_take_none() {
    let (mut session, token) = running();
    for kind in OWNER_KINDS {
        assert_eq!(refused(&mut session, None, vec![one_of(kind)]), Refusal::TokenRequired(kind));
    }
    for kind in [Kind::UserMessage, Kind::ExternalEvent] {
        let refusal = refused(&mut session, Some(&token), vec![one_of(kind)]);
        assert_eq!(refusal, Refusal::TokenNotAllowed(kind));
    }
    let mixed = vec![answer("g", &[1], &[]), queue("r2")];
    assert_eq!(refused(&mut session, Some(&token), mixed), Refusal::KindNotAccepted(Kind::UserMessage));
}

#[test]
fn c2_a_stale_epoch_or_a_foreign_name_is_fenced() {
    let (mut session, stale) = running();
    session.pass(LEASE_MS);
    let current = session.claim("b");
    assert_eq!((stale.epoch, current.epoch), (Epoch(1), Epoch(2)), "+1 at every claim");
    let stranger = LeaseToken { owner: OwnerId::parse("c").unwrap(), epoch: current.epoch };
    let behind = LeaseToken { owner: current.owner.clone(), epoch: stale.epoch };
    let ahead = LeaseToken { owner: current.owner.clone(), epoch: Epoch(3) };
    for token in [stale, stranger, behind, ahead] {
        for new in [answer("g", &[1], &[]), finished("done"), event(Kind::Compaction, &json!({}), None)] {
            let refusal = refused(&mut session, Some(&token), vec![new]);
            assert_eq!(refusal, Refusal::Fenced { current_epoch: Epoch(2) });
        }
    }
    session.own(&current, vec![answer("g", &[1], &[])]);
    assert_eq!(session.events[1].epoch, Some(Epoch(2)));
}

#[test]
fn c2_the_epoch_decides_and_not_the_clock() {
    // Its lease ended long ago, but nobody else has claimed, so it is still the owner.
    let (mut session, token) = running();
    session.pass(10 * LEASE_MS);
    session.own(&token, vec![answer("g", &[1], &[])]);
    let until = session.head.lease.as_ref().unwrap().until;
    assert_eq!(until, session.now.plus(LEASE_MS), "a commit keeps the lease");
    // The same owner has a newer epoch: its old token is refused.
    session.pass(LEASE_MS);
    session.claim("a");
    assert!(matches!(
        refused(&mut session, Some(&token), vec![finished("done")]),
        Refusal::Fenced { current_epoch: Epoch(2) }
    ));
}

#[test]
fn c2_an_owner_commit_is_guarded_by_its_lease_and_by_the_last_seq() {
    let (mut session, token) = running();
    let (id, events) = (session.commit_id(), [answer("g", &[1], &[])]);
    let commit = Commit { id: &id, lease: Some(&token), lease_ms: LEASE_MS, events: &events };
    let transition = decide(&session.head, session.now, &commit).unwrap();
    for guard in [Guard::Seq(Seq(1)), Guard::Open, Guard::Lease(token.owner, token.epoch)] {
        assert!(transition.guards.contains(&guard), "{guard:?} is missing");
    }
}

#[test]
fn c4_an_external_session_takes_external_events_alone_and_is_never_claimed() {
    let mut session = Session::new(StateOwner::External);
    assert_eq!(refused(&mut session, None, vec![queue("r")]), Refusal::ExternalSession);
    assert_eq!(session.commit(None, vec![external("x")]).unwrap().seqs(), [1]);
    session.head.run.status = keel_kernel::RunStatus::Pending; // "even if its row says pending"
    assert_eq!(session.try_claim("a"), Err(keel_kernel::run::NotClaimable::NotOurs));
    assert_eq!(session.queue(), Err(Refusal::ExternalSession));
    assert_eq!(session.cancel(), Err(Refusal::ExternalSession));
    let (mut native, _) = running();
    assert_eq!(refused(&mut native, None, vec![external("x")]), Refusal::NativeSession);
}

#[test]
fn c5_input_commits_under_any_owner_and_the_next_one_consumes_it() {
    let (mut session, token) = running();
    session.input(queue("r2"));
    session.release(&token).unwrap();
    session.input(queue("r3"));
    let next = session.claim("b");
    session.input(queue("r4"));
    assert_eq!(session.unanswered(), [1, 2, 3, 4]);
    session.own(&next, vec![answer("g", &[1, 2, 3], &[])]);
    assert_eq!(session.unanswered(), [4]);
}

#[test]
fn c6_a_closed_session_refuses_every_commit() {
    let (mut session, token) = running();
    assert!(session.close());
    assert_eq!(refused(&mut session, None, vec![queue("r2")]), Refusal::SessionClosed);
    for kind in [Kind::AssistantMessage, Kind::Compaction, Kind::RunFinished] {
        assert_eq!(refused(&mut session, Some(&token), vec![one_of(kind)]), Refusal::SessionClosed);
    }
    let mut outside = Session::new(StateOwner::External);
    assert!(outside.close());
    assert_eq!(refused(&mut outside, None, vec![external("x")]), Refusal::SessionClosed);
    assert!(!outside.close(), "closing again changes nothing");
}

#[test]
fn i1_a_key_is_the_kinds_own_or_refused() {
    let (mut session, token) = running();
    for kind in Kind::ALL {
        for name in [KeyName::RequestId, KeyName::GenerationId, KeyName::ToolCallId] {
            if kind.key_name() == Some(name) {
                continue;
            }
            let wrong = NewEvent { key: Some((name, key("k"))), ..one_of(kind) };
            let lease = OWNER_KINDS.contains(&kind).then_some(&token);
            let refusal = refused(&mut session, lease, vec![wrong]);
            assert_eq!(refusal, Refusal::KeyNotAllowed { kind, given: name });
        }
    }
}

#[test]
fn i1_the_key_in_the_payload_is_the_commits_key() {
    let (mut session, token) = running();
    let value = json!({ "text": "hi", "requestId": "other" });
    let input = event(Kind::UserMessage, &value, Some((KeyName::RequestId, key("r2"))));
    assert!(matches!(refused(&mut session, None, vec![input]), Refusal::Invalid { rule: Rule("I1"), .. }));
    let value = json!({ "inputSeqs": [1], "generationId": "other" });
    let said = event(Kind::AssistantMessage, &value, Some((KeyName::GenerationId, key("g"))));
    let refusal = refused(&mut session, Some(&token), vec![said]);
    assert!(matches!(refusal, Refusal::Invalid { rule: Rule("I1"), .. }));
}

#[test]
fn i2_a_keys_name_is_part_of_it() {
    let (mut session, token) = running(); // requestId r1 is taken
    session.own(&token, vec![answer("r1", &[1], &["r1"]), result("r1")]);
    assert_eq!(session.events.len(), 3);
    let twice = vec![queue("r2"), queue("r2")];
    assert!(matches!(refused(&mut session, None, twice), Refusal::Invalid { rule: Rule("I2"), .. }));
}

#[test]
fn i3_i5_a_degraded_guide_still_matches_its_retry() {
    let mut session = Session::native();
    assert_eq!(session.input(guide("r1")), 1);
    let token = session.claim("a");
    // The retry comes at a time when a guide is accepted. It is still the first submission.
    assert_eq!(session.commit(None, vec![guide("r1")]), Ok(Committed::Replayed(vec![Seq(1)])));
    let refusal = refused(&mut session, None, vec![queue("r1")]);
    let conflict =
        Refusal::IdempotencyConflict { name: KeyName::RequestId, key: "r1".to_owned(), seq: Seq(1) };
    assert_eq!(refusal, conflict);
    assert_eq!(session.own(&token, vec![answer("g", &[1], &[])]), [2]);
}

#[test]
fn i4_a_digest_ignores_formatting_and_nothing_else() {
    let sent = |text: &str| {
        let payload = keel_kernel::Payload::parse(text).unwrap();
        let key = Some((KeyName::RequestId, key("r")));
        NewEvent { kind: Kind::UserMessage, payload, key }.sent().unwrap().1
    };
    let first = sent(r#"{"text":"é","n":1,"requestId":"r"}"#);
    assert_eq!(sent("{ \"n\" : 1.0,\n \"text\": \"\\u00e9\" }"), first, "and the key may stand in it or not");
    assert_ne!(sent(r#"{"text":"é","n":2}"#), first);
    assert_ne!(sent(r#"{"text":"e","n":1}"#), first);
}

#[test]
fn i6_what_may_be_a_lost_answer_depends_on_the_head() {
    // Each of these refusals may mean that the same commit was carried out before.
    let (mut session, token) = running();
    let commit = vec![answer("g", &[1], &["c"])];
    session.own(&token, commit.clone());
    assert_eq!(session.commit(Some(&token), commit.clone()), Ok(Committed::Replayed(vec![Seq(2)])));
    session.own(&token, vec![result("c")]);
    assert_eq!(session.commit(Some(&token), vec![result("c")]), Ok(Committed::Replayed(vec![Seq(3)])));
    session.pass(LEASE_MS);
    session.claim("b");
    assert_eq!(session.commit(Some(&token), commit.clone()), Ok(Committed::Replayed(vec![Seq(2)])));
    session.close();
    assert_eq!(session.commit(Some(&token), commit), Ok(Committed::Replayed(vec![Seq(2)])));
}

#[test]
fn l2_l5_seqs_have_no_gap_and_the_fold_is_the_head() {
    let (mut session, token) = running();
    session.own(&token, vec![answer("g1", &[1], &["c1", "c2"])]);
    session.input(queue("r2"));
    session.own(&token, vec![result("c2"), failed("g2", &[])]);
    session.own(&token, vec![result("c1"), answer("g3", &[3], &[]), finished("done")]);
    let seqs: Vec<u64> = session.events.iter().map(|event| event.seq.0).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(LedgerState::fold(&session.events).unwrap(), session.head.ledger);
    let places: Vec<(usize, usize)> =
        session.events[5..].iter().map(|event| (event.commit.index, event.commit.size)).collect();
    assert_eq!(places, [(0, 3), (1, 3), (2, 3)]);
}

#[test]
fn l3_the_reserved_kinds_are_accepted_under_their_fence() {
    let (mut session, token) = running();
    let reserved = [Kind::RunStarted, Kind::RunFailed].map(|kind| event(kind, &json!({ "any": 1 }), None));
    assert_eq!(session.own(&token, reserved.to_vec()), [2, 3]);
    assert_eq!(session.head.finished, Epoch(0), "they do not take run.finished's place");
}

#[test]
fn v2_a_call_id_of_an_earlier_message_is_refused() {
    let (mut session, token) = running();
    session.own(&token, vec![answer("g1", &[1], &["c"])]);
    let again = || vec![answer("g2", &[], &["c"])];
    assert_eq!(refused(&mut session, Some(&token), again()), Refusal::CallIdReused("c".to_owned()));
    session.own(&token, vec![result("c")]);
    // The head forgets a call that has its result; the result's key remembers it.
    assert_eq!(refused(&mut session, Some(&token), again()), Refusal::CallIdReused("c".to_owned()));
    // A failed message made no call, so its ids are free.
    session.own(&token, vec![message("g3", Some(&[]), &["d"], "error")]);
    session.own(&token, vec![answer("g4", &[], &["d"])]);
}

#[test]
fn v2_a_call_id_is_not_reused_within_one_commit_either() {
    let (mut session, token) = running();
    let commit = vec![answer("g1", &[1], &["c"]), result("c"), answer("g2", &[], &["c"])];
    assert_eq!(refused(&mut session, Some(&token), commit), Refusal::CallIdReused("c".to_owned()));
    session.own(&token, vec![answer("g1", &[1], &["c"])]);
    let commit = vec![result("c"), answer("g2", &[], &["c"])];
    assert_eq!(refused(&mut session, Some(&token), commit), Refusal::CallIdReused("c".to_owned()));
}

#[test]
fn v3_a_result_names_an_open_call_of_a_committed_message() {
    let (mut session, token) = running();
    let unknown = Refusal::UnknownToolCall("c".to_owned());
    assert_eq!(refused(&mut session, Some(&token), vec![result("c")]), unknown);
    session.own(&token, vec![message("g1", Some(&[1]), &["c"], "aborted")]);
    assert_eq!(refused(&mut session, Some(&token), vec![result("c")]), unknown, "a failed message's call");
    session.own(&token, vec![answer("g2", &[1], &["c"])]);
    let value = json!({ "toolCallId": "c" });
    let other = event(Kind::ToolResult, &value, Some((KeyName::ToolCallId, key("d"))));
    let refusal = refused(&mut session, Some(&token), vec![other]);
    assert!(matches!(refusal, Refusal::Invalid { rule: Rule("V3"), .. }));
    session.own(&token, vec![result("c")]);
    assert!(session.head.ledger.open_calls.is_empty());
}

#[test]
fn a1_input_seqs_name_unanswered_inputs() {
    let (mut session, token) = running();
    session.input(queue("r2"));
    for wrong in [0_u64, 3, 99] {
        let refusal = session.commit(Some(&token), vec![answer("g", &[1, wrong], &[])]).unwrap_err();
        match wrong {
            0 => assert!(matches!(refusal, Refusal::Invalid { rule: Rule("A1"), .. })),
            _ => assert_eq!(refusal, Refusal::NotUnanswered(Seq(wrong))),
        }
    }
    session.own(&token, vec![answer("g1", &[1], &[])]); // 3
    for named in [1, 3] {
        let refusal = refused(&mut session, Some(&token), vec![answer("g2", &[named], &[])]);
        assert_eq!(refusal, Refusal::NotUnanswered(Seq(named)), "an answered input, and no input at all");
    }
}

#[test]
fn v6_limits_are_refused_at_the_door() {
    let (mut session, token) = running();
    let empty = refused(&mut session, Some(&token), Vec::new());
    assert!(matches!(empty, Refusal::Invalid { rule: Rule("V6"), .. }));
    let many = vec![event(Kind::Compaction, &json!({}), None); caps::EVENTS_PER_COMMIT + 1];
    let refusal = refused(&mut session, Some(&token), many);
    assert!(matches!(refusal, Refusal::LimitReached { limit: caps::EVENTS_PER_COMMIT, .. }));
    let big = json!({ "text": "x".repeat(caps::PAYLOAD_BYTES - 100) });
    let large = vec![event(Kind::Compaction, &big, None); caps::COMMIT_BYTES / caps::PAYLOAD_BYTES + 1];
    assert!(matches!(refused(&mut session, Some(&token), large), Refusal::TooLarge { .. }));
    let ids: Vec<String> = (0..=caps::CALLS_PER_MESSAGE).map(|n| format!("c{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let refusal = refused(&mut session, Some(&token), vec![answer("g", &[1], &ids)]);
    assert!(matches!(refusal, Refusal::LimitReached { limit: caps::CALLS_PER_MESSAGE, .. }));
    session.own(&token, vec![answer("g", &[1], &ids[1..])]);
}

#[test]
fn v6_a_session_has_a_bounded_number_of_unanswered_inputs() {
    let mut session = Session::native();
    for n in 0..caps::UNANSWERED {
        session.input(queue(&format!("r{n}")));
    }
    let refusal = refused(&mut session, None, vec![queue("one-more")]);
    assert!(matches!(refusal, Refusal::LimitReached { limit: caps::UNANSWERED, .. }));
    // What is there already is still recognised (I3), and an answer makes room.
    assert_eq!(session.commit(None, vec![queue("r0")]), Ok(Committed::Replayed(vec![Seq(1)])));
    let token = session.claim("a");
    session.own(&token, vec![answer("g", &[1], &[])]);
    session.input(queue("r-more"));
}
