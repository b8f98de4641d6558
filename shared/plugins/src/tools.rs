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

use crate::mcp::{self, Connection};
use crate::{PluginClient, schema};

/// A session's tools.
pub struct PluginTools {
    client: Arc<PluginClient>,
    at: SessionKey,
    own: Option<Arc<dyn Tools>>,
    plugins: Vec<Loaded>,
    /// By name: the tool, and whose it is. The first plugin by name has a name that two have.
    tools: BTreeMap<String, PluginTool>,
}

struct Loaded {
    plugin: Plugin,
    connection: OnceCell<Result<Connection, String>>,
}

struct PluginTool {
    spec: ToolSpec,
    plugin: usize,
    /// `None`: the schema of an MCP server does not read, and the server checks for itself.
    validator: Option<Validator>,
}

impl PluginTools {
    /// The tools of these plugins, beside Keel's `own`. Servers are asked what they have; one that does not say brings none,
    /// and a line in the log.
    pub async fn load(
        client: Arc<PluginClient>,
        at: SessionKey,
        own: Option<Arc<dyn Tools>>,
        plugins: Vec<Plugin>,
    ) -> Self {
        let mut tools = BTreeMap::new();
        let all = join_all(plugins.iter().map(|plugin| offered(&client, &at, plugin))).await;
        for (number, specs) in all.into_iter().enumerate() {
            for spec in specs.into_iter().filter(|spec| !RESERVED.contains(&spec.name.as_str())) {
                let validator = schema::compile(&spec.parameters).ok();
                let name = spec.name.clone();
                tools.entry(name).or_insert(PluginTool { spec, plugin: number, validator });
            }
        }
        let plugins =
            plugins.into_iter().map(|plugin| Loaded { plugin, connection: OnceCell::new() }).collect();
        Self { client, at, own, plugins, tools }
    }
}

/// What a plugin has. Of a server's tools those are left out whose names models would refuse, and their whole request with it.
async fn offered(client: &PluginClient, at: &SessionKey, plugin: &Plugin) -> Vec<ToolSpec> {
    let (url, secret, policies) = match &plugin.kind {
        PluginKind::Http { tools, .. } | PluginKind::Lambda { tools, .. } => {
            return tools.iter().map(Offered::spec).collect();
        }
        PluginKind::Mcp { url, secret, policies } => (url, secret.as_deref(), policies),
    };
    let listed = client.list(at, url, secret, policies).await.unwrap_or_else(|why| {
        tracing::warn!(
            tenant = %at.tenant, session = %at.session, plugin = plugin.name, why,
            "a plugin brings no tools"
        );
        Vec::new()
    });
    let all = listed.len();
    let named: Vec<ToolSpec> = listed.into_iter().filter(|spec| is_name(&spec.name)).collect();
    if named.len() < all {
        tracing::warn!(
            tenant = %at.tenant, session = %at.session, plugin = plugin.name, left_out = all - named.len(),
            "a plugin has tools whose names no model takes"
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
        match &plugin.kind {
            PluginKind::Http { url, secret, .. } => self.client.post(&self.at, url, secret, call).await,
            PluginKind::Lambda { function_arn, .. } => self.client.invoke(&self.at, function_arn, call).await,
            PluginKind::Mcp { url, secret, .. } => {
                let connect = || self.client.connect(&self.at, url, secret.as_deref());
                match connection.get_or_init(connect).await {
                    Ok(connection) => mcp::call(connection, call).await,
                    Err(why) => ToolOutput::error(format!("the tool could not be called: {why}")),
                }
            }
        }
    }
}
