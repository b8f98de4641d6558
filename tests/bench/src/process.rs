//! What the system says of a process and of the machine.

use std::fs;
use std::process::Command;

/// Ticks per second in `/proc/<pid>/stat`.
const TICKS: f64 = 100.0;

/// Resident memory, in KB.
pub fn resident_kb(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Processor time so far, user and system, in seconds.
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name in brackets").1.split_whitespace().collect();
    // utime and stime are the 14th and 15th fields; the name was the second.
    let ticks = |field: usize| fields[field].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / TICKS
}

/// The machine's processors, in words.
pub fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |line: &str, name: &str| {
        line.split_once(':').filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    let cores = info.lines().filter(|line| field(line, "processor").is_some()).count();
    let model = info.lines().find_map(|line| field(line, "model name")).unwrap_or_else(|| "unnamed".into());
    format!("{cores} cores, {model}")
}

/// The load average of the last minute.
pub fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or("unknown").to_owned()
}

/// The date, in UTC.
pub fn today() -> String {
    time::OffsetDateTime::now_utc().date().to_string()
}

/// The commit that is measured, marked where files differ from it.
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into());
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    if changed { format!("{commit} and uncommitted changes") } else { commit }
}
