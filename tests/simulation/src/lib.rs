//! Keel under seeded faults.
//!
//! The real kernel, ledger, worker, sweep, edge and stream code runs in one thread with virtual time, over the real AWS
//! SDK and the embedded store. One seed decides everything else: what each wire, the queue, every clock and every
//! process suffers, and what clients and readers do. When a schedule has run, everything is healed and runs to rest, and
//! the contract's promises are checked against what the store carried out.
//!
//! The same seed gives the same bytes of history, which a test asserts. What that rests on:
//! - one thread, paused time, requests carried out inline ([`keel_embedded::Dispatch::Inline`]);
//! - no `select!` without `biased` in the code that runs: tokio draws the order of an unbiased one from a source of its
//!   own, which only an unstable build can seed;
//! - no `tokio::sync::watch` with receivers in several tasks, for the same reason: it wakes them in a drawn order;
//! - nothing iterates a `HashMap` on the way to a write.
//!
//! | to know | read |
//! |---|---|
//! | what can happen on the wire | [`wire`], [`stale`] |
//! | how a process is killed or frozen | [`fate`] |
//! | what is promised | [`checks`] |
//! | how the checks are kept honest | [`sabotage`] |

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

/// How long everything may take to come to rest once it is healed. Attempts are at most four to a run, and a lease
/// abandoned by a fast clock takes two minutes to run out.
const REST: Duration = Duration::from_secs(1_200);
/// Between two looks for rest.
const LOOK: Duration = Duration::from_secs(5);
/// A world that takes longer than this hangs.
const WORLD: Duration = Duration::from_secs(2_400);

/// What a seed came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What did not hold.
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

/// Clients and readers under faults; then calm, rest, and the checks.
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

/// Waits until no run is live and no worker works, and reads what there is. A session that does not read is told of.
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
