//! The connector itself: both ways of dispatch, paused time, and a caller's own wrapper around it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::config::{HttpClient, RuntimeComponents, SharedHttpClient};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use keel_embedded::{Dispatch, Embedded, client_over, tables};

use crate::support::{get, item, key, n, put, s, step_head};

/// Counts the requests, runs each and drops its answer, so that the caller does not know the outcome.
#[derive(Clone, Debug)]
struct LosesAnswers<Inner> {
    inner: Inner,
    seen: Arc<AtomicUsize>,
}

impl HttpClient for LosesAnswers<SharedHttpClient> {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(LosesAnswers { inner, seen: self.seen.clone() })
    }
}

impl HttpConnector for LosesAnswers<SharedHttpConnector> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let this = self.clone();
        HttpConnectorFuture::new(async move {
            this.seen.fetch_add(1, Ordering::SeqCst);
            drop(this.inner.call(request).await);
            Err(ConnectorError::timeout("the answer was lost".into()))
        })
    }
}

#[tokio::test]
async fn a_wrapper_can_lose_an_answer_and_the_sdk_does_not_ask_again() {
    let embedded = Embedded::memory().unwrap();
    let client = embedded.client();
    tables::create_missing(&client, "").await.unwrap();
    put(&client, "state", item([("pk", s("t#1")), ("sk", s("head")), ("seq", n(0))])).await;

    let seen = Arc::new(AtomicUsize::new(0));
    let faulty = LosesAnswers { inner: embedded.http_client(), seen: seen.clone() };
    let faulty = client_over(SharedHttpClient::new(faulty));
    let lost = faulty.transact_write_items().transact_items(step_head("t#1", 0)).send().await.unwrap_err();
    assert!(lost.as_service_error().is_none(), "no answer, no service error: {lost:?}");
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    assert_eq!(get(&client, "state", "t#1", "head").await.unwrap()["seq"], n(1), "written all the same");
}

#[tokio::test(start_paused = true)]
async fn paused_time_stands_still_under_either_dispatch() {
    for dispatch in [Dispatch::Inline, Dispatch::Blocking] {
        let started = tokio::time::Instant::now();
        let client = Embedded::memory().unwrap().with_dispatch(dispatch).client();
        tables::create_missing(&client, "").await.unwrap();
        put(&client, "state", key("t#1", "head")).await;
        assert!(get(&client, "state", "t#1", "head").await.is_some());
        assert_eq!(started.elapsed(), Duration::ZERO, "{dispatch:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_at_once_lose_no_step() {
    let client = Embedded::memory().unwrap().with_dispatch(Dispatch::Blocking).client();
    tables::create_missing(&client, "").await.unwrap();
    let writers: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let update = client.update_item().table_name("state").set_key(Some(key("t#1", "head")));
                update
                    .update_expression("ADD seq :one")
                    .expression_attribute_values(":one", n(1))
                    .send()
                    .await
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    assert_eq!(get(&client, "state", "t#1", "head").await.unwrap()["seq"], n(20));
}

#[tokio::test]
async fn an_operation_that_is_not_served_is_a_refusal_and_not_a_broken_connection() {
    let client = Embedded::memory().unwrap().client();
    let refused = client.describe_limits().send().await.unwrap_err().into_service_error();
    assert_eq!(refused.meta().code(), Some("UnknownOperationException"), "{refused:?}");
    assert!(refused.meta().message().unwrap().contains("DescribeLimits"));
}
