//! Instructions of one commit, counted by callgrind as the difference of two runs, so that the process's start is left out.
//! They do not depend on the machine's other work.

use std::path::Path;
use std::process::{Command, Stdio};

/// The two runs' commits.
const FEW: usize = 20;
/// The larger of them.
pub const MANY: usize = 120;

/// Instructions of one commit through the ledger and of one bare call; `None` without valgrind.
pub fn each_commit() -> Option<(f64, f64)> {
    let there = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        return None;
    }
    Some((each("commits"), each("bare-calls")))
}

fn each(subcommand: &str) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let [few, many] = [FEW, MANY].map(|commits| count(folder.path(), subcommand, commits));
    (many - few) as f64 / (MANY - FEW) as f64
}

fn count(folder: &Path, subcommand: &str, commits: usize) -> u64 {
    let file = folder.join(commits.to_string());
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", &format!("--callgrind-out-file={}", file.display())])
        .arg(std::env::current_exe().expect("this program has a file"))
        .args([subcommand, &commits.to_string()])
        .output()
        .expect("valgrind starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let profile = std::fs::read_to_string(file).expect("callgrind wrote its profile");
    let total = profile.lines().find_map(|line| line.strip_prefix("totals: ")).expect("it has a sum");
    total.trim().parse().expect("a number")
}
