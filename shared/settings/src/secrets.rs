//! Secrets: keys of providers and plugins. A client writes them, and only the code that calls a provider or plugin reads them.

use async_trait::async_trait;
use keel_kernel::TenantId;
use secrecy::SecretString;

#[cfg(feature = "aws")]
mod aws;
#[cfg(feature = "file")]
mod file;

#[cfg(feature = "aws")]
pub use aws::AwsSecrets;
#[cfg(feature = "file")]
pub use file::FileSecrets;

/// The longest secret, in bytes.
pub const SECRET_MAX: usize = 8 * 1024;

/// A secret could not be read or written. Its value is never part of the error.
#[derive(Debug, thiserror::Error)]
#[error("the secrets could not be {0}")]
pub struct SecretsError(pub &'static str, #[source] pub Box<dyn std::error::Error + Send + Sync>);

/// Holds no secrets and cannot store any.
#[derive(Clone, Copy, Debug)]
pub struct NoSecrets;

#[async_trait]
impl Secrets for NoSecrets {
    async fn get(&self, _tenant: &TenantId, _name: &str) -> Result<Option<SecretString>, SecretsError> {
        Ok(None)
    }

    async fn put(&self, _tenant: &TenantId, _name: &str, _value: SecretString) -> Result<(), SecretsError> {
        Err(SecretsError("written", "there is nowhere to put them".into()))
    }

    async fn remove(&self, _tenant: &TenantId, _name: &str) -> Result<(), SecretsError> {
        Ok(())
    }
}

/// A store of secrets.
#[async_trait]
pub trait Secrets: Send + Sync {
    /// A secret's value, if there is one.
    async fn get(&self, tenant: &TenantId, name: &str) -> Result<Option<SecretString>, SecretsError>;

    /// Writes a secret, replacing an older one.
    async fn put(&self, tenant: &TenantId, name: &str, value: SecretString) -> Result<(), SecretsError>;

    /// Removes a secret. It is no error if there is none.
    async fn remove(&self, tenant: &TenantId, name: &str) -> Result<(), SecretsError>;
}
