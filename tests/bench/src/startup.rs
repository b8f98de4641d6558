//! A function's program: how big it is, and how long it takes to ask for its first invocation.

use std::path::Path;

use keel_tests::runtime::{PROGRAMS, start_times};
use tokio::process::Command;

use crate::stats::Sample;

/// Starts of each.
const STARTS: usize = 20;

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Its size in MB, without symbols.
    pub mb: f64,
    /// Milliseconds from its start to its first call.
    pub start_ms: Sample,
}

/// The programs in a folder; none if they are not built.
pub async fn programs(folder: &Path) -> Vec<Program> {
    let mut programs = Vec::new();
    for name in PROGRAMS {
        let path = folder.join(name);
        if path.exists() {
            let taken = start_times(&path, STARTS).await;
            let start_ms = Sample::new(taken.iter().map(|taken| taken.as_secs_f64() * 1e3).collect());
            programs.push(Program { name, mb: size_mb(&path).await, start_ms });
        }
    }
    programs
}

async fn size_mb(path: &Path) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let stripped = folder.path().join("bootstrap");
    let done = Command::new("strip").arg("-o").arg(&stripped).arg(path).status().await;
    let measured = if done.is_ok_and(|status| status.success()) { &stripped } else { path };
    std::fs::metadata(measured).expect("it is there").len() as f64 / 1e6
}
