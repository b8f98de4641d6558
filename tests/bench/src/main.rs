//! `make bench`: measures everything, prints the table and writes it to a file.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is a program for a terminal")]

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use keel_bench::table::{Page, goal};
use keel_bench::throughput::{self, Rates};
use keel_bench::world::World;
use keel_bench::{exact, growth, instructions, latency, process, readers, replay, startup, stats};
use keel_embedded::Dispatch;

/// Measures what Keel costs.
#[derive(Debug, Parser)]
#[command(name = "keel-bench")]
struct Options {
    #[command(subcommand)]
    only: Option<Only>,
    /// The file that the table is written to.
    #[arg(long, default_value = "docs/performance.md")]
    out: PathBuf,
    /// The file with the text behind the table.
    #[arg(long, default_value = "tests/bench/notes.md")]
    notes: PathBuf,
    /// The folder with the functions' programs.
    #[arg(long, default_value = "target/release")]
    programs: PathBuf,
    /// Readers of one process.
    #[arg(long, default_value_t = 1_000)]
    readers: usize,
    /// Events of the session that is replayed.
    #[arg(long, default_value_t = 100_000)]
    replayed: usize,
}

/// What runs under callgrind: this many commits after the same start.
#[derive(Clone, Copy, Debug, Subcommand)]
enum Only {
    /// Through the ledger.
    Commits { commits: usize },
    /// As bare calls of the same shape.
    BareCalls { commits: usize },
    /// The exact figures alone.
    Exact,
}

fn main() {
    let options = Options::parse();
    let mut runtime = match options.only {
        Some(_) => tokio::runtime::Builder::new_current_thread(),
        None => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime.enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match options.only {
            Some(only) => count(only).await,
            None => everything(&options).await,
        }
    });
}

async fn count(only: Only) {
    if matches!(only, Only::Exact) {
        let mut page = Page::default();
        page.exact(&exact::lines().await);
        return println!("{}", page.0);
    }
    let w = World::memory().await;
    let (at, token, head) = w.running("s").await;
    match only {
        // Both runs prepare the events of the larger one, so that the difference of the two holds only commits.
        Only::Commits { commits } => {
            let mut events = throughput::answers(instructions::MANY);
            events.truncate(commits);
            throughput::owner(w, at, token, head, events).await;
        }
        Only::BareCalls { commits } => {
            let mut calls = throughput::prepare(&at, &token, head, instructions::MANY);
            calls.truncate(commits);
            throughput::caller(w, calls).await;
        }
        Only::Exact => unreachable!("answered above"),
    }
}

async fn everything(options: &Options) {
    let mut page = Page::default();
    let load = process::load();
    eprintln!("exact figures");
    page.part(
        "Units and round trips",
        "Exact: the units that the store reports for each call, and the calls counted at the SDK's connector. A test compares them.",
    );
    page.exact(&exact::lines().await);
    page.part(
        "Time, memory, instructions",
        "As measured. Where the load says that the machine had other work, times are too long. Ratios are the median of \
         alternating rounds, so that such work slows both sides.",
    );
    page.head(&["measure", "figure", "goal"]);
    commits(&mut page).await;
    latencies(&mut page).await;
    many_readers(&mut page, options).await;
    eprintln!("replay");
    let r = replay::replay(options.replayed).await;
    let rate = format!("{:.0} events/s, {:.1} MB/s", r.events_each_second, r.mb_each_second);
    page.row(&[&format!("replay of {} events over SSE", r.events), &rate, ""]);
    let [tenth, first, second] = r.resident_mb;
    page.row(&[
        "keel-local's memory meanwhile, the most: first tenth, first half, second half",
        &format!("{tenth:.1} MB, {first:.1} MB, {second:.1} MB"),
        &goal(second < first * 1.1, "flat: the halves within 10 %"),
    ]);
    growing(&mut page).await;
    eprintln!("instructions");
    match instructions::each_commit() {
        None => page.row(&["instructions of a commit", "valgrind is not here", ""]),
        Some((ledger, bare)) => {
            let figure = format!("{ledger:.0}, bare call {bare:.0}: {:.0} are ours", ledger - bare);
            page.row(&[
                "instructions of a commit (1 event and its key), SDK and store included",
                &figure,
                "",
            ]);
        }
    }
    eprintln!("programs");
    for program in startup::programs(&options.programs).await {
        let (middle, most) = (program.start_ms.median(), program.start_ms.percentile(1.0));
        let figure = format!("{:.1} MB, {middle:.0} ms (at most {most:.0})", program.mb);
        page.row(&[&format!("{}: size, start to the first `/next`", program.name), &figure, ""]);
    }
    let head = format!(
        "# Performance\n\n`make bench` wrote this on {}. {}; load {load} at the start, {} at the end; commit {}; programs from \
         `{}`.\n",
        process::today(),
        process::machine(),
        process::load(),
        process::commit(),
        options.programs.display(),
    );
    let notes = std::fs::read_to_string(&options.notes).unwrap_or_default();
    let text = format!("{head}{}\n{notes}", page.0);
    println!("{text}");
    std::fs::write(&options.out, text).expect("the table is written");
}

