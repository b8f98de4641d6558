//! DynamoDB in this process: the real AWS SDK, no socket, no second process, no account.
//!
//! What an [`Embedded::client`] sends is serialised, signed, answered and parsed exactly as it would be against
//! DynamoDB; only the connector differs, and below it the store is dynoxide's (SQLite, in memory or a file). So code
//! that runs here is the code that runs in the cloud, its expressions and its error handling included.
//!
//! What this store cannot show: it serialises all writes, so no request is ever throttled and no transaction ever meets
//! `TransactionConflict`. [`wire::tapped`] puts both on the wire.

mod connector;
mod operations;
pub mod tables;
pub mod wire;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, Config, Credentials, IdentityCache, Region, SharedAsyncSleep, SharedHttpClient,
    StalledStreamProtectionConfig,
};
use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use dynoxide::{Database, DynoxideError};

use connector::Connector;

/// Where the database does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// On the task that asked, without yielding. One seed then gives one order of events, which a simulation with
    /// paused time lives on. A server would stop its other tasks for the length of every write to disk.
    Inline,
    /// On the runtime's blocking threads, for a server. A request whose answer nobody waits for any more still runs to
    /// its end, as it would across a network.
    Blocking,
}

/// A DynamoDB of this process. Clones share one store.
#[derive(Clone)]
pub struct Embedded {
    database: Database,
    dispatch: Dispatch,
}

impl Embedded {
    /// An empty store that is gone with its last clone; [`Dispatch::Inline`].
    pub fn memory() -> Result<Self, OpenError> {
        let database = Database::memory().map_err(OpenError::Memory)?;
        Ok(Self { database, dispatch: Dispatch::Inline })
    }

    /// The store in the file at `path`, which is created with its folder where absent; [`Dispatch::Blocking`].
    ///
    /// Every commit reaches the disk before it is answered (WAL, full sync). The memory of `ClientRequestToken`s is
    /// not in the file: across a restart only the items themselves show what was written, as in DynamoDB once
    /// ten minutes have passed.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let name = path.to_str().ok_or_else(|| OpenError::Name { path: path.to_owned() })?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .map_err(|source| OpenError::Folder { path: folder.to_owned(), source })?;
        }
        let database =
            Database::new(name).map_err(|source| OpenError::File { path: path.to_owned(), source })?;
        Ok(Self { database, dispatch: Dispatch::Blocking })
    }

    /// The same store, worked as `dispatch` says.
    #[must_use]
    pub fn with_dispatch(self, dispatch: Dispatch) -> Self {
        Self { dispatch, ..self }
    }

    /// A client of this store.
    pub fn client(&self) -> Client {
        client_over(self.http_client())
    }

    /// The connector alone, for a caller that wraps it with faults or counters and passes the wrapper to
    /// [`client_over`]. The request runs when its future is polled, not when `call` returns: a wrapper that drops the
    /// future unpolled has a request that never happened, one that awaits it and drops the answer has a write whose
    /// outcome its caller cannot know.
    pub fn http_client(&self) -> SharedHttpClient {
        SharedHttpClient::new(Connector::new(self.database.clone(), self.dispatch))
    }

    /// One request as DynamoDB's endpoint gets it: the operation's name from `x-amz-target`, and the JSON body. The
    /// answer's status and JSON body.
    pub async fn call(&self, target: &str, body: Vec<u8>) -> (u16, String) {
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let database = self.database.clone();
        let run = move || operations::run(&database, &operation, &body);
        let response = match self.dispatch {
            Dispatch::Inline => run(),
            Dispatch::Blocking => match tokio::task::spawn_blocking(run).await {
                Ok(response) => response,
                Err(_) => operations::ApiResponse { status: 500, body: "{}".to_owned() },
            },
        };
        (response.status, response.body)
    }

    /// Deletes the items that are past their time to live; how many there were. The store never does so by itself;
    /// DynamoDB does within days, so no reader may count on it.
    pub async fn sweep_expired(&self) -> Result<usize, SweepError> {
        let database = self.database.clone();
        match self.dispatch {
            Dispatch::Inline => database.sweep_ttl().map_err(SweepError::Store),
            Dispatch::Blocking => match tokio::task::spawn_blocking(move || database.sweep_ttl()).await {
                Ok(swept) => swept.map_err(SweepError::Store),
                Err(source) => Err(SweepError::Ended(source)),
            },
        }
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("dispatch", &self.dispatch).finish_non_exhaustive()
    }
}

/// A client over `http_client`, set up as [`Embedded::client`]'s is.
///
/// The SDK neither retries nor times out here: the callers' own rules about doubtful outcomes are what this store is
/// for, and with paused time a timer that nothing needs is the one that fires. Credentials and endpoint are plainly
/// invented, so a request that left the process by mistake would reach nobody and prove nothing.
pub fn client_over(http_client: SharedHttpClient) -> Client {
    client_at("http://embedded.invalid", http_client, TimeoutConfig::disabled())
}

/// A client of a DynamoDB at some address that takes any credentials, as emulators do. It retries nothing by itself.
pub fn client_at(endpoint: &str, http_client: SharedHttpClient, timeouts: TimeoutConfig) -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("local"))
        .endpoint_url(endpoint)
        .credentials_provider(Credentials::new(
            "not-a-real-key-id",
            "not-a-real-secret",
            None,
            None,
            "keel-embedded",
        ))
        // The default cache works with a clock and a load timeout; these credentials need neither.
        .identity_cache(IdentityCache::no_cache())
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts)
        .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .http_client(http_client)
        .build();
    Client::from_conf(config)
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The in-memory store could not be made.
    #[error("could not make a store in memory")]
    Memory(#[source] DynoxideError),
    /// SQLite takes its path as UTF-8.
    #[error("the store's path {} is not UTF-8", path.display())]
    Name {
        /// The path, as given.
        path: PathBuf,
    },
    /// The folder of the file could not be created.
    #[error("could not create the store's folder {}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the file system said.
        #[source]
        source: io::Error,
    },
    /// The file could not be opened, or is no store of this version.
    #[error("could not open the store {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the store said.
        #[source]
        source: DynoxideError,
    },
}

/// Why a sweep of expired items ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The store failed.
    #[error("the store could not delete its expired items")]
    Store(#[source] DynoxideError),
    /// The blocking task died or the runtime is going down.
    #[error("the sweep of expired items was ended")]
    Ended(#[source] tokio::task::JoinError),
}
