//! The routes of plugins (scope `admin`): which tools a tenant's sessions have, and where they are.

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use keel_kernel::Refusal;
use keel_plugins::check_schema;
use keel_settings::{Plugin, PluginKind};
use keel_web::params::Query;
use keel_web::{Body, Caller, Code, Problem};
use serde_json::{Value, json};

use crate::Edge;

/// Plugins that a tenant may have.
const PLUGINS_MAX: usize = 50;
/// The members that a tool may have.
const TOOL: [&str; 7] =
    ["name", "description", "parameters", "approval", "sequential", "timeoutMs", "approvalMs"];
/// The members that a policy may have.
const POLICY: [&str; 4] = ["approval", "sequential", "timeoutMs", "approvalMs"];

/// Refuses unknown members, so that a misspelt one does not pass as a default.
fn only(value: &Value, known: &[&str], pointer: &str) -> Result<(), Problem> {
    let unknown = value.as_object().and_then(|all| all.keys().find(|name| !known.contains(&name.as_str())));
    unknown.map_or(Ok(()), |name| Err(Problem::member(&format!("{pointer}/{name}"), "is not known here")))
}

fn read(name: &str, body: &Body) -> Result<Plugin, Problem> {
    let known: &[&str] = match body.text("kind")? {
        Some("http") => &["name", "kind", "url", "secret", "tools"],
        Some("lambda") => &["name", "kind", "functionArn", "tools"],
        Some("mcp") => &["name", "kind", "url", "secret", "policies"],
        _ => return Err(Problem::member("/kind", "must be http, lambda or mcp")),
    };
    body.only(known)?;
    if body.text("name")?.is_some_and(|inside| inside != name) {
        return Err(Problem::member("/name", "differs from the path's"));
    }
    for (number, tool) in
        body.object().get("tools").and_then(Value::as_array).into_iter().flatten().enumerate()
    {
        only(tool, &TOOL, &format!("/tools/{number}"))?;
    }
    for (tool, policy) in body.object().get("policies").and_then(Value::as_object).into_iter().flatten() {
        only(policy, &POLICY, &format!("/policies/{tool}"))?;
    }
    let mut plugin: Plugin = body.parse()?;
    name.clone_into(&mut plugin.name);
    Ok(plugin)
}

/// `PUT /v1/plugins/{name}`
pub(crate) async fn put(
    State(edge): State<Edge>,
    caller: Caller,
    Path(name): Path<String>,
    body: Body,
) -> Result<(StatusCode, Json<Plugin>), Problem> {
    let plugin = read(&name, &body)?;
    plugin.check()?;
    if let PluginKind::Http { url, .. } | PluginKind::Mcp { url, .. } = &plugin.kind {
        edge.egress.admit(url).map_err(|bad| Problem::member("/url", bad.to_string()))?;
    }
    for (number, tool) in plugin.tools().iter().enumerate() {
        let pointer = format!("/tools/{number}/parameters");
        check_schema(&tool.parameters).map_err(|detail| Problem::member(&pointer, detail))?;
    }
    let others = edge.settings.plugins(&caller.tenant).await?;
    let is_new = !others.iter().any(|other| other.name == plugin.name);
    if is_new && others.len() >= PLUGINS_MAX {
        return Err(Refusal::LimitReached { what: "plugins", limit: PLUGINS_MAX }.into());
    }
    for (number, tool) in plugin.tools().iter().enumerate() {
        let elsewhere = others.iter().find(|other| {
            other.name != plugin.name && other.tools().iter().any(|their| their.name == tool.name)
        });
        if let Some(other) = elsewhere {
            let detail = format!("is a tool of the plugin {:?}", other.name);
            return Err(Problem::member(&format!("/tools/{number}/name"), detail));
        }
    }
    edge.settings.set_plugin(&caller.tenant, &plugin).await?;
    Ok((if is_new { StatusCode::CREATED } else { StatusCode::OK }, Json(plugin)))
}

/// `GET /v1/plugins`
pub(crate) async fn list(
    State(edge): State<Edge>,
    caller: Caller,
    query: Query,
) -> Result<Json<Value>, Problem> {
    query.only(&[])?;
    Ok(Json(json!({ "plugins": edge.settings.plugins(&caller.tenant).await? })))
}

/// `GET /v1/plugins/{name}`
pub(crate) async fn show(
    State(edge): State<Edge>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Plugin>, Problem> {
    let found = edge.settings.plugin(&caller.tenant, &name).await?;
    found.map(Json).ok_or_else(|| Problem::new(Code::NotFound, "there is no such plugin"))
}

/// `DELETE /v1/plugins/{name}`: also 204 where there is no such plugin.
pub(crate) async fn remove(
    State(edge): State<Edge>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    edge.settings.remove_plugin(&caller.tenant, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
