//! The model of a deployment, from its configuration.

use std::sync::Arc;

use keel_agent::Provider;
use keel_agent::provider::fake::Fake;
use secrecy::SecretString;

use crate::anthropic::{self, Anthropic};
use crate::openai::{self, OpenAi};
use crate::{Http, RetryPolicy};
use keel_egress::{BadAddress, EgressPolicy};

/// The most tokens of an answer, by default.
const MAX_TOKENS: u32 = 8_192;

/// A deployment's configuration of its model.
#[derive(Debug, Default)]
pub struct ProviderConfig {
    /// `fake`, `anthropic`, `openai` or `bedrock`.
    pub provider: String,
    /// The address of another server with the provider's protocol; `None`: the provider's own.
    pub url: Option<String>,
    /// The model of sessions that name none.
    pub model: Option<String>,
    /// The API key.
    pub key: Option<SecretString>,
    /// The most tokens of an answer.
    pub max_tokens: Option<u32>,
    /// The client for Bedrock. `None`: this process has no access to AWS.
    #[cfg(feature = "bedrock")]
    pub bedrock: Option<aws_sdk_bedrockruntime::Client>,
    /// Where the address may lead. `None`: anywhere, since the operator has chosen it.
    pub egress: Option<EgressPolicy>,
}

/// Why a configuration is not usable.
#[derive(Debug, thiserror::Error)]
pub enum BadProviderConfig {
    /// No such provider.
    #[error("there is no provider {0:?}: fake, anthropic, openai or bedrock")]
    Unknown(String),
    /// The provider needs something that is missing.
    #[error("the provider {provider} needs {what}")]
    Needs {
        /// The provider.
        provider: String,
        /// What is missing.
        what: &'static str,
    },
    /// The egress policy does not allow the address.
    #[error("the model's address is not allowed")]
    Address(#[source] BadAddress),
    /// The TLS stack could not be set up.
    #[error("the HTTP client could not be made")]
    Client(#[source] reqwest::Error),
}

impl ProviderConfig {
    #[cfg(feature = "bedrock")]
    fn on_bedrock(&self, model: String) -> Result<Arc<dyn Provider>, BadProviderConfig> {
        let Some(client) = self.bedrock.clone() else {
            return Err(BadProviderConfig::Needs {
                provider: "bedrock".to_owned(),
                what: "a deployment on AWS",
            });
        };
        Ok(Arc::new(crate::bedrock::Bedrock::new(client, model, self.max_tokens, RetryPolicy::default())))
    }

    #[cfg(not(feature = "bedrock"))]
    fn on_bedrock(&self, _model: String) -> Result<Arc<dyn Provider>, BadProviderConfig> {
        Err(BadProviderConfig::Needs { provider: self.provider.clone(), what: "a deployment on AWS" })
    }

    /// The provider.
    ///
    /// # Errors
    /// When something is missing, or the provider is unknown.
    pub fn connect(self) -> Result<Arc<dyn Provider>, BadProviderConfig> {
        let needs = |what| BadProviderConfig::Needs { provider: self.provider.clone(), what };
        let url = |own: &str| self.url.as_deref().unwrap_or(own).trim_end_matches('/').to_owned();
        let model = || self.model.clone().ok_or_else(|| needs("a model"));
        if let (Some(egress), Some(url)) = (self.egress, &self.url) {
            egress.admit(url).map_err(BadProviderConfig::Address)?;
        }
        match self.provider.as_str() {
            "fake" => Ok(Arc::new(Fake)),
            "anthropic" => {
                let key = self.key.clone().ok_or_else(|| needs("a key"))?;
                let wire = Anthropic {
                    url: url(anthropic::URL),
                    key,
                    model: model()?,
                    max_tokens: self.max_tokens.unwrap_or(MAX_TOKENS),
                };
                Ok(Arc::new(
                    Http::new(wire, RetryPolicy::default(), self.egress)
                        .map_err(BadProviderConfig::Client)?,
                ))
            }
            "openai" => {
                if self.key.is_none() && self.url.is_none() {
                    return Err(needs("a key"));
                }
                let wire = OpenAi {
                    url: url(openai::URL),
                    key: self.key.clone(),
                    model: model()?,
                    max_tokens: self.max_tokens,
                };
                Ok(Arc::new(
                    Http::new(wire, RetryPolicy::default(), self.egress)
                        .map_err(BadProviderConfig::Client)?,
                ))
            }
            "bedrock" => self.on_bedrock(model()?),
            unknown => Err(BadProviderConfig::Unknown(unknown.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(
        provider: &str,
        model: Option<&str>,
        key: Option<&str>,
        url: Option<&str>,
    ) -> Result<String, String> {
        let config = ProviderConfig {
            provider: provider.to_owned(),
            url: url.map(str::to_owned),
            model: model.map(str::to_owned),
            key: key.map(|key| key.to_owned().into()),
            ..ProviderConfig::default()
        };
        config.connect().map(|provider| provider.model(None)).map_err(|error| error.to_string())
    }

    #[test]
    fn an_error_names_what_is_missing() {
        assert_eq!(connect("fake", None, None, None).as_deref(), Ok("fake"));
        assert_eq!(connect("anthropic", Some("m"), Some("k"), None).as_deref(), Ok("m"));
        assert_eq!(
            connect("anthropic", Some("m"), None, None).unwrap_err(),
            "the provider anthropic needs a key"
        );
        assert_eq!(
            connect("openai", None, Some("k"), None).unwrap_err(),
            "the provider openai needs a model"
        );
        assert_eq!(connect("openai", Some("m"), None, Some("http://127.0.0.1:11434/v1")).as_deref(), Ok("m"));
        assert!(connect("nobody", None, None, None).unwrap_err().contains("nobody"));
    }
}
