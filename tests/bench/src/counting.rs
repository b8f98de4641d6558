//! Counts round trips at the SDK's connector, where a retry by the SDK itself would be counted too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_smithy_runtime_api::client::http::{HttpConnector as _, SharedHttpClient};
use keel_embedded::wire;

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
        let count = self.0.clone();
        wire::tapped(inner, move |request, inner| {
            count.fetch_add(1, Ordering::Relaxed);
            inner.call(request)
        })
    }
}