async fn commits(page: &mut Page) {
    eprintln!("commits");
    for (sessions, each, dispatch) in [(1, 200, Dispatch::Inline), (64, 10, Dispatch::Blocking)] {
        let Rates { ledger, bare, ratio } = throughput::rates(sessions, each, dispatch).await;
        let name = format!("commits/s on {sessions} session{}", if sessions == 1 { "" } else { "s" });
        let figure = format!("{ledger:.0}, bare calls {bare:.0}: {ratio:.2} of bare");
        page.row(&[&name, &figure, &goal(ratio >= 0.9, "≥ 0.90 of bare")]);
    }
}

/// p50 and p99.
fn both(sample: &stats::Sample) -> String {
    format!("p50 {:.1} ms, p99 {:.1} ms", sample.median(), sample.percentile(0.99))
}

async fn latencies(page: &mut Page) {
    eprintln!("latencies");
    let l = latency::latencies().await;
    page.row(&["input → accepted", &both(&l.accepted), ""]);
    let partial = match &l.partial {
        Some(partial) => format!("{} ({} of the answers had one)", both(partial), l.with_partial),
        None => "none: the answers were faster".to_owned(),
    };
    page.row(&["input → first partial", &partial, ""]);
    let met = l.answered.median() <= 120.0;
    page.row(&["input → answer's frame", &both(&l.answered), &goal(met, "p50 ≤ 120 ms")]);
    let met = l.commit_to_frame.median() <= 60.0 && l.commit_to_frame.percentile(0.99) <= 150.0;
    page.row(&[
        "answer's commit → its frame",
        &both(&l.commit_to_frame),
        &goal(met, "p50 ≤ 60 ms, p99 ≤ 150 ms"),
    ]);
}

async fn many_readers(page: &mut Page, options: &Options) {
    for sessions in [1, 100] {
        eprintln!("readers of {sessions}");
        let r = readers::readers(options.readers, sessions).await;
        let name = |what: &str| format!("{} readers of {sessions} session(s): {what}", options.readers);
        page.row(&[&name("memory of each"), &format!("{:.1} KB", r.kb_each), ""]);
        let cpu =
            format!("{:.0} % of a core idle, {:.0} µs a frame", r.idle_cpu * 100.0, r.micros_each_frame);
        page.row(&[&name("processor"), &cpu, ""]);
        page.row(&[&name("lag behind the commit"), &both(&r.lag), ""]);
    }
}

async fn growing(page: &mut Page) {
    eprintln!("growth");
    let inputs = growth::inputs().await;
    let first = inputs[0];
    for input in inputs {
        let name = format!("input into a session with {} events", input.events);
        let (write, read) = input.units;
        let figure = format!("{write} WRU, {read} RRU, {:.0} µs", input.micros);
        let flat = input.units == first.units && input.micros <= first.micros * 1.1;
        page.row(&[&name, &figure, &goal(flat, "flat in units, within 10 % in time")]);
    }
}
