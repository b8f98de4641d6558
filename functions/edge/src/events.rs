//! The routes that read the ledger: events page by page (R1), with a wait for clients without a stream, and the session's
//! inputs with their answers (A2).

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use keel_kernel::event::Facts;
use keel_kernel::{Event, Head, Kind, RunStatus, Seq};
use keel_ledger::SessionKey;
use keel_ledger::port::Consistency;
use keel_web::Problem;
use keel_web::params::{At, Query};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::Edge;

/// Events on a page by default.
pub(crate) const PAGE_DEFAULT: u64 = 200;
/// Events on a page at most.
pub(crate) const PAGE_MAX: u64 = 1_000;
/// The longest that a call is held, in seconds: under the gateway's 29.
pub(crate) const WAIT_MAX_S: u64 = 20;
/// Pages read for one call when `kinds` drops most events.
const PAGES_MAX: usize = 10;
/// The pause between two looks of a held call, in milliseconds. A commit in the same process ends it at once (R6).
const LOOK_MS: std::ops::RangeInclusive<u64> = 400..=600;

/// `GET /v1/sessions/{id}/events?after&limit&kinds&wait`
pub(crate) async fn page(State(edge): State<Edge>, At(at): At, query: Query) -> Result<Json<Read>, Problem> {
    query.only(&["after", "limit", "kinds", "wait"])?;
    let after = query.after()?;
    let limit = query.number("limit", 1..=PAGE_MAX)?.unwrap_or(PAGE_DEFAULT) as usize;
    let wait = Duration::from_secs(query.number("wait", 0..=WAIT_MAX_S)?.unwrap_or(0));
    let kinds = query.text("kinds").map(read_kinds).transpose()?;
    let until = Instant::now() + wait;
    let mut commits = edge.ledger.notifier().subscribe(&at);
    let mut read = read_page(&edge, &at, after, limit, kinds.as_deref()).await?;
    if read.next == after {
        // Nothing was read: either nothing is there yet, or `after` is beyond the last event.
        let head = edge.ledger.head(&at).await?;
        if after > head.ledger.seq {
            return Err(Problem::parameter(
                "after",
                format!("is beyond the last event, {}", head.ledger.seq),
            ));
        }
    }
    while read.events.is_empty() && Instant::now() < until {
        let look = Duration::from_millis(edge.ledger.env().pick(LOOK_MS));
        commits.wait(look.min(until.saturating_duration_since(Instant::now()))).await;
        read = read_page(&edge, &at, read.next, limit, kinds.as_deref()).await?;
    }
    Ok(Json(read))
}

fn read_kinds(text: &str) -> Result<Vec<Kind>, Problem> {
    let kinds: Result<Vec<Kind>, _> = text.split(',').map(Kind::parse).collect();
    kinds.map_err(|refusal| Problem::parameter("kinds", refusal.to_string()))
}

/// A page as it is sent. Its events are no `Value`, which would lose the order of their members.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Read {
    events: Vec<Event>,
    #[serde(rename = "nextAfter")]
    next: Seq,
    has_more: bool,
}

/// Reads until there are `limit` events of the kinds and one more, which shows that more follow. The read is strong, so
/// that a client finds what it has written.
async fn read_page(
    edge: &Edge,
    at: &SessionKey,
    after: Seq,
    limit: usize,
    kinds: Option<&[Kind]>,
) -> Result<Read, Problem> {
    let mut read = Read { events: Vec::new(), next: after, has_more: false };
    for _ in 0..PAGES_MAX {
        let page =
            edge.ledger.events(at, read.next, limit + 1 - read.events.len(), Consistency::Strong).await?;
        if let Some(last) = page.events.last() {
            read.next = last.seq;
        }
        let wanted = |event: &Event| kinds.is_none_or(|kinds| kinds.contains(&event.kind));
        read.events.extend(page.events.into_iter().filter(wanted));
        read.has_more = page.has_more;
        if read.events.len() > limit {
            read.events.truncate(limit);
            read.next = read.events[limit - 1].seq;
            read.has_more = true;
            break;
        }
        if !page.has_more {
            break;
        }
    }
    Ok(read)
}

/// `GET /v1/sessions/{id}/inputs`: each input, and what became of it (A2).
pub(crate) async fn inputs(
    State(edge): State<Edge>,
    At(at): At,
    query: Query,
) -> Result<Json<Value>, Problem> {
    query.only(&[])?;
    let head = edge.ledger.head(&at).await?;
    let events = edge.ledger.all_events(&at, Seq::ZERO).await?;
    let mut inputs: Vec<(Seq, Value)> = Vec::new();
    for event in &events {
        match Facts::read(event.kind, &event.payload)? {
            Facts::User(message) => inputs.push((
                event.seq,
                json!({
                    "seq": event.seq,
                    "requestId": event.payload.get("requestId"),
                    "delivery": message.delivery,
                    "answeredBy": null,
                }),
            )),
            Facts::Assistant(message) if !message.failed => {
                for (seq, input) in &mut inputs {
                    if input["answeredBy"].is_null()
                        && message.input_seqs.iter().flatten().any(|named| named == seq)
                    {
                        input["answeredBy"] = json!(event.seq);
                    }
                }
            }
            Facts::Assistant(_)
            | Facts::Tool(_)
            | Facts::Compaction(_)
            | Facts::Finished(_)
            | Facts::External(_)
            | Facts::Reserved => {}
        }
    }
    let rows: Vec<Value> = inputs
        .into_iter()
        .map(|(seq, mut input)| {
            if head.ledger.unanswered.contains(&seq) {
                input["unanswered"] = json!(why_unanswered(&head, seq));
            }
            input
        })
        .collect();
    Ok(Json(json!({ "inputs": rows })))
}

/// Why an input has no answer yet.
fn why_unanswered(head: &Head, seq: Seq) -> &'static str {
    let given = Some(seq) <= head.run.watermark;
    match (head.run.status, head.run.reason) {
        (RunStatus::Running, _) if given => "running",
        (RunStatus::Running, _) => "queued",
        (RunStatus::Waiting, _) if given => "waiting",
        (RunStatus::Waiting, _) => "queued",
        (RunStatus::Pending, _) if head.run.attempts > 0 && given => "failed_attempt",
        (RunStatus::Pending, _) => "queued",
        (RunStatus::Failed, Some(keel_kernel::head::FailReason::Cancelled)) => "cancelled",
        (RunStatus::Failed, Some(keel_kernel::head::FailReason::Closed)) => "closed",
        (RunStatus::Failed | RunStatus::Done | RunStatus::Idle, _) => "failed_run",
    }
}
