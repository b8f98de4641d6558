//! Calls the tools of plugins: by a signed POST, by invoking a Lambda function, or over the Model Context Protocol.
//!
//! A call that fails in any way is an error result that the model sees; nothing here ends an attempt. Arguments are checked
//! against the tool's schema before anything is called. A call may be made again by a successor (I7), so each carries the
//! same id every time.
//!
//! ```
//! use std::sync::Arc;
//!
//! use keel_agent::Tools as _;
//! use keel_kernel::event::ToolCall;
//! use keel_kernel::{DedupeKey, SessionId, TenantId};
//! use keel_ledger::SessionKey;
//! use keel_plugins::{EgressPolicy, PluginClient, PluginTools};
//! use keel_settings::Plugin;
//! use keel_settings::secrets::NoSecrets;
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plugin: Plugin = serde_json::from_value(json!({
//!     "name": "shop", "kind": "http", "url": "https://shop.example/tools", "secret": "shop",
//!     "tools": [{ "name": "refund", "parameters": {
//!         "type": "object", "required": ["amount"], "properties": { "amount": { "type": "number" } },
//!     } }],
//! }))?;
//! let at = SessionKey { tenant: TenantId::parse("acme")?, session: SessionId::parse("s1")? };
//! let client = Arc::new(PluginClient::new(EgressPolicy::default(), Arc::new(NoSecrets), None)?);
//! let tools = PluginTools::load(client, at, None, vec![plugin]).await;
//!
//! // The schema wants an amount: the shop is not called, and the model is told why.
//! let call = ToolCall { id: DedupeKey::parse("call_0")?, name: "refund".into(), arguments: json!({}) };
//! let output = tools.call(&call).await;
//! assert!(output.is_error && output.text.contains("amount"), "{}", output.text);
//! # Ok(())
//! # }
//! ```
//!
//! | to know | read |
//! |---|---|
//! | which tools an attempt has, and how a call finds its plugin | [`PluginTools`] |
//! | how far calls may go | [`EgressPolicy`] |
//! | what is read as a tool's schema | [`check_schema`] |
//! | what a process holds for all its calls | [`PluginClient`] |

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
