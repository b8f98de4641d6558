//! The command line.

use std::path::PathBuf;

use clap::Parser;
use secrecy::SecretString;

/// Keel on one machine.
#[derive(Debug, Parser)]
#[command(name = "keel-local", version)]
pub(crate) struct Options {
    /// The port to listen on, on 127.0.0.1; 0 takes a free one.
    #[arg(long, default_value_t = 4870, env = "KEEL_PORT")]
    pub(crate) port: u16,
    /// The folder that keeps the ledger across restarts.
    #[arg(long, default_value = ".keel", env = "KEEL_DATA")]
    pub(crate) data: PathBuf,
    /// Keep the ledger in memory, for as long as the process lives.
    #[arg(long)]
    pub(crate) memory: bool,
    /// Use the DynamoDB at this address, an emulator's, instead of the embedded one.
    #[arg(long, value_name = "URL", conflicts_with_all = ["memory", "data", "dynamodb_port"])]
    pub(crate) dynamodb: Option<String>,
    /// Serve the embedded store as DynamoDB on this port of 127.0.0.1 too, for tools and for a second process.
    #[arg(long)]
    pub(crate) dynamodb_port: Option<u16>,
    /// How long a lease holds, in milliseconds: after a kill, a successor waits at most this long.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) lease_ms: u64,
    /// The time between two sweeps, in milliseconds.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) sweep_ms: u64,
    /// The first retry's backoff, in milliseconds.
    #[arg(long, default_value_t = 2_000)]
    pub(crate) backoff_ms: u64,
    /// How long a stream lives, in milliseconds.
    #[arg(long, default_value_t = 300_000)]
    pub(crate) stream_ms: u64,
    /// How long an invocation of the worker may last, in milliseconds; 0 is without limit. A longer run is handed over, as in
    /// a function.
    #[arg(long, default_value_t = 0)]
    pub(crate) invocation_ms: u64,
    /// Do not run the worker: owners of your own claim runs through the owner API.
    #[arg(long)]
    pub(crate) no_worker: bool,
    /// The model's provider: `fake` (a scripted model), `anthropic`, or `openai` and any server with its API.
    #[arg(long, default_value = "fake", env = "KEEL_PROVIDER")]
    pub(crate) provider: String,
    /// The address of another server with the provider's API: http://127.0.0.1:11434/v1 is Ollama.
    #[arg(long, value_name = "URL", env = "KEEL_PROVIDER_URL")]
    pub(crate) provider_url: Option<String>,
    /// The provider's key. Set it in the environment: others on the machine can see arguments.
    #[arg(long, value_name = "KEY", env = "KEEL_PROVIDER_KEY", hide_env_values = true)]
    pub(crate) provider_key: Option<SecretString>,
    /// The model of sessions that name none.
    #[arg(long, env = "KEEL_MODEL")]
    pub(crate) model: Option<String>,
    /// A further API key and its scopes, `keel_<tenant>.<id>_<secret>=client,owner`. May be repeated.
    #[arg(long = "key", value_name = "KEY=SCOPES")]
    pub(crate) keys: Vec<String>,
    /// What is logged to standard error, as in RUST_LOG.
    #[arg(long, default_value = "warn", env = "KEEL_LOG")]
    pub(crate) log: String,
}
