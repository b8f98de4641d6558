//! What is counted, as events of the log with a target of their own: who starts the log decides what becomes of them
//! (`keel_web::telemetry` writes them as CloudWatch's embedded metrics).

/// The target of every counting event.
pub const TARGET: &str = "keel::metric";

/// What is counted. The names are CloudWatch's; alarms and dashboards rest on them.
pub mod name {
    /// Inputs that were committed.
    pub const INPUTS: &str = "Inputs";
    /// Attempts that were settled; with the status that the run has then.
    pub const SETTLED: &str = "RunsSettled";
    /// Owners that were told that the run is no longer theirs (C2).
    pub const FENCED: &str = "Fenced";
    /// Runs that were taken over from an owner whose lease had run out.
    pub const TAKEOVERS: &str = "Takeovers";
    /// Sessions that a sweep looked at.
    pub const SWEPT: &str = "SweepLookedAt";
    /// Hints that a sweep sent again.
    pub const SWEEP_HINTED: &str = "SweepHinted";
    /// Looks of a stream that failed.
    pub const STREAM_ERRORS: &str = "StreamErrors";
}

/// Counts.
pub fn count(metric: &'static str, n: u64) {
    tracing::info!(target: TARGET, metric, n);
}

/// Counts, told apart by a status: one of a closed few.
pub fn count_by(metric: &'static str, status: &'static str) {
    tracing::info!(target: TARGET, metric, n = 1_u64, status);
}
