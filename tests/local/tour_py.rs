//! `examples/tour.py` prints what `docs/tour.md` shows.

use std::process::Stdio;

use keel_tests::local::Local;
use keel_tests::{KEY, TIMEOUT};
use tokio::process::Command;

#[tokio::test]
async fn h1_h3_h4_the_tour_is_as_the_documentation_shows_it() {
    let local = Local::start(&[]).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/tour.py");
    let tour = Command::new("python3")
        .arg(script)
        .env("KEEL_BASE_URL", &local.base)
        .env("KEEL_API_KEY", KEY)
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(TIMEOUT, tour).await.expect("it ends").unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let documented = include_str!("../../docs/tour.md").split("```text\n").nth(1).unwrap();
    let documented = documented.split("```").next().unwrap();
    assert_eq!(printed, documented);
}
