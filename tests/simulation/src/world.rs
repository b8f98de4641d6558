//! One world: a store, a queue, processes with skewed clocks and faulty wires, and the sessions they work on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use keel_agent::provider::fake::Fake;
use keel_agent::tool::builtin::Builtin;
use keel_embedded::{Embedded, tables};
use keel_env::Env as _;
use keel_fn_worker::{FixedResources, Worker, WorkerConfig};
use keel_kernel::budget::Budget;
use keel_kernel::{Millis, SessionDescription, SessionId, TenantId, session_transitions};
use keel_ledger::dynamo::{Dynamo, Tables};
use keel_ledger::hints::Hint;
use keel_ledger::notifier::CommitNotifier;
use keel_ledger::tenant_store::ApiKeyRow;
use keel_ledger::{Ledger, LedgerConfig, SessionKey, Store, TenantStore};
use keel_web::Auth;
use keel_web::auth::ApiKey;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::env::SimEnv;
use crate::history::History;
use crate::person::Asking;
use crate::queue::Queue;
use crate::rng::Rng;
use crate::sabotage::{Mutation, Sabotaged};
use crate::wire::Wire;

/// The API key of every client.
pub(crate) const KEY: &str = "keel_t.sim_secret";

/// The prefix of the tables' names.
const PREFIX: &str = "keel-";

/// What all parts of one world share.
pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) history: Arc<History>,
    /// No more faults happen, and everything comes to rest.
    pub(crate) calm: Arc<AtomicBool>,
    /// Everything is at rest: readers read to the end and stop.
    pub(crate) rest: AtomicBool,
    /// Invocations that have not ended.
    pub(crate) working: AtomicU64,
    pub(crate) queue: Arc<Queue>,
    pub(crate) sessions: Vec<SessionKey>,
    pub(crate) auth: Auth,
    /// The first session is closed or being closed, so clients may be told so.
    pub(crate) closing: AtomicBool,
    /// The store without faults, for setting up and for the checks.
    pub(crate) clean: Dynamo,
    /// The tenants' rows without faults.
    pub(crate) tenants: TenantStore,
    store: Embedded,
    begun: Instant,
    lease_ms: u64,
    mutation: Option<Mutation>,
}

/// A process of one of the functions, with a clock and a wire of its own.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) ledger: Ledger,
    pub(crate) tenants: TenantStore,
    pub(crate) env: Arc<SimEnv>,
    history: Arc<History>,
}

impl World {
    /// A new world, and the receiver of its queue's hints.
    pub(crate) async fn new(seed: u64, mutation: Option<Mutation>) -> (World, UnboundedReceiver<Hint>) {
        let mut rng = Rng::new(seed);
        let store = Embedded::memory().expect("a store in memory");
        tables::create_missing(&store.client(), PREFIX).await.expect("tables");
        let clean = Dynamo::new(store.client(), Tables::with_prefix(PREFIX));
        let (history, calm) = (Arc::new(History::new()), Arc::new(AtomicBool::new(false)));
        let (queue, hinted) = Queue::new(calm.clone(), history.clone(), rng.fork("queue"));
        let mut sessions = Vec::new();
        for n in 0..rng.pick(1..=2) {
            sessions.push(make_session(&clean, n, &mut rng).await);
        }
        let lease_ms = *rng.one_of(&[8_000, 20_000, 60_000]);
        let key = ApiKey::parse(KEY).expect("a key");
        let row = ApiKeyRow { hash: key.hash(), scopes: vec!["client".to_owned()], created_ms: 0 };
        let tenants = TenantStore::new(clean.clone());
        tenants.put_api_key(&key.tenant, &key.id, &row).await.expect("the key's row");
        let world = World {
            rng,
            history,
            calm,
            rest: AtomicBool::new(false),
            working: AtomicU64::new(0),
            queue: Arc::new(queue),
            sessions,
            closing: AtomicBool::new(false),
            auth: Auth::new(tenants.clone()),
            tenants,
            clean,
            store,
            begun: Instant::now(),
            lease_ms,
            mutation,
        };
        (world, hinted)
    }

