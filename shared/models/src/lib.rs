//! Models over HTTP, behind the loop's small port: Anthropic Messages, and chat completions as OpenAI, Ollama, vLLM and
//! many others speak them. With the feature `bedrock`, Amazon Bedrock.
//!
//! A failure is a last message, never a panic. What may pass (overload, a limit, a lost connection) is tried again while
//! nothing of the answer has arrived yet; once a reader may have seen text, a failure ends the generation (R3a) and the
//! attempt budget decides.
//!
//! ```
//! use keel_models::ProviderConfig;
//!
//! let config = ProviderConfig {
//!     provider: "openai".to_owned(),
//!     url: Some("http://127.0.0.1:11434/v1".to_owned()), // Ollama: needs no key
//!     model: Some("small".to_owned()),
//!     ..ProviderConfig::default()
//! };
//! let provider = config.connect()?;
//! assert_eq!(provider.model(None), "small");
//! assert_eq!(provider.model(Some("large")), "large"); // a session may name another
//!
//! let nameless = ProviderConfig { provider: "anthropic".to_owned(), key: Some("k".into()), ..ProviderConfig::default() };
//! let error = nameless.connect().err().expect("it names no model");
//! assert_eq!(error.to_string(), "the provider anthropic needs a model");
//! # Ok::<(), keel_models::BadProviderConfig>(())
//! ```
//!
//! | to know | read |
//! |---|---|
//! | which model answers, and what it needs | [`ProviderConfig`] |
//! | how a request is sent, tried again and streamed | [`Http`], [`RetryPolicy`] |
//! | how each protocol is spelled and read | [`anthropic`], [`openai`], `bedrock` |

pub mod anthropic;
#[cfg(feature = "bedrock")]
pub mod bedrock;
mod context;
mod http;
pub mod openai;
mod provider_config;

use std::time::Duration;

pub use http::Http;
pub use provider_config::{BadProviderConfig, ProviderConfig};

/// How long to wait for a model, and how often to try.
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    /// How long opening a connection may take.
    pub connect: Duration,
    /// How long the next byte may take: a stream that stalls for longer has failed.
    pub idle: Duration,
    /// The pause before each further try, varied by up to a fifth.
    pub pauses: Vec<Duration>,
    /// The longest pause that a server may ask for; if it asks for more, the request has failed.
    pub longest_pause: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            pauses: [2, 4, 8].map(Duration::from_secs).to_vec(),
            longest_pause: Duration::from_secs(60),
        }
    }
}
