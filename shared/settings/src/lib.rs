//! What a tenant sets for its sessions: which models there are and what they cost, which plugins bring tools, what may be
//! spent in a month, and secrets, which are written and never read back by a client.
//!
//! Rows of JSON that no rule of the ledger depends on. Each is checked when it is written, with the place of what is
//! wrong, and read leniently: what an older or newer Keel wrote must not stop a run.
//!
//! ```
//! use keel_settings::Models;
//! use serde_json::json;
//!
//! let mut models: Models = serde_json::from_value(json!({
//!     "default": "small",
//!     "models": { "small": { "provider": "anthropic", "secret": "key", "prices": { "input": 3, "output": 15 } } },
//! }))?;
//! assert_eq!(models.check(), Ok(()));
//! assert!(models.pick(None).is_some_and(|(name, _)| name == "small"));
//! assert!(models.pick(Some("large")).is_none());
//!
//! models.default = Some("large".to_owned());
//! assert_eq!(models.check().map_err(|fault| fault.pointer), Err("/default".to_owned()));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! | to know | read |
//! |---|---|
//! | how settings are read and written, and what an attempt reads of them | [`Settings`], [`All`] |
//! | models, their windows and their prices | [`Models`], [`Model`], [`Prices`] |
//! | plugins and their tools | [`Plugin`], [`PluginKind`], [`Offered`] |
//! | what may be spent | [`TenantBudget`], [`month`] |
//! | where secrets are | [`secrets`] |

mod budget;
mod models;
mod plugins;
pub mod secrets;

pub use budget::{TenantBudget, month};
pub use models::{Model, Models, Prices, ProviderKind};
pub use plugins::{Offered, Plugin, PluginKind, RESERVED};
pub use secrets::{Secrets, SecretsError};

use keel_kernel::{Fault, TenantId};
use keel_ledger::StoreError;
use keel_ledger::{TenantStore, keys};

/// Whether a text may be the name of a plugin, a tool or a secret.
pub fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

fn fault(pointer: impl Into<String>, detail: impl Into<String>) -> Fault {
    Fault::new(pointer, detail)
}

const MODELS: &str = "models";
const BUDGET: &str = "budget";
const PLUGIN: &str = "plugin#";
const SECRET: &str = "secret-";

fn setting(name: &str) -> String {
    format!("{}{name}", keys::SETTING_PREFIX)
}

/// All of a tenant's settings but its secrets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct All {
    /// The models.
    pub models: Models,
    /// H5: what may be spent in a month, if it is set.
    pub budget: Option<TenantBudget>,
    /// The plugins, by name.
    pub plugins: Vec<Plugin>,
}

/// A tenant's settings in the state table.
#[derive(Clone, Debug)]
pub struct Settings {
    rows: TenantStore,
}

impl Settings {
    /// The settings that these rows hold.
    pub fn new(rows: TenantStore) -> Self {
        Self { rows }
    }

    /// The models; none if nothing is set.
    pub async fn models(&self, tenant: &TenantId) -> Result<Models, StoreError> {
        Ok(self.rows.setting(tenant, setting(MODELS)).await?.unwrap_or_default())
    }

    /// Sets the models.
    pub async fn set_models(&self, tenant: &TenantId, models: &Models) -> Result<(), StoreError> {
        self.rows.put_setting(tenant, setting(MODELS), models).await
    }

    /// H5: what the tenant may spend; `None` if it is not set, and then nothing is counted.
    pub async fn budget(&self, tenant: &TenantId) -> Result<Option<TenantBudget>, StoreError> {
        self.rows.setting(tenant, setting(BUDGET)).await
    }

    /// Sets what the tenant may spend.
    pub async fn set_budget(&self, tenant: &TenantId, budget: &TenantBudget) -> Result<(), StoreError> {
        self.rows.put_setting(tenant, setting(BUDGET), budget).await
    }

    /// The plugins, by name.
    pub async fn plugins(&self, tenant: &TenantId) -> Result<Vec<Plugin>, StoreError> {
        let rows = self.rows.settings(tenant, keys::PLUGIN_PREFIX).await?;
        Ok(rows.into_iter().map(|(_, plugin)| plugin).collect())
    }

    /// Everything that an attempt needs, in one query.
    pub async fn all(&self, tenant: &TenantId) -> Result<All, StoreError> {
        let rows = self.rows.settings::<serde_json::Value>(tenant, keys::SETTING_PREFIX).await?;
        let mut all = All::default();
        for (name, row) in rows {
            let bad = |_| StoreError::Corrupt(format!("the setting {name}"));
            if name == MODELS {
                all.models = serde_json::from_value(row).map_err(bad)?;
            } else if name == BUDGET {
                all.budget = Some(serde_json::from_value(row).map_err(bad)?);
            } else if name.starts_with(PLUGIN) {
                all.plugins.push(serde_json::from_value(row).map_err(bad)?);
            }
        }
        Ok(all)
    }

    /// A plugin.
    pub async fn plugin(&self, tenant: &TenantId, name: &str) -> Result<Option<Plugin>, StoreError> {
        self.rows.setting(tenant, format!("{}{name}", keys::PLUGIN_PREFIX)).await
    }

    /// Sets a plugin.
    pub async fn set_plugin(&self, tenant: &TenantId, plugin: &Plugin) -> Result<(), StoreError> {
        self.rows.put_setting(tenant, format!("{}{}", keys::PLUGIN_PREFIX, plugin.name), plugin).await
    }

    /// Removes a plugin. True if there was one.
    pub async fn remove_plugin(&self, tenant: &TenantId, name: &str) -> Result<bool, StoreError> {
        self.rows.remove_setting(tenant, format!("{}{name}", keys::PLUGIN_PREFIX)).await
    }

    /// The names of the tenant's secrets.
    pub async fn secret_names(&self, tenant: &TenantId) -> Result<Vec<String>, StoreError> {
        let rows = self.rows.settings::<String>(tenant, &setting(SECRET)).await?;
        Ok(rows.into_iter().map(|(_, name)| name).collect())
    }

    /// Records that there is a secret of this name. Its value is in [`Secrets`].
    pub async fn name_secret(&self, tenant: &TenantId, name: &str) -> Result<(), StoreError> {
        self.rows.put_setting(tenant, setting(&format!("{SECRET}{name}")), &name).await
    }

    /// Removes a secret's name. True if there was one.
    pub async fn unname_secret(&self, tenant: &TenantId, name: &str) -> Result<bool, StoreError> {
        self.rows.remove_setting(tenant, setting(&format!("{SECRET}{name}"))).await
    }
}
