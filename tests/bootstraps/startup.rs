//! Start-up: every program asks for its first invocation, with no address reachable but its Runtime API.

use keel_tests::runtime::{PROGRAMS, programs, start_times};

/// Starts of each.
const STARTS: usize = 20;

#[tokio::test]
async fn every_program_starts_and_asks_for_work() {
    for name in PROGRAMS {
        let mut taken = start_times(&programs().join(name), STARTS).await;
        taken.sort_unstable();
        println!(
            "{name}: median {:.1} ms, worst {:.1} ms of {STARTS}",
            taken[STARTS / 2].as_secs_f64() * 1e3,
            taken[STARTS - 1].as_secs_f64() * 1e3
        );
    }
}
