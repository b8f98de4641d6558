//! The models of a tenant's sessions: their providers, windows and prices.

use std::collections::BTreeMap;

use keel_agent::compact::Window;
use keel_agent::provider::Usage;
use keel_kernel::Fault;
use serde::{Deserialize, Serialize};

use crate::{fault, is_name};

/// The models, and the default for sessions that name none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Models {
    /// The name of the default model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// The models, by the names that a session's `model` uses.
    #[serde(default)]
    pub models: BTreeMap<String, Model>,
}

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// Anthropic Messages.
    Anthropic,
    /// Chat completions: OpenAI, Ollama, vLLM and many others.
    Openai,
    /// Amazon Bedrock, with the worker's own role.
    Bedrock,
    /// The scripted fake model.
    Fake,
}

/// One model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Model {
    /// Its protocol.
    pub provider: ProviderKind,
    /// The provider's name for it; absent: the same name as here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The address of a server with the protocol; absent: the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The name of the secret with its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The tokens of its window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The most tokens of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// What it costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
}

/// US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Prices {
    /// Tokens read, not from the cache.
    pub input: f64,
    /// Tokens written.
    pub output: f64,
    /// Tokens read from the cache; absent: as `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    /// Tokens put into the cache; absent: as `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
}

/// The smallest window, in tokens: a smaller one has no room for an answer.
const WINDOW_MIN: u64 = 256;
/// How many models there may be.
const MODELS_MAX: usize = 100;

impl Models {
    /// Checks what a client sent.
    pub fn check(&self) -> Result<(), Fault> {
        if self.models.len() > MODELS_MAX {
            return Err(fault("/models", format!("holds more than {MODELS_MAX} models")));
        }
        if let Some(default) = self.default.as_ref().filter(|name| !self.models.contains_key(*name)) {
            return Err(fault("/default", format!("names {default:?}, which is not among the models")));
        }
        for (name, model) in &self.models {
            let pointer = |member: &str| format!("/models/{name}/{member}");
            if name.is_empty() || name.len() > 128 {
                return Err(fault("/models", "a model's name has 1 to 128 bytes"));
            }
            if model.model.as_ref().is_some_and(|named| named.is_empty() || named.len() > 256) {
                return Err(fault(pointer("model"), "must have 1 to 256 bytes"));
            }
            if model.secret.as_deref().is_some_and(|secret| !is_name(secret)) {
                return Err(fault(pointer("secret"), "must be a secret's name"));
            }
            if let Some(url) = &model.url
                && !url.starts_with("https://")
                && !url.starts_with("http://")
            {
                return Err(fault(pointer("url"), "must be an http or https address"));
            }
            if model.window.is_some_and(|window| window < WINDOW_MIN) {
                return Err(fault(pointer("window"), format!("must be at least {WINDOW_MIN} tokens")));
            }
            if let Some(prices) = &model.prices {
                let all = [Some(prices.input), Some(prices.output), prices.cache_read, prices.cache_write];
                if all.into_iter().flatten().any(|price| !(0.0..=1e6).contains(&price)) {
                    return Err(fault(pointer("prices"), "must be amounts from 0 to 1e6"));
                }
            }
        }
        Ok(())
    }

    /// The model for a session that names `wanted`, or none; with its name.
    pub fn pick(&self, wanted: Option<&str>) -> Option<(&str, &Model)> {
        let name = wanted.or(self.default.as_deref())?;
        self.models.get_key_value(name).map(|(name, model)| (name.as_str(), model))
    }
}

impl Model {
    /// Its window.
    pub fn window(&self) -> Window {
        self.window.map_or_else(Window::default, Window::of)
    }
}

impl Prices {
    /// What a request cost.
    #[expect(clippy::cast_precision_loss, reason = "tokens of a request are few")]
    pub fn cost(&self, usage: &Usage) -> f64 {
        let plain = usage.input.saturating_sub(usage.cache_read + usage.cache_write);
        let sum = plain as f64 * self.input
            + usage.output as f64 * self.output
            + usage.cache_read as f64 * self.cache_read.unwrap_or(self.input)
            + usage.cache_write as f64 * self.cache_write.unwrap_or(self.input);
        sum / 1e6
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn h5_a_cost_is_what_the_tokens_of_each_kind_cost() {
        let prices: Prices =
            serde_json::from_value(json!({ "input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75 }))
                .unwrap();
        let usage = Usage {
            input: 1_000_000,
            output: 100_000,
            cache_read: 800_000,
            cache_write: 100_000,
            cost_usd: None,
        };
        assert!((prices.cost(&usage) - (0.3 + 1.5 + 0.24 + 0.375)).abs() < 1e-9);
    }

    #[test]
    fn v6_what_is_wrong_is_said_with_its_place() {
        for (settings, pointer) in [
            (json!({ "default": "a", "models": {} }), "/default"),
            (json!({ "models": { "a": { "provider": "fake", "window": 10 } } }), "/models/a/window"),
            (json!({ "models": { "a": { "provider": "openai", "url": "ftp://x" } } }), "/models/a/url"),
            (json!({ "models": { "a": { "provider": "openai", "secret": "no name" } } }), "/models/a/secret"),
            (
                json!({ "models": { "a": { "provider": "fake", "prices": { "input": -1, "output": 0 } } } }),
                "/models/a/prices",
            ),
        ] {
            let models: Models = serde_json::from_value(settings).unwrap();
            assert_eq!(models.check().unwrap_err().pointer, pointer);
        }
        let models: Models =
            serde_json::from_value(json!({ "default": "a", "models": { "a": { "provider": "fake" } } }))
                .unwrap();
        assert_eq!(models.check(), Ok(()));
        assert_eq!(models.pick(None).map(|(name, _)| name), Some("a"));
        assert_eq!(models.pick(Some("b")), None);
    }
}
