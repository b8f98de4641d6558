//! A ledger over the embedded store, a clock that tests move, and short functions that make events.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use keel_embedded::{Embedded, tables};
use keel_env::Env;
use keel_kernel::budget::Budget;
use keel_kernel::decision::Decision;
use keel_kernel::testing::MemorySession;
use keel_kernel::{
    DedupeKey, Event, Head, KeyName, Kind, LeaseToken, Millis, NewEvent, OwnerId, Payload, Refusal, Seq,
    SessionDescription, SessionId, StateOwner, TenantId,
};
use keel_ledger::dynamo::{Dynamo, Tables, read_item};
use keel_ledger::hints::{Hint, LocalHints};
use keel_ledger::notifier::CommitNotifier;
use keel_ledger::port::Written;
use keel_ledger::value::Item;
use keel_ledger::{Ledger, LedgerConfig, LedgerError, SessionKey, Store, TenantStore};
use keel_ledger::{items, keys};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

/// Where every test's clock starts.
pub(crate) const START: Millis = Millis(1_764_547_200_000);

/// Time that only tests move, ids that count up, and random numbers from a seed.
#[derive(Debug)]
pub(crate) struct TestEnv {
    now: AtomicU64,
    ids: AtomicU64,
    chance: AtomicU64,
    seed: u64,
    /// The counter is in the last digits of an id instead of the first.
    counts_low: bool,
}

impl TestEnv {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self::of(seed, false))
    }

    /// Makes ids that differ in their last digits alone, as those of one moment do.
    pub(crate) fn at_one_moment(seed: u64) -> Arc<Self> {
        Arc::new(Self::of(seed, true))
    }

    fn of(seed: u64, counts_low: bool) -> Self {
        let (now, chance) = (AtomicU64::new(START.0), AtomicU64::new(seed));
        Self { now, ids: AtomicU64::new(0), chance, seed, counts_low }
    }

    pub(crate) fn advance(&self, ms: u64) {
        self.now.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Env for TestEnv {
    fn now(&self) -> Millis {
        Millis(self.now.load(Ordering::SeqCst))
    }

    fn unique(&self) -> String {
        let n = self.ids.fetch_add(1, Ordering::SeqCst) + 1;
        let (first, last) = if self.counts_low { (self.seed, n) } else { (n, self.seed) };
        format!("{first:016x}{last:016x}")
    }

    /// The next random number (SplitMix64).
    fn pick(&self, range: RangeInclusive<u64>) -> u64 {
        let mut z = self
            .chance
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst)
            .wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        range.start() + (z ^ (z >> 31)) % (range.end() - range.start() + 1)
    }
}

/// An empty store with its tables.
pub(crate) async fn embedded() -> Embedded {
    let embedded = Embedded::memory().expect("a store in memory opens");
    tables::create_missing(&embedded.client(), "").await.expect("an empty store takes the tables");
    embedded
}

/// A ledger over some store, and its parts.
pub(crate) struct Rig {
    pub(crate) env: Arc<TestEnv>,
    pub(crate) ledger: Ledger,
    pub(crate) hints: UnboundedReceiver<Hint>,
}

impl Rig {
    pub(crate) fn over(store: Arc<dyn Store>, env: Arc<TestEnv>) -> Self {
        Self::with(store, env, LedgerConfig::default())
    }

    pub(crate) fn with(store: Arc<dyn Store>, env: Arc<TestEnv>, config: LedgerConfig) -> Self {
        let (sender, hints) = LocalHints::channel();
        let notifier = CommitNotifier::in_process();
        Self { env: env.clone(), ledger: Ledger::new(store, Arc::new(sender), notifier, env, config), hints }
    }
}

/// A rig over the embedded DynamoDB with one session.
pub(crate) struct World {
    pub(crate) at: SessionKey,
    pub(crate) client: Client,
    pub(crate) store: Arc<Dynamo>,
    pub(crate) rig: Rig,
}

impl World {
    /// A world with a native session.
    pub(crate) async fn new() -> Self {
        Self::owned_by(StateOwner::Native).await
    }

    pub(crate) async fn owned_by(state_owner: StateOwner) -> Self {
        let world = Self::empty().await;
        create(&*world.store, &world.at, state_owner).await;
        world.store.meter().take();
        world
    }

    /// A world whose tables are empty.
    pub(crate) async fn empty() -> Self {
        let client = embedded().await.client();
        let store = Arc::new(Dynamo::new(client.clone(), Tables::with_prefix("")));
        Self { at: session("s"), client, rig: Rig::over(store.clone(), TestEnv::new(7)), store }
    }

    pub(crate) fn tenants(&self) -> TenantStore {
        TenantStore::new((*self.store).clone())
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.rig.ledger
    }

    /// Commits an input with this request id.
    pub(crate) async fn input(&self, request: &str) -> keel_ledger::Appended {
        self.ledger().input(&self.at, text(request), Some(key(request))).await.expect("an input commits")
    }

    /// Claims the session's run.
    pub(crate) async fn claim(&self) -> keel_ledger::Claimed {
        let claimed = self.ledger().claim(&self.at, &owner("w1")).await.expect("the store works");
        claimed.expect("the run is pending")
    }

    /// An input and a claim: a session whose run is live.
    pub(crate) async fn running(&self) -> keel_ledger::Claimed {
        self.input("first").await;
        self.claim().await
    }

    /// Commits as the owner, without a known head.
    pub(crate) async fn commit(
        &self,
        token: &LeaseToken,
        events: Vec<NewEvent>,
    ) -> Result<keel_ledger::Appended, LedgerError> {
        self.ledger().commit(&self.at, None, Some(token.clone()), events).await
    }

