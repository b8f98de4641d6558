//! The ledger as server-sent events (R2–R6): every committed event once and in order, across any number of reconnects. A
//! client that asks for them gets partials too.
//!
//! One query after the cursor both polls and fetches. What a stream costs is limited: it ends by itself after a while, with
//! a drain frame, and a plain `EventSource` opens the next one.

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
    /// A stream ends after this time.
    pub life: Duration,
    /// A stream ends after this time without a live run.
    pub idle_life: Duration,
    /// A stream ends after this many bytes.
    pub bytes: usize,
    /// The shortest pause between two looks, from and to, in milliseconds: after something new came while a run is live.
    pub look_live_ms: (u64, u64),
    /// The longest pause while a run is live and nothing comes, in milliseconds.
    pub look_silent_ms: u64,
    /// The longest pause of all, in milliseconds; less than the heartbeat's.
    pub look_idle_ms: u64,
}

impl Default for StreamConfig {
    /// For a Lambda function: it is not notified of commits, so it polls.
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

/// When this invocation must have ended. The Lambda program puts it into each request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(pub Instant);

/// What the routes work with.
#[derive(Clone)]
pub struct Streams {
    /// The ledger.
    pub ledger: Ledger,
    /// How callers are recognised.
    pub auth: Auth,
    /// How long streams live and how often they look.
    pub config: StreamConfig,
    /// Turns true when every stream must end (SIGTERM).
    pub drain: watch::Receiver<bool>,
}

/// The route, which needs the scope `client`.
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
