//! The tools of one attempt: Keel's own, and those of the session's plugins.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use jsonschema::Validator;
use keel_agent::Tools;
use keel_agent::tool::{ToolOutput, ToolSpec};
use keel_kernel::event::ToolCall;
use keel_ledger::SessionKey;
use keel_settings::{Offered, Plugin, PluginKind, RESERVED, is_name};
use tokio::sync::OnceCell;
use tracing::{Instrument as _, Span};

use crate::mcp::{self, Connection};
use crate::{PluginClient, schema};

/// A session's tools.
pub struct PluginTools {
    client: Arc<PluginClient>,
    at: SessionKey,
    /// Names the tenant and the session in every log line of these tools.
    span: Span,
    own: Option<Arc<dyn Tools>>,
    plugins: Vec<Loaded>,
    /// By name: the tool, and its plugin. Where two plugins have a tool of one name, it is that of the first plugin by name.
    tools: BTreeMap<String, PluginTool>,
}

struct Loaded {
    plugin: Plugin,
    connection: OnceCell<Result<Connection, String>>,
}

struct PluginTool {
    spec: ToolSpec,
    plugin: usize,
    /// `None`: an MCP server's schema is not valid; the server checks the arguments itself.
    validator: Option<Validator>,
}

impl PluginTools {
    /// The tools of these plugins, beside Keel's `own`. MCP servers are asked for their tools; one that does not answer gives
    /// none, and a line in the log.
    pub async fn load(
        client: Arc<PluginClient>,
        at: SessionKey,
        own: Option<Arc<dyn Tools>>,
        plugins: Vec<Plugin>,
    ) -> Self {
        // At the level of errors, so that no filter leaves it out where it lets a warning through.
        let span = tracing::error_span!("plugins", tenant = %at.tenant, session = %at.session);
        let mut tools = BTreeMap::new();
        let offers = join_all(plugins.iter().map(|plugin| offered(&client, &at, plugin)));
        let all = offers.instrument(span.clone()).await;
        for (number, specs) in all.into_iter().enumerate() {
            for spec in specs.into_iter().filter(|spec| !RESERVED.contains(&spec.name.as_str())) {
                let validator = schema::compile(&spec.parameters).ok();
                let name = spec.name.clone();
                tools.entry(name).or_insert(PluginTool { spec, plugin: number, validator });
            }
        }
        let plugins =
            plugins.into_iter().map(|plugin| Loaded { plugin, connection: OnceCell::new() }).collect();
        Self { client, at, span, own, plugins, tools }
    }
}

/// A plugin's tools. Those whose names models refuse are left out: a model would refuse the whole request.
async fn offered(client: &PluginClient, at: &SessionKey, plugin: &Plugin) -> Vec<ToolSpec> {
    let (url, secret, policies) = match &plugin.kind {
        PluginKind::Http { tools, .. } | PluginKind::Lambda { tools, .. } => {
            return tools.iter().map(Offered::spec).collect();
        }
        PluginKind::Mcp { url, secret, policies } => (url, secret.as_deref(), policies),
    };
    let listed = client.list(at, url, secret, policies).await.unwrap_or_else(|why| {
        tracing::warn!(
            plugin = plugin.name,
            why,
            "a plugin's tools could not be listed; the attempt goes on without them"
        );
        Vec::new()
    });
    let all = listed.len();
    let named: Vec<ToolSpec> = listed.into_iter().filter(|spec| is_name(&spec.name)).collect();
    if named.len() < all {
        let left_out = all - named.len();
        tracing::warn!(
            plugin = plugin.name,
            left_out,
            "tools were left out, because models refuse their names"
        );
    }
    named
}

#[async_trait]
impl Tools for PluginTools {
    fn specs(&self) -> Vec<ToolSpec> {
        let mut specs = self.own.as_ref().map(|own| own.specs()).unwrap_or_default();
        specs.extend(self.tools.values().map(|tool| tool.spec.clone()));
        specs
    }

    async fn call(&self, call: &ToolCall) -> ToolOutput {
        let Some(tool) = self.tools.get(&call.name) else {
            return match &self.own {
                Some(own) => own.call(call).await,
                None => ToolOutput::error(format!("there is no tool {:?}", call.name)),
            };
        };
        if let Some(fault) = tool.validator.as_ref().and_then(|v| schema::faults(v, &call.arguments)) {
            return ToolOutput::error(fault);
        }
        let Loaded { plugin, connection } = &self.plugins[tool.plugin];
        let called = async {
            match &plugin.kind {
                PluginKind::Http { url, secret, .. } => self.client.post(&self.at, url, secret, call).await,
                PluginKind::Lambda { function_arn, .. } => {
                    self.client.invoke(&self.at, function_arn, call).await
                }
                PluginKind::Mcp { url, secret, .. } => {
                    let connect = || self.client.connect(&self.at, url, secret.as_deref());
                    match connection.get_or_init(connect).await {
                        Ok(connection) => mcp::call(connection, call).await,
                        Err(why) => ToolOutput::error(format!("the tool could not be called: {why}")),
                    }
                }
            }
        };
        called.instrument(self.span.clone()).await
    }
}
