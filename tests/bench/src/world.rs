//! A ledger over an embedded store, with meters.

use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use keel_embedded::{Embedded, client_over, tables};
use keel_env::{Env as _, SystemEnv};
use keel_kernel::budget::Budget;
use keel_kernel::{
    DedupeKey, Head, KeyName, Kind, LeaseToken, NewEvent, OwnerId, Payload, SessionDescription, SessionId,
    TenantId,
};
use keel_ledger::dynamo::{Dynamo, Tables};
use keel_ledger::hints::LocalHints;
use keel_ledger::notifier::CommitNotifier;
use keel_ledger::{Ledger, LedgerConfig, SessionKey};
use serde_json::{Value, json};

use crate::counting::RoundTrips;

/// The prefix of the tables' names: that of keel-local, so that it can serve a store that is filled here.
pub const PREFIX: &str = "keel-";
/// The tenant of keel-local's own key.
pub const TENANT: &str = "dev";

/// A ledger and its store.
#[derive(Clone)]
pub struct World {
    /// The SDK's client of the store, for bare calls.
    pub client: Client,
    /// The tables, with the meter of units.
    pub tables: Dynamo,
    /// The ledger.
    pub ledger: Ledger,
    /// The round trips.
    pub trips: RoundTrips,
}

impl World {
    /// A ledger over a store. Makes the tables.
    pub async fn over(embedded: &Embedded) -> Self {
        let trips = RoundTrips::default();
        let client = client_over(trips.counting(embedded.http_client()));
        tables::create_missing(&client, PREFIX).await.expect("the store takes the tables");
        let tables = Dynamo::new(client.clone(), Tables::with_prefix(PREFIX));
        // Hints that nobody follows.
        let (hints, mut hinted) = LocalHints::channel();
        tokio::spawn(async move { while hinted.recv().await.is_some() {} });
        let config = LedgerConfig { lease_ms: 3_600_000, ..LedgerConfig::default() };
        let store = Arc::new(tables.clone());
        let ledger =
            Ledger::new(store, Arc::new(hints), CommitNotifier::in_process(), Arc::new(SystemEnv), config);
        trips.take();
        Self { client, tables, ledger, trips }
    }

    /// A ledger over a new store in memory, worked on the task that asks.
    pub async fn memory() -> Self {
        Self::over(&Embedded::memory().expect("a store in memory opens")).await
    }

    /// A new session.
    pub async fn session(&self, id: &str) -> SessionKey {
        let at = SessionKey {
            tenant: TenantId::parse(TENANT).expect("a name"),
            session: SessionId::parse(id).expect("a name"),
        };
        let description = SessionDescription::native(at.session.clone(), SystemEnv.now());
        self.ledger.create(&at, &description, Budget::default()).await.expect("a new session");
        at
    }

    /// Commits an input.
    pub async fn input(&self, at: &SessionKey, request: &str) {
        let key = DedupeKey::parse(request).expect("visible ASCII");
        self.ledger.input(at, payload(&json!({ "text": request })), Some(key)).await.expect("an input");
    }

    /// Claims the session's run.
    pub async fn claim(&self, at: &SessionKey) -> (LeaseToken, Head) {
        let owner = OwnerId::parse("bench").expect("visible ASCII");
        let claimed = self.ledger.claim(at, &owner).await.expect("the store works").expect("it is pending");
        (claimed.token, claimed.head)
    }

    /// A new session whose run is claimed.
    pub async fn running(&self, id: &str) -> (SessionKey, LeaseToken, Head) {
        let at = self.session(id).await;
        self.input(&at, "first").await;
        let (token, head) = self.claim(&at).await;
        (at, token, head)
    }

    /// Commits as the owner that knows the head; the head afterwards.
    pub async fn commit(
        &self,
        at: &SessionKey,
        head: Head,
        token: &LeaseToken,
        events: Vec<NewEvent>,
    ) -> Head {
        let done = self.ledger.commit(at, Some(head), Some(token.clone()), events).await;
        done.expect("the owner commits").head
    }

    /// Commits this many events in batches of the largest size; the head afterwards.
    pub async fn fill(&self, at: &SessionKey, mut head: Head, token: &LeaseToken, events: usize) -> Head {
        let mut left = events;
        while left > 0 {
            let size = left.min(keel_kernel::caps::EVENTS_PER_COMMIT);
            head = self.commit(at, head, token, (0..size).map(|_| note()).collect()).await;
            left -= size;
        }
        head
    }
}

fn payload(value: &Value) -> Payload {
    Payload::from_value(value).expect("an object")
}

/// A model's answer under a key of its own. About 300 bytes, as most events of a conversation are.
pub fn assistant_message(generation: &str, inputs: &[u64]) -> NewEvent {
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(4);
    let value = json!({
        "content": [{ "type": "text", "text": text }], "stopReason": "end_turn", "inputSeqs": inputs,
    });
    let key = DedupeKey::parse(generation).expect("visible ASCII");
    NewEvent {
        kind: Kind::AssistantMessage,
        payload: payload(&value),
        key: Some((KeyName::GenerationId, key)),
    }
}

/// An event that has no key, of the same size.
pub fn note() -> NewEvent {
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(4);
    NewEvent { kind: Kind::Compaction, payload: payload(&json!({ "summary": text })), key: None }
}

/// The end of a run.
pub fn finished() -> NewEvent {
    NewEvent { kind: Kind::RunFinished, payload: payload(&json!({ "status": "done" })), key: None }
}
