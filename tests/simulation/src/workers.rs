//! The workers and the sweep: every hint becomes an invocation with a fate, and the sweep runs every minute.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use keel_fn_kernel::sweep::Sweeper;
use keel_fn_worker::{Answered, NoMessage};
use keel_ledger::hints::{Hint, Hints as _};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fate::{Fate, Fated};
use crate::history::{History, Write};
use crate::rng::Rng;
use crate::world::{Process, World};

/// Worker processes.
const WORKERS: u64 = 3;

/// Gives each hint to a worker, for ever.
pub(crate) async fn answer_hints(world: Arc<World>, mut hinted: UnboundedReceiver<Hint>) {
    let mut rng = world.rng.fork("dispatch");
    let workers: Vec<Process> = (0..WORKERS).map(|n| world.process("worker", n)).collect();
    let mut invocations = JoinSet::new();
    for number in 0_u64.. {
        let hint = loop {
            tokio::select! {
                biased;
                Some(ended) = invocations.join_next() => if let Err(panic) = ended {
                    world.history.violated("panic", format!("a worker: {panic}"));
                },
                hint = hinted.recv() => match hint {
                    Some(hint) => break hint,
                    None => return,
                },
            }
        };
        let process = rng.one_of(&workers).clone();
        let invocation = rng.fork(&format!("invocation-{number}"));
        let world = world.clone();
        invocations.spawn(async move {
            world.working.fetch_add(1, Ordering::Relaxed);
            invoke(&world, process, hint, number, invocation).await;
            world.working.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn invoke(world: &World, process: Process, hint: Hint, number: u64, mut rng: Rng) {
    let at = hint.session_key();
    let calm = world.is_calm();
    let (stop, drain) = watch::channel(false);
    let lease_ms = process.ledger.lease_ms();
    let (fate, deadline, drains) = if calm { (Fate::Lives, None, None) } else { draw_fate(&mut rng) };
    let thaw = thaw(world.history.clone(), at.to_string(), lease_ms, rng.fork("thaw"));
    if let Fate::Frozen { .. } = fate {
        // A frozen worker does not keep its message invisible, so the queue gives it to another while this one still works.
        let _ = world.queue.send(&hint, lease_ms + rng.pick(0..=4_000)).await;
    }
    let worker = process.worker(drain);
    let work =
        worker.answer_run(&at, deadline.map(|ms| Instant::now() + Duration::from_millis(ms)), &NoMessage);
    let draining = async {
        if let Some(ms) = drains {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            world.history.count("a worker was drained");
            stop.send_replace(true);
        }
        std::future::pending::<()>().await;
    };
    let end = tokio::select! {
        biased;
        end = Fated::new(work, fate, thaw) => end,
        () = draining => unreachable!("it never ends"),
    };
    if end.met {
        let what = match fate {
            Fate::Killed { .. } => "a worker was killed",
            Fate::Frozen { .. } | Fate::Lives => "a worker was frozen and thawed",
        };
        world.history.count(what);
    }
    let name = &process.name;
    let again = match end.output {
        Some(Ok(answered)) => {
            world.history.note(format_args!("{name} invocation {number} about {at}: {answered:?}"));
            if let Answered::Ended(keel_agent::Ended::Lost) = answered {
                world.history.count("an attempt found its lease lost");
            }
            false
        }
        Some(Err(error)) => {
            world.history.mark("an attempt broke off", format_args!("{name} {number} {at}: {error}"));
            true
        }
        None => {
            world.history.note(format_args!("{name} invocation {number} about {at}: killed"));
            true
        }
    };
    if again {
        let _ = world.queue.send(&hint, lease_ms).await; // where it is not queued, the sweep finds the session
    }
}

/// How long a worker is frozen: for a while, past its lease, or until another has just claimed its session. In that last
/// case only the epoch tells a fenced owner from its successor (C2), since nothing else in the head has changed yet.
async fn thaw(history: Arc<History>, at: String, lease_ms: u64, mut rng: Rng) {
    let while_ms = match rng.pick(0..=9) {
        0..2 => rng.pick(500..=2 * lease_ms),
        2..4 => lease_ms + rng.pick(0..=15_000),
        _ => {
            let claims = || {
                let records = history.records();
                let writes = records.writes.get(&at).into_iter().flatten();
                writes.filter(|write| matches!(write, Write::Claimed { .. })).count()
            };
            let (before, gives_up) = (claims(), Instant::now() + Duration::from_millis(3 * lease_ms));
            while claims() == before
                && tokio::time::timeout_at(gives_up, history.written.notified()).await.is_ok()
            {}
            rng.pick(0..=400)
        }
    };
    tokio::time::sleep(Duration::from_millis(while_ms)).await;
}

/// What happens to an invocation: its fate, its deadline and when it is drained, in milliseconds.
fn draw_fate(rng: &mut Rng) -> (Fate, Option<u64>, Option<u64>) {
    let polls = if rng.chance(700) { rng.pick(1..=14) } else { rng.pick(10..=60) };
    match rng.pick(0..=99) {
        0..18 => (Fate::Killed { polls }, None, None),
        18..46 => (Fate::Frozen { polls }, None, None),
        46..56 => (Fate::Lives, Some(rng.pick(2_000..=20_000)), None),
        56..64 => (Fate::Lives, None, Some(rng.pick(0..=8_000))),
        _ => (Fate::Lives, None, None),
    }
}

/// The schedule, for ever.
pub(crate) async fn sweep_on(world: Arc<World>) {
    let process = world.process("sweep", 0);
    let sweeper = Sweeper::new(process.ledger.clone());
    loop {
        // A sweep makes at least sixteen requests, so it runs no more often than in the cloud.
        tokio::time::sleep(Duration::from_secs(60)).await;
        match sweeper.sweep().await {
            Ok(swept) if swept.hinted > 0 => {
                world.history.mark("the sweep sent a hint", format_args!("{swept:?}"));
            }
            Ok(_) => {}
            Err(error) => world.history.mark("a sweep failed", error),
        }
    }
}
