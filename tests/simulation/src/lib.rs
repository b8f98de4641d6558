//! Keel under seeded faults.
//!
//! The real kernel, ledger, worker, sweep, edge and stream code runs in one thread with virtual time, over the real AWS
//! SDK and the embedded store. One seed decides everything else: the faults of each wire, the queue, every clock and
//! every process, and what clients, people and readers do. When a schedule has run, no more faults happen, everything comes
//! to rest, and the contract's promises are checked against what the store carried out.
//!
//! The same seed gives the same bytes of history, which a test asserts. It depends on these:
//! - one thread, paused time, requests carried out inline ([`keel_embedded::Dispatch::Inline`]);
//! - no `select!` without `biased` in the code that runs: tokio draws the order of an unbiased one from a source of its
//!   own, which only an unstable build can seed;
//! - no `tokio::sync::watch` with receivers in several tasks, for the same reason: it wakes them in a random order;
//! - nothing iterates a `HashMap` on the way to a write.
//!
//! | module | holds |
//! |---|---|
//! | [`world`] | the store, the queue, the processes and their sessions |
//! | [`wire`], [`stale`], [`queue`] | what can happen to a request, an eventual read, a hint |
//! | [`fate`] | how a process is killed or frozen |
//! | [`client`], [`founder`], [`person`], [`reader`], [`workers`] | who acts in a world |
//! | [`history`], [`journal`] | what happened, and how it is recorded |
//! | [`checks`] | what must hold in the end |
//! | [`sabotage`] | mutations, which the checks must notice |

mod checks;
mod client;
mod env;
mod fate;
mod founder;
mod history;
mod journal;
mod person;
mod queue;
mod reader;
mod rng;
mod sabotage;
mod stale;
mod wire;
mod workers;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use keel_kernel::Seq;
use keel_ledger::port::{Consistency, Store as _};
use tokio::task::JoinSet;

pub use history::Violation;
pub use sabotage::Mutation;

use checks::Rested;
use reader::Seen;
use world::World;

/// How long everything may take to come to rest once no more faults happen. A run has at most four attempts, and a lease
/// of an owner with a fast clock takes two minutes to run out.
const REST: Duration = Duration::from_secs(1_200);
/// The pause between two looks whether everything is at rest.
const LOOK: Duration = Duration::from_secs(5);
/// A world that takes longer than this is taken to hang.
const WORLD: Duration = Duration::from_secs(2_400);

/// The outcome of one seed.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The rules that were found broken.
    pub violations: Vec<Violation>,
    /// How often each thing of interest happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// Everything that happened, the same bytes for the same seed.
    pub history: String,
}

/// Runs one seed's world from beginning to rest, and checks it.
pub fn run(seed: u64, mutation: Option<Mutation>) -> Outcome {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime of this thread");
        runtime.block_on(live(seed, mutation))
    }));
    ran.unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().cloned();
        let what = what.or_else(|| panic.downcast_ref::<&str>().map(|what| (*what).to_owned()));
        let violation = Violation { rule: "panic", what: what.unwrap_or_default() };
        Outcome { violations: vec![violation], ..Outcome::default() }
    })
}

async fn live(seed: u64, mutation: Option<Mutation>) -> Outcome {
    let (world, hinted) = World::new(seed, mutation).await;
    let world = Arc::new(world);
    let functions = [
        tokio::spawn(workers::answer_hints(world.clone(), hinted)),
        tokio::spawn(workers::sweep_on(world.clone())),
    ];
    if tokio::time::timeout(WORLD, schedule(&world)).await.is_err() {
        world.history.violated("S4", "the world did not end");
    }
    for function in functions {
        if function.is_finished() {
            world.history.violated("panic", "the workers or the sweep ended");
        }
        function.abort();
    }
    let records = world.history.records();
    Outcome {
        violations: records.violations.clone(),
        counts: records.counts.clone(),
        history: records.lines.clone(),
    }
}

/// Clients, people and readers act under faults. Then no more faults happen, everything comes to rest, and is checked.
async fn schedule(world: &Arc<World>) {
    let mut rng = world.rng.fork("schedule");
    let mut clients = JoinSet::new();
    let mut readers = JoinSet::new();
    let mut people = JoinSet::new();
    for number in 0..rng.pick(1..=2) {
        people.spawn(person::live(world.clone(), number));
    }
    let founded = rng.pick(1..=2);
    for founder in 0..rng.pick(2..=4) {
        clients.spawn(founder::live(world.clone(), founder, founded));
    }
    if rng.chance(250) {
        clients.spawn(client::close(world.clone(), world.sessions[0].clone()));
    }
    for (number, at) in (0_u64..).zip(&world.sessions) {
        for client in 0..rng.pick(1..=3) {
            clients.spawn(client::live(world.clone(), at.clone(), number * 10 + client));
        }
        for reader in 0..rng.pick(1..=2) {
            readers.spawn(reader::read(world.clone(), at.clone(), number * 10 + reader));
        }
    }
    while let Some(ended) = clients.join_next().await {
        if let Err(panic) = ended {
            world.history.violated("panic", format!("a client: {panic}"));
        }
    }
    tokio::time::sleep(Duration::from_millis(rng.pick(0..=60_000))).await;
    world.history.note("everything is healed");
    world.calm.store(true, Ordering::Relaxed);
    let rested = rest(world).await;
    world.history.note("everything is at rest");
    world.rest.store(true, Ordering::Relaxed);
    let mut seen: Vec<Seen> = Vec::new();
    while let Some(ended) = readers.join_next().await {
        match ended {
            Ok(reader) => seen.push(reader),
            Err(panic) => world.history.violated("panic", format!("a reader: {panic}")),
        }
    }
    people.abort_all();
    while people.join_next().await.is_some_and(|ended| ended.is_ok()) {}
    founder::check(world, founded).await;
    checks::nothing_runs_unasked(&world.history, &rested);
    checks::decided_once(&world.history, &rested);
    let tenant = &world.sessions[0].tenant;
    let listed = world.tenants.open_decisions(tenant, None, 1_000).await.map(|(ids, _)| ids);
    checks::nothing_is_asked_for_a_closed_session(&world.history, &rested, &listed.unwrap_or_default());
    for session in &rested {
        checks::session(&world.history, session);
        for reader in seen.iter().filter(|reader| reader.at == session.at) {
            checks::reader(&world.history, session, reader);
        }
    }
}

/// Waits until no run is live and no worker works, and reads every session. One that does not decode is a violation.
async fn rest(world: &World) -> Vec<Rested> {
    let healed = tokio::time::Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        let mut live = world.working.load(Ordering::Relaxed) > 0;
        for at in world.family().await {
            let head = world.clean.head(&at, Consistency::Strong).await;
            live |= head.is_ok_and(|head| head.is_some_and(|h| h.run.status.is_live() || h.tells_parent));
        }
        if !live || healed.elapsed() > REST {
            break;
        }
    }
    let mut rested = Vec::new();
    for at in &world.family().await {
        checks::owners(&world.history, &at.to_string());
        let head = world.clean.head(at, Consistency::Strong).await;
        let page = world.clean.events(at, Seq::ZERO, 10_000, Consistency::Strong).await;
        match (head, page) {
            (Ok(Some(head)), Ok(page)) => {
                let decisions = world.clean.decisions(at).await.unwrap_or_default();
                rested.push(Rested { at: at.to_string(), head, events: page.events, decisions });
            }
            (head, page) => {
                world
                    .history
                    .violated("L5", format!("{at} does not read: {:?}, {:?}", head.err(), page.err()));
            }
        }
    }
    rested
}
