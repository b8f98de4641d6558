//! Plugins: a tenant's tools, how they are called, and how they may be used.

use std::collections::{BTreeMap, BTreeSet};

use keel_agent::tool::policy::{APPROVAL_MAX_MS, TIMEOUT_MAX_MS};
use keel_agent::tool::{Policy, ToolSpec};
use keel_kernel::Fault;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{fault, is_name};

/// Names that no plugin's tool may have: those of Keel's own tools.
pub const RESERVED: [&str; 5] = ["agent", "clock", "echo", "fail", "sleep"];

/// A plugin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plugin {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// How it is called.
    #[serde(flatten)]
    pub kind: PluginKind,
}

/// How a plugin is called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum PluginKind {
    /// A POST, signed as Standard Webhooks.
    Http {
        /// https, or http on this machine.
        url: String,
        /// The name of the secret that calls are signed with.
        secret: String,
        /// Its tools.
        tools: Vec<Offered>,
    },
    /// A Lambda function: invoked, and its result awaited.
    Lambda {
        /// Its ARN.
        function_arn: String,
        /// Its tools.
        tools: Vec<Offered>,
    },
    /// A server of the Model Context Protocol, by streamable HTTP. It lists its tools itself.
    Mcp {
        /// https, or http on this machine.
        url: String,
        /// The name of the secret with its bearer token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret: Option<String>,
        /// The policies of its tools, by their names.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        policies: BTreeMap<String, Policy>,
    },
}

/// A tool of a plugin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offered {
    /// Its name, unique among the tenant's tools.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its arguments, which are an object.
    #[serde(default = "any_object")]
    pub parameters: Value,
    /// How it may be used.
    #[serde(flatten)]
    pub policy: Policy,
}

fn any_object() -> Value {
    serde_json::json!({ "type": "object" })
}

/// The most tools of a plugin.
const TOOLS_MAX: usize = 64;
/// The largest schema of a tool, in bytes.
const SCHEMA_MAX: usize = 16 * 1024;

fn check_policy(policy: &Policy, pointer: &str) -> Result<(), Fault> {
    if !(1..=TIMEOUT_MAX_MS).contains(&policy.timeout_ms) {
        return Err(fault(format!("{pointer}/timeoutMs"), format!("must be from 1 to {TIMEOUT_MAX_MS}")));
    }
    if !(1..=APPROVAL_MAX_MS).contains(&policy.approval_ms) {
        return Err(fault(format!("{pointer}/approvalMs"), format!("must be from 1 to {APPROVAL_MAX_MS}")));
    }
    Ok(())
}

impl Plugin {
    /// The tools that its setting names. An MCP server lists its own.
    pub fn tools(&self) -> &[Offered] {
        match &self.kind {
            PluginKind::Http { tools, .. } | PluginKind::Lambda { tools, .. } => tools,
            PluginKind::Mcp { .. } => &[],
        }
    }

    /// Checks what a client sent, except addresses and schemas, which `keel-plugins` checks.
    pub fn check(&self) -> Result<(), Fault> {
        if !is_name(&self.name) {
            return Err(fault("/name", "must be 1 to 64 letters, digits, hyphens and underscores"));
        }
        let secret = match &self.kind {
            PluginKind::Http { secret, .. } => Some(secret),
            PluginKind::Lambda { function_arn, .. } if !function_arn.starts_with("arn:") => {
                return Err(fault("/functionArn", "must be a function's ARN"));
            }
            PluginKind::Lambda { .. } => None,
            PluginKind::Mcp { secret, policies, .. } => {
                for (tool, policy) in policies {
                    check_policy(policy, &format!("/policies/{tool}"))?;
                }
                secret.as_ref()
            }
        };
        if secret.is_some_and(|secret| !is_name(secret)) {
            return Err(fault("/secret", "must be a secret's name"));
        }
        if self.tools().len() > TOOLS_MAX {
            return Err(fault("/tools", format!("holds more than {TOOLS_MAX} tools")));
        }
        let mut names = BTreeSet::new();
        for (index, tool) in self.tools().iter().enumerate() {
            let pointer = format!("/tools/{index}");
            if !is_name(&tool.name) {
                return Err(fault(
                    format!("{pointer}/name"),
                    "must be 1 to 64 letters, digits, hyphens and underscores",
                ));
            }
            if RESERVED.contains(&tool.name.as_str()) {
                return Err(fault(format!("{pointer}/name"), "is a tool of Keel's own"));
            }
            if !names.insert(&tool.name) {
                return Err(fault(format!("{pointer}/name"), "stands twice"));
            }
            if !tool.parameters.is_object() || tool.parameters.to_string().len() > SCHEMA_MAX {
                return Err(fault(
                    format!("{pointer}/parameters"),
                    format!("must be an object of at most {SCHEMA_MAX} bytes"),
                ));
            }
            check_policy(&tool.policy, &pointer)?;
        }
        Ok(())
    }
}

impl Offered {
    /// The tool as a model may call it.
    pub fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: self.parameters.clone(),
            policy: self.policy.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plugin(value: Value) -> Plugin {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn v6_what_is_wrong_with_a_plugin_is_said_with_its_place() {
        let tool = |tool: Value| json!({ "name": "p", "kind": "http", "url": "https://x", "secret": "s", "tools": [tool] });
        for (value, pointer) in [
            (json!({ "name": "p q", "kind": "mcp", "url": "https://x" }), "/name"),
            (json!({ "name": "p", "kind": "lambda", "functionArn": "f", "tools": [] }), "/functionArn"),
            (json!({ "name": "p", "kind": "mcp", "url": "https://x", "secret": "a b" }), "/secret"),
            (
                json!({ "name": "p", "kind": "mcp", "url": "https://x", "policies": { "t": { "timeoutMs": 0 } } }),
                "/policies/t/timeoutMs",
            ),
            (tool(json!({ "name": "echo" })), "/tools/0/name"),
            (tool(json!({ "name": "a.b" })), "/tools/0/name"),
            (tool(json!({ "name": "a", "parameters": [] })), "/tools/0/parameters"),
            (tool(json!({ "name": "a", "timeoutMs": 600_001 })), "/tools/0/timeoutMs"),
            (tool(json!({ "name": "a", "approvalMs": 0 })), "/tools/0/approvalMs"),
        ] {
            assert_eq!(plugin(value.clone()).check().unwrap_err().pointer, pointer, "{value}");
        }
        let good = tool(json!({ "name": "pay", "approval": "always", "sequential": true, "timeoutMs": 5 }));
        let good = plugin(good);
        assert_eq!(good.check(), Ok(()));
        assert_eq!(serde_json::from_value::<Plugin>(serde_json::to_value(&good).unwrap()).unwrap(), good);
        assert!(good.tools()[0].spec().policy.asks(&json!({})));
    }
}
