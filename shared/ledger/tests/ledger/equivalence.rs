//! The store in memory and the embedded DynamoDB get the same commands. Every answer must be the same, and so must every
//! row in the end.

mod commands;

use std::collections::BTreeMap;
use std::sync::Arc;

use keel_env::Env as _;
use keel_kernel::StateOwner;
use keel_ledger::dynamo::{Dynamo, Tables};
use keel_ledger::hints::Hint;
use keel_ledger::memory::Memory;
use proptest::collection::vec;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::support::{Rig, TestEnv, create, embedded, rows, session};
use commands::{Command, Driver, Reply, command};

/// How often each sort of answer came, so that it is noticed where the random commands reach nothing.
type Reached = BTreeMap<&'static str, usize>;

#[test]
fn the_memory_twin_answers_as_dynamodb_does() {
    let config = Config { cases: 100, failure_persistence: None, ..Config::default() };
    // There is one seed, so a failure comes again, and what was reached can be asserted.
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let reached = std::cell::RefCell::new(Reached::new());
    let ran = TestRunner::new_with_rng(config, rng).run(&vec(command(), 25..55), |commands| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(compare(commands, &mut reached.borrow_mut()))
    });
    let reached = reached.into_inner();
    println!("{reached:#?}");
    if let Err(failure) = ran {
        panic!("{failure}");
    }
    for label in [
        "created",
        "replayed",
        "claimed",
        "held",
        "too early",
        "nothing pending",
        "not ours",
        "waits",
        "parked",
        "not parked",
        "settled",
        "settled before",
        "moved on",
        "fenced",
        "conflict",
        "closed",
        "external",
        "native",
        "unknown call",
        "call id reused",
        "not unanswered",
        "already finished",
        "made or changed",
        "made before",
        "session exists",
        "revision differs",
        "decided",
        "decided before",
        "decision taken",
        "decision expired",
        "decision differs",
        "not found",
        "children",
        "page",
        "more pages",
        "batch",
    ] {
        assert!(reached.contains_key(label), "no command sequence met {label:?}");
    }
}

async fn compare(commands: Vec<Command>, reached: &mut Reached) -> Result<(), TestCaseError> {
    let (native, external) = (session("native"), session("external"));
    let client = embedded().await.client();
    let dynamo = Arc::new(Dynamo::new(client.clone(), Tables::with_prefix("")));
    let memory = Arc::new(Memory::default());
    for (at, owner) in [(&native, StateOwner::Native), (&external, StateOwner::External)] {
        create(&*dynamo, at, owner).await;
        create(&*memory, at, owner).await;
    }
    let (mut left, mut right) =
        (Rig::over(memory.clone(), TestEnv::new(7)), Rig::over(dynamo, TestEnv::new(7)));
    let mut driver = Driver::default();
    for (step, command) in commands.iter().enumerate() {
        let at = if command.external { &external } else { &native };
        let there = memory.copy(at).expect("it was created");
        let verb = driver.resolve(command, &there, left.env.now());
        let (expected, met) = (driver.run(&left, at, &verb).await, driver.run(&right, at, &verb).await);
        if !alike(&expected, &met) {
            let why = format!("step {step}, {verb:?}\n in memory: {expected:#?}\n in DynamoDB: {met:#?}");
            return Err(TestCaseError::fail(why));
        }
        expected.labels(|label| *reached.entry(label).or_default() += 1);
        driver.learn(&expected);
    }
    for at in [&native, &external] {
        let expected = memory.copy(at).expect("it was created");
        let met = rows(&client, at).await;
        if expected != met {
            return Err(TestCaseError::fail(format!(
                "rows\n in memory: {expected:#?}\n in DynamoDB: {met:#?}"
            )));
        }
        keel_kernel::LedgerState::fold(&met.events)
            .map_err(|refusal| refusal.to_string())
            .and_then(
                |state| if state == met.head.ledger { Ok(()) } else { Err("L5: the head is no fold".into()) },
            )
            .map_err(TestCaseError::fail)?;
    }
    // This is longer than any backoff, so every delayed hint has come.
    tokio::time::sleep(std::time::Duration::from_secs(3_600)).await;
    let (left, right) = (drained(&mut left), drained(&mut right));
    if left == right { Ok(()) } else { Err(TestCaseError::fail(format!("hints: {left:?} {right:?}"))) }
}

/// Whether two answers are the same. A full page may say that more follows although nothing does: the port allows it, since
/// DynamoDB does not look further.
fn alike(memory: &Reply, dynamo: &Reply) -> bool {
    match (memory, dynamo) {
        (Reply::Page(Ok(memory), limit), Reply::Page(Ok(dynamo), _)) => {
            let full = memory.events.len() == *limit;
            memory.events == dynamo.events
                && (memory.has_more == dynamo.has_more || (full && dynamo.has_more))
        }
        _ => memory == dynamo,
    }
}

fn drained(rig: &mut Rig) -> Vec<Hint> {
    std::iter::from_fn(|| rig.hints.try_recv().ok()).collect()
}
