//! The exact figures must not rise, since each is a cost. When one falls, `expected.txt` is updated.

use keel_bench::exact;

/// `WRU RRU round-trips | operation`, as of the last commit that changed one.
const EXPECTED: &str = include_str!("expected.txt");

#[tokio::test]
async fn no_operation_costs_more_units_or_round_trips_than_it_did() {
    let lines = exact::lines().await;
    let measured: String = lines.iter().map(|line| format!("{} | {}\n", line.measured, line.name)).collect();
    println!("{measured}");
    assert_eq!(measured.lines().count(), EXPECTED.lines().count(), "each operation has its line");
    for (line, expected) in lines.iter().zip(EXPECTED.lines()) {
        let (figures, name) = expected.split_once(" | ").unwrap();
        let figures: Vec<f64> = figures.split(' ').map(|figure| figure.parse().unwrap()).collect();
        let measured = [line.measured.write, line.measured.read, line.measured.trips];
        assert_eq!(name, line.name);
        for (measured, expected) in measured.iter().zip(&figures) {
            assert!(measured <= expected, "{name}: {} is more than {expected:?}", line.measured);
        }
    }
}