    /// A process with this number.
    pub(crate) fn process(&self, name: &str, number: u64) -> Process {
        let name = format!("{name}-{number}");
        let mut rng = self.rng.fork(&name);
        let skew_ms = match rng.pick(0..=9) {
            0..4 => 0,
            4..8 => rng.pick(0..=4_000).cast_signed() - 2_000,
            _ => rng.pick(0..=60_000).cast_signed() - 30_000,
        };
        let faults = *rng.one_of(&[0, 20, 60, 120, 250, 600]);
        self.history.note(format_args!("{name} begins: skew {skew_ms} ms, {faults} faults in 1000"));
        let env = Arc::new(SimEnv::new(self.begun, fnv(&name), skew_ms, rng.fork("env")));
        let client =
            Wire::client(&self.store, faults, self.calm.clone(), self.history.clone(), rng.fork("wire"));
        let tables = Dynamo::new(client, Tables::with_prefix(PREFIX));
        let tenants = TenantStore::new(tables.clone());
        let store: Arc<dyn Store> = match self.mutation {
            None => Arc::new(tables),
            Some(mutation) => Arc::new(Sabotaged { inner: tables, mutation }),
        };
        // Readers poll, as they do across functions: nothing notifies them of a commit.
        let config = LedgerConfig { tries: 8, lease_ms: self.lease_ms };
        let ledger = Ledger::new(store, self.queue.clone(), CommitNotifier::none(), env.clone(), config);
        Process { name, ledger, tenants, env, history: self.history.clone() }
    }

    /// The sessions and all their children, as of now.
    pub(crate) async fn family(&self) -> Vec<SessionKey> {
        let mut all = self.sessions.clone();
        let mut at = 0;
        while at < all.len() {
            let children = self.clean.children(&all[at]).await.unwrap_or_default();
            all.extend(children);
            at += 1;
        }
        all
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        self.rest.load(Ordering::Relaxed)
    }
}

impl Process {
    /// The time by this process's clock.
    pub(crate) fn env_now(&self) -> Millis {
        self.env.now()
    }

    /// A worker in this process.
    pub(crate) fn worker(&self, drain: watch::Receiver<bool>) -> Worker {
        let env = self.env.clone();
        Worker {
            ledger: self.ledger.clone(),
            tenants: self.tenants.clone(),
            resources: Arc::new(FixedResources {
                provider: Arc::new(Fake),
                tools: Arc::new(Asking {
                    builtin: Builtin::new(move || env.now().to_string()),
                    history: self.history.clone(),
                }),
            }),
            config: WorkerConfig {
                max_turns: 8,
                no_new_request: Duration::from_secs(6),
                stop: Duration::from_secs(2),
                // It looks seldom, so that a long run costs little.
                look_ms: (1_500, 3_000),
                ..WorkerConfig::default()
            },
            drain,
        }
    }
}

fn fnv(name: &str) -> u64 {
    name.bytes().fold(0x811c_9dc5, |hash: u64, byte| ((hash ^ u64::from(byte)) * 0x0100_0193) & 0xffff_ffff)
}

async fn make_session(store: &Dynamo, number: u64, rng: &mut Rng) -> SessionKey {
    let id = SessionId::parse(format!("s{number}")).expect("a session id");
    let at = SessionKey { tenant: TenantId::parse("t").expect("a tenant id"), session: id.clone() };
    let max_attempts = u32::try_from(rng.pick(1..=4)).expect("a small number");
    let description = SessionDescription { max_attempts, ..SessionDescription::native(id, Millis(number)) };
    let created =
        session_transitions::create(None, &description, Budget::default()).expect("nothing is there yet");
    let transition = created.expect("it is new");
    store.write(&at, None, &transition, &format!("make-{number}")).await.expect("a new session");
    at
}
