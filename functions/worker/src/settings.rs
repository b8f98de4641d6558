//! Equipment from what the tenant has set, and from the deployment's own configuration where it has set nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use keel_agent::Provider;
use keel_agent::provider::{Delta, Request};
use keel_kernel::TenantId;
use keel_ledger::SessionKey;
use keel_ledger::sessions::Meta;
use keel_models::Choice;
use keel_plugins::{Caller, PluginTools, Reach};
use keel_settings::{Model, Prices, ProviderKind, Secrets, Settings, TenantBudget};

use crate::equip::{Equip, Equipped, NotEquipped, Plain};

/// How long a connected model is kept: a key that was changed counts from then on.
const KEPT: Duration = Duration::from_secs(60);

/// What a deployment adds to a choice.
pub type Adds = Box<dyn Fn(Choice) -> Choice + Send + Sync>;

/// The clients of the models that were asked last, each with its age.
type Connected = HashMap<String, (Instant, Arc<dyn Provider>)>;

/// Finds models, tools and budgets in the settings.
pub struct FromSettings {
    settings: Settings,
    secrets: Arc<dyn Secrets>,
    caller: Arc<Caller>,
    reach: Reach,
    own: Plain,
    adds: Adds,
    connected: Mutex<Connected>,
}

impl FromSettings {
    /// `own` answers where a tenant has set no model, and brings the tools that every session has; `adds` is what the
    /// deployment adds to a tenant's choice of a model: its own clients.
    pub fn new(
        settings: Settings,
        secrets: Arc<dyn Secrets>,
        caller: Arc<Caller>,
        reach: Reach,
        own: Plain,
        adds: Adds,
    ) -> Self {
        Self { settings, secrets, caller, reach, own, adds, connected: Mutex::default() }
    }

    async fn model(
        &self,
        tenant: &TenantId,
        name: &str,
        model: &Model,
    ) -> Result<Arc<dyn Provider>, NotEquipped> {
        let described = serde_json::to_string(model).unwrap_or_default();
        let key = format!("{tenant} {name} {described}");
        let known = self.connected.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some((since, provider)) = known
            && since.elapsed() < KEPT
        {
            return Ok(provider);
        }
        let provider =
            Arc::new(Priced { inner: self.connect(tenant, name, model).await?, prices: model.prices });
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        connected.retain(|_, (since, _)| since.elapsed() < KEPT);
        connected.insert(key, (Instant::now(), provider.clone()));
        Ok(provider)
    }

    async fn connect(
        &self,
        tenant: &TenantId,
        name: &str,
        model: &Model,
    ) -> Result<Arc<dyn Provider>, NotEquipped> {
        let secret = match &model.secret {
            None => None,
            Some(secret) => match self.secrets.get(tenant, secret).await {
                Ok(Some(value)) => Some(value),
                Ok(None) => {
                    let what = format!("the model {name:?} wants the secret {secret:?}, which is not there");
                    return Err(NotEquipped::missing(what));
                }
                Err(error) => {
                    let what = format!("the secret {secret:?} of the model {name:?} could not be read");
                    return Err(NotEquipped { what, source: Some(Box::new(error)) });
                }
            },
        };
        let provider = match model.provider {
            ProviderKind::Anthropic => "anthropic",
            ProviderKind::Openai => "openai",
            ProviderKind::Bedrock => "bedrock",
            ProviderKind::Fake => "fake",
        };
        let choice = Choice {
            provider: provider.to_owned(),
            url: model.url.clone(),
            model: Some(model.model.clone().unwrap_or_else(|| name.to_owned())),
            key: secret,
            max_tokens: model.max_tokens,
            reach: Some(self.reach),
            ..Choice::default()
        };
        (self.adds)(choice).connect().map_err(|error| {
            let what = format!("the model {name:?} cannot be used: {error}");
            NotEquipped { what, source: Some(Box::new(error)) }
        })
    }
}

#[async_trait]
impl Equip for FromSettings {
    async fn equip(&self, at: &SessionKey, meta: Option<&Meta>) -> Result<Equipped, NotEquipped> {
        let unread = |error| NotEquipped {
            what: "the tenant's settings could not be read".to_owned(),
            source: Some(Box::new(error)),
        };
        let all = self.settings.all(&at.tenant).await.map_err(unread)?;
        let wanted = meta.and_then(|meta| meta.model.as_deref());
        let mut equipped = self.own.equip(at, meta).await?;
        if let Some((name, model)) = all.models.pick(wanted) {
            equipped.provider = self.model(&at.tenant, name, model).await?;
            equipped.model = None; // the entry says which
            equipped.window = model.window();
        }
        let only = meta.and_then(|meta| meta.plugins.as_ref());
        let plugins: Vec<_> = all
            .plugins
            .into_iter()
            .filter(|plugin| only.is_none_or(|only| only.contains(&plugin.name)))
            .collect();
        if !plugins.is_empty() {
            let own = Some(equipped.tools.clone());
            let tools = PluginTools::load(self.caller.clone(), at.clone(), own, plugins).await;
            equipped.tools = Arc::new(tools);
        }
        equipped.budget = all.budget.as_ref().map(TenantBudget::budget);
        Ok(equipped)
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
