//! Attempt resources from the tenant's settings, and from the deployment's configuration where the tenant has set nothing.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use keel_agent::Provider;
use keel_agent::provider::{Delta, Request};
use keel_kernel::{SessionDescription, TenantId};
use keel_ledger::SessionKey;
use keel_models::ProviderConfig;
use keel_plugins::{EgressPolicy, PluginClient, PluginTools};
use keel_settings::{Model, Prices, ProviderKind, Secrets, Settings, TenantBudget};

use crate::resources::{AttemptResources, FixedResources, MissingResources, ResourceSource};

/// How long a client of a model is kept. A changed key is used after that time at the latest.
const KEPT: Duration = Duration::from_secs(60);

/// Adds to a provider configuration what the deployment has for every model.
pub type ConfigureModel = Box<dyn Fn(ProviderConfig) -> ProviderConfig + Send + Sync>;

/// The clients of models, each with the moment when it was made.
type Connected = HashMap<String, (Instant, Arc<dyn Provider>)>;

/// Finds models, tools and budgets in the tenants' settings.
pub struct TenantResources {
    settings: Settings,
    secrets: Arc<dyn Secrets>,
    caller: Arc<PluginClient>,
    egress: EgressPolicy,
    own: FixedResources,
    configure: ConfigureModel,
    connected: Mutex<Connected>,
}

impl TenantResources {
    /// `own` has the model of tenants that have set none, and the tools that every session has. `configure` adds what the
    /// deployment has for every model: its AWS clients.
    pub fn new(
        settings: Settings,
        secrets: Arc<dyn Secrets>,
        caller: Arc<PluginClient>,
        egress: EgressPolicy,
        own: FixedResources,
        configure: ConfigureModel,
    ) -> Self {
        Self { settings, secrets, caller, egress, own, configure, connected: Mutex::default() }
    }

    async fn model(
        &self,
        tenant: &TenantId,
        name: &str,
        model: &Model,
    ) -> Result<Arc<dyn Provider>, MissingResources> {
        let described = serde_json::to_string(model).unwrap_or_default();
        let key = format!("{tenant} {name} {described}");
        let known = self.connected.lock().get(&key).cloned();
        if let Some((since, provider)) = known
            && since.elapsed() < KEPT
        {
            return Ok(provider);
        }
        let provider =
            Arc::new(Priced { inner: self.connect(tenant, name, model).await?, prices: model.prices });
        let mut connected = self.connected.lock();
        connected.retain(|_, (since, _)| since.elapsed() < KEPT);
        connected.insert(key, (Instant::now(), provider.clone()));
        Ok(provider)
    }

    async fn connect(
        &self,
        tenant: &TenantId,
        name: &str,
        model: &Model,
    ) -> Result<Arc<dyn Provider>, MissingResources> {
        let secret = match &model.secret {
            None => None,
            Some(secret) => match self.secrets.get(tenant, secret).await {
                Ok(Some(value)) => Some(value),
                Ok(None) => {
                    let what = format!("the model {name:?} wants the secret {secret:?}, which is not there");
                    return Err(MissingResources::missing(what));
                }
                Err(error) => {
                    let what = format!("the secret {secret:?} of the model {name:?} could not be read");
                    return Err(MissingResources { what, source: Some(Box::new(error)) });
                }
            },
        };
        let provider = match model.provider {
            ProviderKind::Anthropic => "anthropic",
            ProviderKind::Openai => "openai",
            ProviderKind::Bedrock => "bedrock",
            ProviderKind::Fake => "fake",
        };
        let choice = ProviderConfig {
            provider: provider.to_owned(),
            url: model.url.clone(),
            model: Some(model.model.clone().unwrap_or_else(|| name.to_owned())),
            key: secret,
            max_tokens: model.max_tokens,
            egress: Some(self.egress),
            ..ProviderConfig::default()
        };
        (self.configure)(choice).connect().map_err(|error| {
            let what = format!("the model {name:?} cannot be used: {error}");
            MissingResources { what, source: Some(Box::new(error)) }
        })
    }
}

#[async_trait]
impl ResourceSource for TenantResources {
    async fn resources(
        &self,
        at: &SessionKey,
        description: Option<&SessionDescription>,
    ) -> Result<AttemptResources, MissingResources> {
        let unread = |error| MissingResources {
            what: "the tenant's settings could not be read".to_owned(),
            source: Some(Box::new(error)),
        };
        let all = self.settings.all(&at.tenant).await.map_err(unread)?;
        let wanted = description.and_then(|description| description.model.as_deref());
        let mut resources = self.own.resources(at, description).await?;
        if let Some((name, model)) = all.models.pick(wanted) {
            resources.provider = self.model(&at.tenant, name, model).await?;
            resources.model = None; // the settings' entry names the model
            resources.window = model.window();
        }
        let only = description.and_then(|description| description.plugins.as_ref());
        let plugins: Vec<_> = all
            .plugins
            .into_iter()
            .filter(|plugin| only.is_none_or(|only| only.contains(&plugin.name)))
            .collect();
        if !plugins.is_empty() {
            let own = Some(resources.tools.clone());
            let tools = PluginTools::load(self.caller.clone(), at.clone(), own, plugins).await;
            resources.tools = Arc::new(tools);
        }
        resources.budget = all.budget.as_ref().map(TenantBudget::budget);
        Ok(resources)
    }
}

/// A model whose answers say what they cost.
struct Priced {
    inner: Arc<dyn Provider>,
    prices: Option<Prices>,
}

impl Provider for Priced {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn model(&self, wanted: Option<&str>) -> String {
        self.inner.model(wanted)
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Delta> {
        let prices = self.prices;
        let priced = move |delta| match (delta, prices) {
            (Delta::Done(mut answer), Some(prices)) => {
                answer.usage.cost_usd = Some(prices.cost(&answer.usage));
                Delta::Done(answer)
            }
            (delta, _) => delta,
        };
        self.inner.stream(request).map(priced).boxed()
    }
}
