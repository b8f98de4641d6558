//! Counts round trips at the SDK's connector, where a retry by the SDK itself would be counted too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;

/// How many requests were sent.
#[derive(Clone, Debug, Default)]
pub struct RoundTrips(Arc<AtomicU64>);

impl RoundTrips {
    /// The count so far; resets it.
    pub fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }

    /// The same client, counted.
    pub fn counting(&self, inner: SharedHttpClient) -> SharedHttpClient {
        SharedHttpClient::new(Client { inner, count: self.clone() })
    }
}

#[derive(Debug)]
struct Client {
    inner: SharedHttpClient,
    count: RoundTrips,
}

impl HttpClient for Client {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(Connector { inner, count: self.count.clone() })
    }
}

#[derive(Debug)]
struct Connector {
    inner: SharedHttpConnector,
    count: RoundTrips,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        self.count.0.fetch_add(1, Ordering::Relaxed);
        self.inner.call(request)
    }
}
