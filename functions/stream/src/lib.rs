//! The ledger as server-sent events (R2–R6): every committed event once and in order, across any number of reconnects,
//! and partials beside them for who asks.
//!
//! One query after the cursor is both poll and fetch. What a stream costs is bounded: it ends by itself after its life,
//! always by a drain frame, and a plain `EventSource` comes back to the next one.

mod feed;
mod frame;
mod pace;
mod single_flight;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use http::{HeaderMap, header};
use keel_ledger::Ledger;
use keel_web::params::{At, Query};
use keel_web::service::gated;
use keel_web::{Auth, Problem, Scope, cursor};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument as _;

pub use feed::HEARTBEAT;
use feed::{Feed, Looks, Wanted};
pub use pace::Pace;

/// How long streams live and how often they look.
#[derive(Clone, Copy, Debug)]
pub struct StreamConfig {
    /// A stream ends after this.
    pub life: Duration,
    /// A stream ends after this when no run is live.
    pub idle_life: Duration,
    /// A stream ends after this many bytes.
    pub bytes: usize,
    /// How often it looks while a run is live and has just said something, in milliseconds.
    pub look_live_ms: (u64, u64),
    /// How often it looks at the least while a run is live.
    pub look_silent_ms: u64,
    /// How often it looks at the least, in milliseconds; under the heartbeat.
    pub look_idle_ms: u64,
}

impl Default for StreamConfig {
    /// What a Lambda function can afford: nothing notifies it of commits, so it polls.
    fn default() -> Self {
        Self {
            life: Duration::from_secs(300),
            idle_life: Duration::from_secs(55),
            bytes: 5_500_000,
            look_live_ms: (50, 100),
            look_silent_ms: 1_000,
            look_idle_ms: 2_000,
        }
    }
}

/// When this invocation must be over; a Lambda wiring puts it into a request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(pub Instant);

/// What the routes work with.
#[derive(Clone)]
pub struct Streams {
    /// The ledger's verbs.
    pub ledger: Ledger,
    /// Who calls.
    pub auth: Auth,
    /// How long and how often.
    pub config: StreamConfig,
    /// Turns true when every stream must end (SIGTERM).
    pub drain: watch::Receiver<bool>,
}

/// The route, behind the `client` scope.
pub fn router(streams: Streams) -> Router {
    let auth = streams.auth.clone();
    let state = (streams, Arc::new(Looks::default()));
    let route = Router::new().route("/v1/sessions/{id}/events/stream", get(open)).with_state(state);
    gated(route, &auth, Scope::Client)
}

/// `GET /v1/sessions/{id}/events/stream?after&partials&until`
async fn open(
    State((streams, looks)): State<(Streams, Arc<Looks>)>,
    At(at): At,
    query: Query,
    deadline: Option<Extension<Deadline>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    query.only(&["after", "partials", "until"])?;
    let (after, given_by) = cursor::resume(&query, &headers)?;
    let partials = query.flag("partials")?;
    let until_settled = match query.text("until") {
        None => false,
        Some("settled") => true,
        Some(_) => return Err(Problem::parameter("until", "must be \"settled\"")),
    };
    let head = streams.ledger.head(&at).await?;
    if after > head.ledger.seq {
        return Err(Problem::parameter(given_by, format!("is beyond the last event, {}", head.ledger.seq)));
    }
    let deadline = deadline.map(|Extension(Deadline(at))| at);
    let wanted = Wanted { after, partials, until_settled };
    let feed = Feed::open(streams, looks, at.clone(), &head, wanted, deadline).await?;
    // The body is read after the request's own span has ended.
    let span = tracing::error_span!("stream", tenant = %at.tenant, session = %at.session);
    let body = stream::unfold(feed, move |mut feed| {
        let next = async move {
            let bytes = feed.next().await?;
            Some((Ok::<_, Infallible>(bytes), feed))
        };
        next.instrument(span.clone())
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::from_stream(body)).into_response())
}
