//! Commits per second, beside bare calls of the same shape: what the rules, the plan and the reading of answers cost on
//! top of the SDK and the store. Both take turns in one run, so that a busy machine slows both.

use std::time::Instant;

use aws_sdk_dynamodb::types::{ReturnConsumedCapacity, TransactWriteItem};
use futures_util::future::join_all;
use keel_embedded::{Dispatch, Embedded};
use keel_env::{Env as _, SystemEnv};
use keel_kernel::{Commit, CommitId, Head, LeaseToken, NewEvent};
use keel_ledger::SessionKey;
use keel_ledger::dynamo::{Tables, transaction};
use keel_ledger::plan::plan;

use crate::stats::Sample;
use crate::world::{PREFIX, World, assistant_message};

/// How many rounds each of the two has.
const ROUNDS: usize = 9;

/// Commits per second.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Through the ledger.
    pub ledger: f64,
    /// As bare calls.
    pub bare: f64,
    /// The median of the rounds' ratios of the first to the second.
    pub ratio: f64,
}

/// Commits of one event with its key, by owners that know their heads, on this many sessions at once.
pub async fn rates(sessions: usize, commits: usize, dispatch: Dispatch) -> Rates {
    let embedded = Embedded::memory().expect("a store in memory opens").with_dispatch(dispatch);
    let w = World::over(&embedded).await;
    let (mut ledger, mut bare, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        // The order alternates, so that neither always has the smaller store.
        let (l, b) = if round % 2 == 0 {
            let l = through_ledger(&w, round, sessions, commits).await;
            (l, as_bare_calls(&w, round, sessions, commits).await)
        } else {
            let b = as_bare_calls(&w, round, sessions, commits).await;
            (through_ledger(&w, round, sessions, commits).await, b)
        };
        if round > 0 {
            ledger.push(l);
            bare.push(b);
            ratios.push(l / b);
        }
    }
    let middle = |values| Sample::new(values).median();
    Rates { ledger: middle(ledger), bare: middle(bare), ratio: middle(ratios) }
}

async fn through_ledger(w: &World, round: usize, sessions: usize, commits: usize) -> f64 {
    let mut running = Vec::new();
    for n in 0..sessions {
        let (at, token, head) = w.running(&format!("l{round}-{n}")).await;
        running.push((at, token, head, answers(commits)));
    }
    let started = Instant::now();
    let tasks = running
        .into_iter()
        .map(|(at, token, head, events)| tokio::spawn(owner(w.clone(), at, token, head, events)));
    for ended in join_all(tasks).await {
        ended.expect("an owner commits to its end");
    }
    (sessions * commits) as f64 / started.elapsed().as_secs_f64()
}

/// The events to commit. Made before the clock starts, like the bare calls.
pub fn answers(commits: usize) -> Vec<NewEvent> {
    (0..commits).map(|n| assistant_message(&format!("g{n}"), &[])).collect()
}

/// Commits one after the other.
pub async fn owner(w: World, at: SessionKey, token: LeaseToken, mut head: Head, events: Vec<NewEvent>) {
    for event in events {
        head = w.commit(&at, head, &token, vec![event]).await;
    }
}

async fn as_bare_calls(w: &World, round: usize, sessions: usize, commits: usize) -> f64 {
    let mut prepared = Vec::new();
    for n in 0..sessions {
        let (at, token, head) = w.running(&format!("b{round}-{n}")).await;
        prepared.push(prepare(&at, &token, head, commits));
    }
    let started = Instant::now();
    let tasks = prepared.into_iter().map(|calls| tokio::spawn(caller(w.clone(), calls)));
    for ended in join_all(tasks).await {
        ended.expect("a caller calls to its end");
    }
    (sessions * commits) as f64 / started.elapsed().as_secs_f64()
}

/// Sends calls one after the other.
pub async fn caller(w: World, calls: Vec<(String, Vec<TransactWriteItem>)>) {
    for (token, actions) in calls {
        let call =
            w.client.transact_write_items().set_transact_items(Some(actions)).client_request_token(token);
        call.return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .expect("a bare call succeeds");
    }
}

/// The transactions that the ledger would send for such commits. Made before the clock starts.
pub fn prepare(
    at: &SessionKey,
    token: &LeaseToken,
    mut head: Head,
    commits: usize,
) -> Vec<(String, Vec<TransactWriteItem>)> {
    let (tables, mut calls) = (Tables::with_prefix(PREFIX), Vec::with_capacity(commits));
    for n in 0..commits {
        let id = CommitId::parse(SystemEnv.unique()).expect("hex digits");
        let events = [assistant_message(&format!("g{n}"), &[])];
        let commit = Commit { id: &id, lease: Some(token), lease_ms: 3_600_000, events: &events };
        let transition = keel_kernel::commit::decide(&head, SystemEnv.now(), &commit).expect("it is allowed");
        let plan = plan(at, Some(&head), &transition);
        calls.push((format!("{id}-0"), transaction(&tables, plan).expect("it is whole")));
        head = transition.head;
    }
    calls
}
