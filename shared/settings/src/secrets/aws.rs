//! Secrets in AWS Secrets Manager, under a prefix that the functions' roles name.

use async_trait::async_trait;
use aws_sdk_secretsmanager::Client;
use aws_sdk_secretsmanager::operation::create_secret::CreateSecretError;
use aws_sdk_secretsmanager::operation::delete_secret::DeleteSecretError;
use aws_sdk_secretsmanager::operation::get_secret_value::GetSecretValueError;
use keel_kernel::TenantId;
use secrecy::{ExposeSecret as _, SecretString};

use super::{Secrets, SecretsError};

/// Secrets in Secrets Manager.
#[derive(Clone, Debug)]
pub struct AwsSecrets {
    client: Client,
    prefix: String,
}

impl AwsSecrets {
    /// Secrets whose names begin with this prefix, `keel-prod/`.
    pub fn new(client: Client, prefix: impl Into<String>) -> Self {
        Self { client, prefix: prefix.into() }
    }

    fn id(&self, tenant: &TenantId, name: &str) -> String {
        format!("{}{tenant}/{name}", self.prefix)
    }
}

fn failed(what: &'static str, error: impl std::error::Error + Send + Sync + 'static) -> SecretsError {
    SecretsError(what, Box::new(error))
}

#[async_trait]
impl Secrets for AwsSecrets {
    async fn get(&self, tenant: &TenantId, name: &str) -> Result<Option<SecretString>, SecretsError> {
        match self.client.get_secret_value().secret_id(self.id(tenant, name)).send().await {
            Ok(found) => Ok(found.secret_string.map(SecretString::from)),
            Err(error) => match error.into_service_error() {
                GetSecretValueError::ResourceNotFoundException(_) => Ok(None),
                error => Err(failed("read", error)),
            },
        }
    }

    async fn put(&self, tenant: &TenantId, name: &str, value: SecretString) -> Result<(), SecretsError> {
        let id = self.id(tenant, name);
        let value = value.expose_secret();
        let created = self.client.create_secret().name(&id).secret_string(value).send().await;
        match created.map_err(aws_sdk_secretsmanager::error::SdkError::into_service_error) {
            Ok(_) => Ok(()),
            Err(CreateSecretError::ResourceExistsException(_)) => {
                let put = self.client.put_secret_value().secret_id(&id).secret_string(value);
                put.send().await.map(drop).map_err(|e| failed("written", e.into_service_error()))
            }
            Err(error) => Err(failed("written", error)),
        }
    }

    async fn remove(&self, tenant: &TenantId, name: &str) -> Result<(), SecretsError> {
        // At once: while a secret waits for deletion, its name cannot be written again.
        let delete = self.client.delete_secret().secret_id(self.id(tenant, name));
        match delete.force_delete_without_recovery(true).send().await {
            Ok(_) => Ok(()),
            Err(error) => match error.into_service_error() {
                DeleteSecretError::ResourceNotFoundException(_) => Ok(()),
                error => Err(failed("removed", error)),
            },
        }
    }
}
