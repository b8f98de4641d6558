//! The routes of settings (scope `admin`): models, the tenant's budget, secrets. A secret's value is taken and never shown.

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use keel_kernel::Refusal;
use keel_settings::secrets::SECRET_MAX;
use keel_settings::{Models, SecretsError, TenantBudget, is_name, month};
use keel_web::params::Query;
use keel_web::{Body, Caller, Code, Problem};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::Edge;

/// Secrets that a tenant may have.
const SECRETS_MAX: usize = 100;

/// `GET /v1/settings/models`
pub(crate) async fn models(
    State(edge): State<Edge>,
    caller: Caller,
    query: Query,
) -> Result<Json<Models>, Problem> {
    query.only(&[])?;
    Ok(Json(edge.settings.models(&caller.tenant).await?))
}

/// `PUT /v1/settings/models`
pub(crate) async fn put_models(
    State(edge): State<Edge>,
    caller: Caller,
    body: Body,
) -> Result<Json<Models>, Problem> {
    let models: Models = body.parse()?;
    models.check()?;
    for (name, model) in &models.models {
        if let Some(url) = &model.url {
            let pointer = format!("/models/{name}/url");
            edge.egress.admit(url).map_err(|bad| Problem::member(&pointer, bad.to_string()))?;
        }
    }
    edge.settings.set_models(&caller.tenant, &models).await?;
    Ok(Json(models))
}

/// `GET /v1/settings/budget`: the tenant's budget, and what was counted in this month (H5).
pub(crate) async fn budget(
    State(edge): State<Edge>,
    caller: Caller,
    query: Query,
) -> Result<Json<Value>, Problem> {
    query.only(&[])?;
    let budget = edge.settings.budget(&caller.tenant).await?.unwrap_or_default();
    let month = month(edge.ledger.env().now());
    let spent = edge.tenants.spent(&caller.tenant, &month).await?;
    let spent = json!({ "tokens": spent.tokens, "costUsd": spent.usd() });
    Ok(Json(json!({ "budget": budget, "month": month, "spent": spent })))
}

/// `PUT /v1/settings/budget`: `{maxTokens?, maxCostUsd?}` for a calendar month.
pub(crate) async fn put_budget(
    State(edge): State<Edge>,
    caller: Caller,
    body: Body,
) -> Result<Json<TenantBudget>, Problem> {
    let budget: TenantBudget = body.parse()?;
    budget.check()?;
    edge.settings.set_budget(&caller.tenant, &budget).await?;
    Ok(Json(budget))
}

/// `GET /v1/settings/secrets`: their names.
pub(crate) async fn secrets(
    State(edge): State<Edge>,
    caller: Caller,
    query: Query,
) -> Result<Json<Value>, Problem> {
    query.only(&[])?;
    Ok(Json(json!({ "secrets": edge.settings.secret_names(&caller.tenant).await? })))
}

fn named(name: &str) -> Result<(), Problem> {
    if is_name(name) {
        return Ok(());
    }
    Err(Problem::parameter("name", "must be 1 to 64 letters, digits, hyphens and underscores"))
}

fn failed(error: &SecretsError) -> Problem {
    tracing::error!(error = error as &dyn std::error::Error, "the store of secrets failed");
    Problem::new(Code::Internal, "the secrets failed; sending the call again is safe").retry_after(1)
}

/// `PUT /v1/settings/secrets/{name}`: `{value}`
pub(crate) async fn put_secret(
    State(edge): State<Edge>,
    caller: Caller,
    Path(name): Path<String>,
    body: Body,
) -> Result<StatusCode, Problem> {
    named(&name)?;
    body.only(&["value"])?;
    let value = body.optional("value", &format!("must be a string of 1 to {SECRET_MAX} bytes"), |value| {
        value.as_str().filter(|text| (1..=SECRET_MAX).contains(&text.len())).map(str::to_owned)
    })?;
    let value = value.ok_or_else(|| Problem::member("/value", "is required"))?;
    let names = edge.settings.secret_names(&caller.tenant).await?;
    if names.len() >= SECRETS_MAX && !names.contains(&name) {
        return Err(Refusal::LimitReached { what: "secrets", limit: SECRETS_MAX }.into());
    }
    edge.secrets.put(&caller.tenant, &name, SecretString::from(value)).await.map_err(|e| failed(&e))?;
    edge.settings.name_secret(&caller.tenant, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /v1/settings/secrets/{name}`: also 204 where there is no such secret.
pub(crate) async fn remove_secret(
    State(edge): State<Edge>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    named(&name)?;
    edge.secrets.remove(&caller.tenant, &name).await.map_err(|e| failed(&e))?;
    edge.settings.unname_secret(&caller.tenant, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
