//! How long a commit takes: a measurement, without a limit.

use std::time::Instant;

use keel_embedded::{Dispatch, Embedded, tables};

use crate::support::{item, n, put, put_new, s, step_head};

const COMMITS: u64 = 300;

#[tokio::test]
#[ignore = "a measurement: run it with --run-ignored and look at what it prints"]
async fn a_commits_latency() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| Embedded::open(folder.path().join(name)).unwrap();
    let stores = [
        ("memory, inline", Embedded::memory().unwrap()),
        ("memory, blocking", Embedded::memory().unwrap().with_dispatch(Dispatch::Blocking)),
        ("file, inline", file("a").with_dispatch(Dispatch::Inline)),
        ("file, blocking", file("b")),
    ];
    for (name, store) in stores {
        let client = store.client();
        tables::create_missing(&client, "").await.unwrap();
        put(&client, "state", item([("pk", s("t#1")), ("sk", s("head")), ("seq", n(0))])).await;
        let mut taken: Vec<_> = Vec::new();
        for seq in 0..COMMITS {
            let event =
                item([("pk", s("t#1")), ("sk", s(format!("e#{seq:016}"))), ("payload", s("x".repeat(600)))]);
            let dedupe = item([("pk", s("t#1")), ("sk", s(format!("k#inputId#{seq}"))), ("seq", n(seq))]);
            let commit = client
                .transact_write_items()
                .transact_items(step_head("t#1", seq))
                .transact_items(put_new("events", event))
                .transact_items(put_new("events", dedupe));
            let started = Instant::now();
            commit.send().await.unwrap();
            taken.push(started.elapsed());
        }
        taken.sort();
        let at = |share: usize| taken[taken.len() * share / 100];
        println!("{name}: median {:?}, p99 {:?}", at(50), at(99));
    }
}