    pub(crate) async fn events(&self) -> Vec<Event> {
        self.ledger().all_events(&self.at, Seq::ZERO).await.expect("events read")
    }

    pub(crate) async fn head(&self) -> Head {
        self.ledger().head(&self.at).await.expect("the head reads")
    }
}

/// Writes a new session's rows.
pub(crate) async fn create(store: &dyn Store, at: &SessionKey, state_owner: StateOwner) {
    let described = described(&at.session, state_owner);
    let made = keel_kernel::session_transitions::create(None, &described, Budget::default())
        .expect("nothing is there");
    let token = format!("make-{}", at.session);
    let written = store.write(at, None, &made.expect("it is new"), &token).await;
    assert_eq!(written.expect("no fault"), Written::Committed);
}

pub(crate) fn described(session: &SessionId, state_owner: StateOwner) -> SessionDescription {
    let native = SessionDescription::native(session.clone(), START);
    SessionDescription { state_owner, digest: "d".to_owned(), ..native }
}

/// Everything that the tables hold of a session.
pub(crate) type Rows = MemorySession;

/// Reads a session's rows straight from the tables.
pub(crate) async fn rows(client: &Client, at: &SessionKey) -> Rows {
    let head = items::read_head(&query(client, "state", at, "head").await[0]).expect("the head decodes");
    let described = items::read_row(&query(client, "state", at, "meta").await[0]);
    let mut found = Rows::new(described.expect("the description decodes"), head);
    for item in query(client, "state", at, keys::DECISION_PREFIX).await {
        let decision: Decision = items::read_row(&item).expect("a decision decodes");
        assert_eq!(item.contains_key(items::OPEN), decision.given.is_none(), "a condition must see it");
        found.decisions.insert(decision.id.clone(), decision);
    }
    for item in under(client, "state", at.tenant.as_str(), keys::OPEN_PREFIX).await {
        let id: String = items::read_row(&item).expect("a name decodes");
        if Decision::session_of(&id).as_ref() == Some(&at.session) {
            found.listed.insert(id);
        }
    }
    for item in query(client, "events", at, "e#").await {
        let event = items::read_event(&item).expect("an event decodes");
        found.events.push(event);
    }
    for item in query(client, "events", at, "k#").await {
        let row = items::read_key(&item).expect("a key decodes");
        found.keys.insert((row.name, row.key.clone()), row);
    }
    found
}

async fn query(client: &Client, table: &str, at: &SessionKey, prefix: &str) -> Vec<Item> {
    under(client, table, &at.to_string(), prefix).await
}

async fn under(client: &Client, table: &str, pk: &str, prefix: &str) -> Vec<Item> {
    let mut pages = client
        .query()
        .table_name(table)
        .key_condition_expression("pk = :pk AND begins_with(sk, :prefix)")
        .expression_attribute_values(":pk", AttributeValue::S(pk.to_owned()))
        .expression_attribute_values(":prefix", AttributeValue::S(prefix.to_owned()))
        .consistent_read(true)
        .into_paginator()
        .items()
        .send();
    let mut found = Vec::new();
    while let Some(item) = pages.next().await {
        found.push(read_item(item.expect("a query succeeds")));
    }
    found
}

pub(crate) fn session(id: &str) -> SessionKey {
    SessionKey {
        tenant: TenantId::parse("acme").expect("a name"),
        session: SessionId::parse(id).expect("a name"),
    }
}

pub(crate) fn key(text: &str) -> DedupeKey {
    DedupeKey::parse(text).expect("visible ASCII")
}

pub(crate) fn owner(name: &str) -> OwnerId {
    OwnerId::parse(name).expect("visible ASCII")
}

pub(crate) fn payload(value: &Value) -> Payload {
    Payload::from_value(value).expect("an object")
}

/// An input's payload.
pub(crate) fn text(text: &str) -> Payload {
    payload(&json!({ "text": text }))
}

fn new(kind: Kind, value: &Value, key: Option<(KeyName, DedupeKey)>) -> NewEvent {
    NewEvent { kind, payload: payload(value), key }
}

/// A model's answer that names these inputs and asks for these calls.
pub(crate) fn answer(generation: &str, inputs: &[u64], calls: &[&str]) -> NewEvent {
    let mut content = vec![json!({ "type": "text", "text": generation })];
    content.extend(calls.iter().map(|id| json!({ "type": "toolCall", "id": id, "name": "add" })));
    let value = json!({ "content": content, "stopReason": "end_turn", "inputSeqs": inputs });
    new(Kind::AssistantMessage, &value, Some((KeyName::GenerationId, key(generation))))
}

pub(crate) fn result(call: &str, output: &str) -> NewEvent {
    let value = json!({ "toolCallId": call, "output": output });
    new(Kind::ToolResult, &value, Some((KeyName::ToolCallId, key(call))))
}

pub(crate) fn compaction(summary: &str) -> NewEvent {
    new(Kind::Compaction, &json!({ "summary": summary }), None)
}

/// A compaction that keeps the events from this position on.
pub(crate) fn keeping(first_kept: u64) -> NewEvent {
    let usage = json!({ "input": 30, "output": 4, "costUsd": 0.001 });
    new(Kind::Compaction, &json!({ "summary": "s", "firstKeptSeq": first_kept, "usage": usage }), None)
}

pub(crate) fn finished(status: &str) -> NewEvent {
    new(Kind::RunFinished, &json!({ "status": status }), None)
}

/// The refusal that a command ended with.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(ended: Result<T, LedgerError>) -> Refusal {
    match ended {
        Err(LedgerError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}
