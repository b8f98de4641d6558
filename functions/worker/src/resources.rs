//! What a session's attempt works with: its model, its tools, its tenant's budget.

use std::sync::Arc;

use async_trait::async_trait;
use keel_agent::compact::Window;
use keel_agent::{Provider, Tools};
use keel_kernel::SessionDescription;
use keel_kernel::budget::Budget;
use keel_ledger::SessionKey;

/// What one attempt works with.
#[derive(Clone)]
pub struct AttemptResources {
    /// The model.
    pub provider: Arc<dyn Provider>,
    /// What requests ask it for; `None`: its own choice.
    pub model: Option<String>,
    /// What it may read.
    pub window: Window,
    /// The tools.
    pub tools: Arc<dyn Tools>,
    /// H5: what the tenant may spend in a month; `None`: as much as it likes, and nothing is counted.
    pub budget: Option<Budget>,
}

/// What an attempt needs is missing: the attempt fails for a reason that people may mend.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct MissingResources {
    /// What is missing, fit for the ledger: no secret stands in it.
    pub what: String,
    /// Why.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl MissingResources {
    /// Something that people left out.
    pub fn missing(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }
}

/// Finds what a session's attempt works with.
#[async_trait]
pub trait ResourceSource: Send + Sync {
    /// For an attempt that begins now.
    async fn resources(
        &self,
        at: &SessionKey,
        description: Option<&SessionDescription>,
    ) -> Result<AttemptResources, MissingResources>;
}

/// The same for every session.
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
