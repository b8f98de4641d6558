//! Tools of a Model Context Protocol server, by streamable HTTP. A connection lives as long as the attempt that needs it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use keel_agent::tool::{Policy, ToolOutput, ToolSpec};
use keel_kernel::event::ToolCall;
use keel_ledger::SessionKey;
use rmcp::model::{CallToolRequestParams, ContentBlock};
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{RoleClient, ServiceExt as _};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio::time::timeout;

use crate::{PluginClient, RESPONSE_MAX};

/// How long a server's list of tools is cached.
const LISTED: Duration = Duration::from_secs(300);
/// How long a server may take to connect, and to list its tools.
const SERVER_TIMEOUT: Duration = Duration::from_secs(10);
/// The most tools of a server.
const TOOLS_MAX: usize = 128;

/// A connection to a server.
pub(crate) type Connection = RunningService<RoleClient, ()>;

impl PluginClient {
    /// Opens a connection.
    pub(crate) async fn connect(
        &self,
        at: &SessionKey,
        url: &str,
        secret: Option<&str>,
    ) -> Result<Connection, String> {
        let url = self.egress.admit(url).map_err(|bad| format!("its address {bad}"))?;
        let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
            .max_json_response_size(RESPONSE_MAX)
            .max_sse_event_size(RESPONSE_MAX);
        if let Some(secret) = secret {
            config = config.auth_header(self.secret(at, secret).await?.expose_secret().to_owned());
        }
        let transport = StreamableHttpClientTransport::with_client(self.client.clone(), config);
        match timeout(SERVER_TIMEOUT, ().serve(transport)).await {
            Ok(Ok(connection)) => Ok(connection),
            // The cause is left out: it would name the address, whose query may hold a secret.
            Ok(Err(_)) => Err("its server could not be reached, or speaks another protocol".to_owned()),
            Err(_) => Err("its server did not begin in time".to_owned()),
        }
    }

    /// The tools that a server lists, with the policies that the tenant set.
    pub(crate) async fn list(
        &self,
        at: &SessionKey,
        url: &str,
        secret: Option<&str>,
        policies: &BTreeMap<String, Policy>,
    ) -> Result<Vec<ToolSpec>, String> {
        let name = format!("{} {url} {}", at.tenant, secret.unwrap_or_default());
        let known = self.listed.lock().get(&name).cloned();
        let mut specs = match known {
            Some((since, specs)) if since.elapsed() < LISTED => specs,
            _ => {
                let connection = self.connect(at, url, secret).await?;
                let listed = timeout(SERVER_TIMEOUT, connection.list_all_tools()).await;
                let _ = connection.cancel().await;
                let listed = listed
                    .map_err(|_| "its server did not say in time which tools it has".to_owned())?
                    .map_err(|error| {
                        format!("its server did not say which tools it has: {}", shown_words(&error))
                    })?;
                let specs: Vec<ToolSpec> = listed.into_iter().take(TOOLS_MAX).map(spec).collect();
                let mut all = self.listed.lock();
                all.retain(|_, (since, _)| since.elapsed() < LISTED);
                all.insert(name, (Instant::now(), specs.clone()));
                specs
            }
        };
        for spec in &mut specs {
            if let Some(policy) = policies.get(&spec.name) {
                spec.policy = policy.clone();
            }
        }
        Ok(specs)
    }
}

fn spec(tool: rmcp::model::Tool) -> ToolSpec {
    ToolSpec {
        name: tool.name.into_owned(),
        description: tool.description.map(std::borrow::Cow::into_owned).unwrap_or_default(),
        parameters: Value::Object((*tool.input_schema).clone()),
        policy: Policy::default(),
    }
}

/// Calls a tool over a connection.
pub(crate) async fn call(connection: &Connection, call: &ToolCall) -> ToolOutput {
    let mut params = CallToolRequestParams::new(call.name.clone());
    params.arguments = call.arguments.as_object().cloned();
    match connection.call_tool(params).await {
        Err(error) => ToolOutput::error(format!("the tool could not be called: {}", shown_words(&error))),
        Ok(result) => {
            let mut parts: Vec<String> = result.content.iter().filter_map(text).collect();
            if parts.is_empty() {
                parts.extend(result.structured_content.as_ref().map(Value::to_string));
            }
            let text = parts.join("\n");
            ToolOutput { text, is_error: result.is_error.unwrap_or(false) }
        }
    }
}

/// What may be shown of a failure: the server's own message. Other errors name its address, whose query may hold a secret.
fn shown_words(error: &rmcp::ServiceError) -> String {
    match error {
        rmcp::ServiceError::McpError(error) => error.message.to_string(),
        rmcp::ServiceError::Timeout { .. } => "its server did not answer in time".to_owned(),
        _ => "its server could not be reached, or broke off".to_owned(),
    }
}

/// A content block as text for the model.
fn text(block: &ContentBlock) -> Option<String> {
    match serde_json::to_value(block).ok()? {
        Value::Object(block) => match block.get("type").and_then(Value::as_str) {
            Some("text") => block.get("text").and_then(Value::as_str).map(str::to_owned),
            Some(kind) => Some(format!("[{kind}, not shown]")),
            None => None,
        },
        _ => None,
    }
}
