//! The end of an environment. Lambda sends SIGTERM half a second before SIGKILL, but only to a function that has an
//! extension registered: so the program registers one of its own that asks for no events.

use std::time::Duration;

use lambda_http::http::{Request, Response};
use lambda_runtime_api_client::{Client, body::Body};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The extension's name; no other of the function may have it.
const NAME: &str = "keel-shutdown";
/// How long work may take to end, of the half second between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(420);
/// Left for the last bytes of a response that has just ended.
const LINGER: Duration = Duration::from_millis(50);
/// Between two checks whether work still goes on.
const LOOK: Duration = Duration::from_millis(5);

/// Waits for the environment's end.
pub struct Shutdown {
    stop: watch::Sender<bool>,
    /// Installed before the first invocation is asked for: until then SIGTERM would end the program at once.
    terminate: Option<Signal>,
}

impl Shutdown {
    /// Asks Lambda for SIGTERM. Must be called before the first invocation is asked for, which ends the init phase.
    pub async fn announced() -> Self {
        if let Err(error) = register().await {
            tracing::warn!(
                error = &*error as &dyn std::error::Error,
                "the shutdown extension was not registered, so SIGTERM will not come"
            );
        }
        let terminate = signal(SignalKind::terminate());
        if let Err(error) = &terminate {
            tracing::warn!(error = error as &dyn std::error::Error, "SIGTERM cannot be received");
        }
        Self { stop: watch::channel(false).0, terminate: terminate.ok() }
    }

    /// Turns true when all work must end. Work that holds a receiver counts as going on.
    pub fn drain(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Waits for SIGTERM, sets the drain signal, and waits until all work that began since this call has ended, or the
    /// time is up.
    pub fn over(self) -> impl Future<Output = ()> {
        // Counted at the call, not at the first poll: an invocation may have begun by then.
        let idle = self.stop.receiver_count();
        async move {
            let Some(mut terminate) = self.terminate else { return std::future::pending().await };
            terminate.recv().await;
            self.stop.send_replace(true);
            let since = Instant::now();
            let busy = self.stop.receiver_count() > idle;
            while self.stop.receiver_count() > idle && since.elapsed() < GRACE {
                tokio::time::sleep(LOOK).await;
            }
            if busy {
                tokio::time::sleep(LINGER).await;
            }
            tracing::info!(busy, ms = since.elapsed().as_millis(), "the environment ends");
        }
    }
}

/// Registers the extension, and leaves it waiting for events that never come.
async fn register() -> Result<(), Failure> {
    let client = Client::builder().build()?;
    let request = Request::post("/2020-01-01/extension/register")
        .header("lambda-extension-name", NAME)
        .header("content-type", "application/json")
        .body(Body::from(r#"{"events":[]}"#))?;
    let registered = accepted(client.call(request).await?)?;
    let id = registered.headers().get("lambda-extension-identifier").ok_or("it was given no identifier")?;
    let next = Request::get("/2020-01-01/extension/event/next")
        .header("lambda-extension-identifier", id)
        .body(Body::empty())?;
    // The init phase lasts until every extension asks for its next event.
    tokio::spawn(async move {
        if let Err(error) = client.call(next).await {
            tracing::debug!(error = &*error as &dyn std::error::Error, "the shutdown extension ended");
        }
    });
    Ok(())
}

fn accepted<B>(response: Response<B>) -> Result<Response<B>, Failure> {
    match response.status() {
        status if status.is_success() => Ok(response),
        status => Err(format!("the answer was {status}").into()),
    }
}
