//! The port to an attempt's resources: its model, its tools, its tenant's budget.

use std::sync::Arc;

use async_trait::async_trait;
use keel_agent::compact::Window;
use keel_agent::{Provider, Tools};
use keel_kernel::SessionDescription;
use keel_kernel::budget::Budget;
use keel_ledger::SessionKey;

/// The resources of one attempt.
#[derive(Clone)]
pub struct AttemptResources {
    /// The model.
    pub provider: Arc<dyn Provider>,
    /// The model's name in requests; `None`: the provider's own choice.
    pub model: Option<String>,
    /// How long a context may be.
    pub window: Window,
    /// The tools.
    pub tools: Arc<dyn Tools>,
    /// H5: the tenant's budget for a month; `None`: it has none, and nothing is counted.
    pub budget: Option<Budget>,
}

/// Something that an attempt needs is missing, so the attempt fails. People can correct it.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct MissingResources {
    /// What is missing, as a text for the ledger. It holds no secret.
    pub what: String,
    /// Why.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl MissingResources {
    /// Something that nobody has set, so there is no other cause.
    pub fn missing(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }
}

/// Finds the resources of a session's attempts.
#[async_trait]
pub trait ResourceSource: Send + Sync {
    /// The resources of an attempt that begins now.
    async fn resources(
        &self,
        at: &SessionKey,
        description: Option<&SessionDescription>,
    ) -> Result<AttemptResources, MissingResources>;
}

/// The same resources for every session.
#[derive(Clone)]
pub struct FixedResources {
    /// The model.
    pub provider: Arc<dyn Provider>,
    /// The tools.
    pub tools: Arc<dyn Tools>,
}

#[async_trait]
impl ResourceSource for FixedResources {
    async fn resources(
        &self,
        _at: &SessionKey,
        description: Option<&SessionDescription>,
    ) -> Result<AttemptResources, MissingResources> {
        Ok(AttemptResources {
            provider: self.provider.clone(),
            model: description.and_then(|description| description.model.clone()),
            window: Window::default(),
            tools: self.tools.clone(),
            budget: None,
        })
    }
}
