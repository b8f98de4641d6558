//! An input costs the same into a long session as into a short one, in units and in time.

use std::time::Instant;

use crate::stats::Sample;
use crate::world::World;

/// The lengths that are compared.
pub const LENGTHS: [usize; 3] = [10, 1_000, 100_000];
/// Inputs into each: under the number that a session may leave unanswered.
const INPUTS: usize = 200;

/// An input into a session of some length.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    /// The session's events before.
    pub events: usize,
    /// Write and read units of one input.
    pub units: (f64, f64),
    /// Its time, in microseconds: the median.
    pub micros: f64,
}

/// One line for each length. The sessions take turns in one store, so that a busy machine slows each of them.
pub async fn inputs() -> Vec<Input> {
    let w = World::memory().await;
    let mut sessions = Vec::new();
    for events in LENGTHS {
        let (at, token, head) = w.running(&format!("s{events}")).await;
        w.fill(&at, head, &token, events - 1).await;
        sessions.push((at, events, Vec::new(), (0.0, 0.0)));
    }
    for n in 0..INPUTS {
        for (at, _, micros, units) in &mut sessions {
            w.tables.meter().take();
            let started = Instant::now();
            w.input(at, &format!("r{n}")).await;
            micros.push(started.elapsed().as_secs_f64() * 1e6);
            let measured = w.tables.meter().take();
            assert!(
                n == 0 || *units == (measured.write, measured.read),
                "an input costs what the one before did"
            );
            *units = (measured.write, measured.read);
        }
    }
    let line = |(_, events, micros, units)| Input { events, units, micros: Sample::new(micros).median() };
    sessions.into_iter().map(line).collect()
}
