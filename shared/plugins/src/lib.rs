//! Calls the tools of plugins: by a signed POST, by invoking a Lambda function, or over the Model Context Protocol.
//!
//! A call that fails in any way is an error result that the model sees; nothing here ends an attempt. Arguments are checked
//! against the tool's schema before anything is called. A call may be made again by a successor (I7), so each carries the
//! same id every time.

mod http;
mod lambda;
mod mcp;
mod schema;
mod tools;

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keel_agent::tool::ToolSpec;
use keel_egress::Resolver;
use keel_settings::Secrets;

pub use keel_egress::{BadAddress, EgressPolicy};
pub use schema::check_schema;
pub use tools::PluginTools;

/// The most that is read of a tool's response, in bytes.
pub(crate) const RESPONSE_MAX: usize = 1024 * 1024;
/// How long opening a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Calls plugins' tools. A process has one.
pub struct PluginClient {
    client: reqwest::Client,
    egress: EgressPolicy,
    secrets: Arc<dyn Secrets>,
    lambda: Option<aws_sdk_lambda::Client>,
    /// The tools that MCP servers listed, by tenant, address and secret.
    listed: Mutex<HashMap<String, (Instant, Vec<ToolSpec>)>>,
}

impl PluginClient {
    /// A client that calls only where `egress` allows. Without a Lambda client, calls of `lambda` plugins give an error result.
    ///
    /// # Errors
    /// When the TLS stack cannot be set up.
    pub fn new(
        egress: EgressPolicy,
        secrets: Arc<dyn Secrets>,
        lambda: Option<aws_sdk_lambda::Client>,
    ) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy() // a proxy would resolve names itself, unchecked
            .dns_resolver(Arc::new(Resolver(egress)))
            .build()?;
        Ok(Self { client, egress, secrets, lambda, listed: Mutex::default() })
    }
}
