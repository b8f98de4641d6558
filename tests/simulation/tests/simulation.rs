//! Seeds, and the proof that the checks would notice.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use keel_simulation::{Mutation, Outcome, run};

/// Seeds that `make test` runs, and within which a mutation must be caught.
const SEEDS: u64 = 300;

#[expect(clippy::disallowed_methods, reason = "a test's two knobs; no function reads them")]
fn knob(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// What 300 seeds must have reached, or the schedules have become too tame to show anything.
const REACHED: [&str; 43] = [
    "a child was begun",
    "a client asked for a run",
    "a closed session refused an input",
    "a session was closed",
    "a session was made",
    "a client cancelled",
    "a client gave up",
    "a client tried again",
    "a decision was answered",
    "a decision was not taken",
    "a hint came late",
    "a hint came twice",
    "a hint was lost",
    "a key was contradicted",
    "a lease was taken over",
    "a partial was read",
    "a read was stale",
    "a reader connected",
    "a reader went away",
    "a request came late",
    "a request was lost",
    "a request was slow",
    "a request was throttled",
    "a run was handed over",
    "a run was parked",
    "a running attempt was asked to stop",
    "a stream said drain",
    "a stream was drained",
    "a sweep failed",
    "a token was answered again",
    "a token was in progress",
    "a transaction met another",
    "a worker was drained",
    "a worker was frozen and thawed",
    "a worker was killed",
    "an answer was lost",
    "an attempt broke off",
    "an attempt found its lease lost",
    "an edge was killed",
    "an input was sent again",
    "an internal error after",
    "an internal error before",
    "one reason was told",
];

/// Runs seeds side by side, each in a thread and a runtime of its own, until `look` says stop.
fn run_all(seeds: u64, mutation: Option<Mutation>, look: impl Fn(u64, Outcome) -> bool + Sync) {
    let (next, last) = (AtomicU64::new(0), AtomicU64::new(seeds));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= last.load(Ordering::Relaxed) {
                        return;
                    }
                    if look(seed, run(seed, mutation)) {
                        last.fetch_min(seed, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

fn told(seed: u64, outcome: &Outcome) -> String {
    let lines: Vec<&str> = outcome.history.lines().collect();
    let violations: Vec<String> =
        outcome.violations.iter().map(|broken| format!("  {}: {}", broken.rule, broken.what)).collect();
    let from = lines.len().saturating_sub(if knob("SEED").is_some() { lines.len() } else { 60 });
    format!(
        "the end of its history:\n{}\nseed {seed} broke a promise:\n{}\nreplay: make sim SEED={seed}",
        lines[from..].join("\n"),
        violations.join("\n"),
    )
}

#[test]
fn one_seed_gives_the_same_bytes_twice() {
    for seed in [1, 2, 3, 1_000_003] {
        let (first, second) = (run(seed, None).history, run(seed, None).history);
        let differs = first.lines().zip(second.lines()).find(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}");
        assert!(first == second && first.lines().count() > 20, "seed {seed}");
    }
}

#[test]
fn the_promises_hold_under_faults() {
    if let Some(seed) = knob("SEED") {
        let outcome = run(seed, None);
        println!("{}", outcome.history);
        println!("{:#?}", outcome.counts);
        assert!(outcome.violations.is_empty(), "{}", told(seed, &outcome));
        return;
    }
    let seeds = knob("SEEDS").unwrap_or(SEEDS);
    let counts: Mutex<BTreeMap<&'static str, u64>> = Mutex::default();
    let failed: Mutex<BTreeMap<u64, Outcome>> = Mutex::default();
    run_all(seeds, None, |seed, outcome| {
        for (what, count) in &outcome.counts {
            *counts.lock().expect("no thread panicked").entry(what).or_default() += count;
        }
        let broken = !outcome.violations.is_empty();
        if broken {
            failed.lock().expect("no thread panicked").insert(seed, outcome);
        }
        broken
    });
    let (counts, failed) =
        (counts.into_inner().expect("no thread panicked"), failed.into_inner().expect("no thread panicked"));
    for (what, count) in &counts {
        println!("{count:>8} × {what}");
    }
    if seeds >= SEEDS && failed.is_empty() {
        let missed: Vec<_> = REACHED.iter().filter(|what| !counts.contains_key(**what)).collect();
        assert!(missed.is_empty(), "no schedule reached {missed:?}");
    }
    if let Some((seed, outcome)) = failed.first_key_value() {
        panic!("{}", told(*seed, outcome));
    }
}

/// Tells which seed catches the mutation, or panics.
fn is_caught(mutation: Mutation, rules: &[&str]) -> String {
    let caught: Mutex<BTreeMap<u64, Outcome>> = Mutex::default();
    run_all(SEEDS, Some(mutation), |seed, outcome| {
        let broken = outcome.violations.iter().any(|broken| rules.contains(&broken.rule));
        if broken {
            caught.lock().expect("no thread panicked").insert(seed, outcome);
        }
        broken
    });
    let caught = caught.into_inner().expect("no thread panicked");
    let (seed, outcome) = caught.first_key_value().expect("the checks notice within these seeds");
    format!("{mutation:?} is caught by seed {seed}: {:?}", outcome.violations[0])
}

#[test]
fn mutation_without_the_epoch_condition_is_caught() {
    println!("{}", is_caught(Mutation::NoEpochCondition, &["C2", "S3"]));
}

#[test]
fn mutation_without_the_key_put_is_caught() {
    println!("{}", is_caught(Mutation::NoKeyPut, &["I2", "I3"]));
}

#[test]
fn mutation_of_a_creation_without_its_condition_is_caught() {
    println!("{}", is_caught(Mutation::NoAbsenceInCreate, &["I8"]));
}

#[test]
fn mutation_of_an_answer_without_its_condition_is_caught() {
    println!("{}", is_caught(Mutation::NoOpenInAnswer, &["H2", "H3", "S4"]));
}

#[test]
fn mutation_of_a_close_that_withdraws_nothing_is_caught() {
    println!("{}", is_caught(Mutation::NoWithdrawalInClose, &["H4"]));
}

#[test]
fn mutation_of_a_childs_end_that_is_not_kept_is_caught() {
    println!("{}", is_caught(Mutation::NoEndForParent, &["S4", "H4"]));
}

#[test]
fn mutation_of_a_settle_without_the_seq_condition_is_caught() {
    println!("{}", is_caught(Mutation::NoSeqInSettle, &["S4"]));
}
