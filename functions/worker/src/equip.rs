//! What a session's attempt works with: its model, its tools, its tenant's budget.

use std::sync::Arc;

use async_trait::async_trait;
use keel_agent::compact::Window;
use keel_agent::{Provider, Tools};
use keel_kernel::budget::Budget;
use keel_ledger::SessionKey;
use keel_ledger::sessions::Meta;

/// An attempt's equipment.
#[derive(Clone)]
pub struct Equipped {
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

/// The equipment could not be had: the attempt fails for a reason that people may mend.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct NotEquipped {
    /// What is missing, fit for the ledger: no secret stands in it.
    pub what: String,
    /// Why.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl NotEquipped {
    /// Something that people left out.
    pub fn missing(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }
}

/// Finds the equipment of a session.
#[async_trait]
pub trait Equip: Send + Sync {
    /// For an attempt that begins now.
    async fn equip(&self, at: &SessionKey, meta: Option<&Meta>) -> Result<Equipped, NotEquipped>;
}

/// The same for every session.
#[derive(Clone)]
pub struct Plain {
    /// The model.
    pub provider: Arc<dyn Provider>,
    /// The tools.
    pub tools: Arc<dyn Tools>,
}

#[async_trait]
impl Equip for Plain {
    async fn equip(&self, _at: &SessionKey, meta: Option<&Meta>) -> Result<Equipped, NotEquipped> {
        Ok(Equipped {
            provider: self.provider.clone(),
            model: meta.and_then(|meta| meta.model.clone()),
            window: Window::default(),
            tools: self.tools.clone(),
            budget: None,
        })
    }
}
