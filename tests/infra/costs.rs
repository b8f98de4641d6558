//! The cost table in docs/operations.md uses the measured units.

use crate::template::file;

#[test]
fn the_cost_table_says_what_is_measured() {
    let measured = file("tests/bench/tests/expected.txt");
    let manual = file("docs/operations.md");
    for (row, operation) in [
        ("| inputs, {w} WRU + {r} RRU |", "input that starts a run"),
        ("| claims, {w} WRU + {r} RRU,", "claim"),
        ("| settles with answer and run.finished, {w} WRU |", "settle with answer and run.finished"),
        ("| partials of 10 s, {w} WRU |", "partials of an answer of 10 s, 50 tokens/s"),
        ("with partials, and {r} RRU", "idle poll with partials"),
    ] {
        let line = measured.lines().find(|line| line.ends_with(&format!("| {operation}"))).expect(operation);
        let mut units = line.split(' ');
        let (write, read) = (units.next().unwrap(), units.next().unwrap());
        let row = row.replace("{w}", write).replace("{r}", read);
        assert!(manual.contains(&row), "{row}");
    }
}
