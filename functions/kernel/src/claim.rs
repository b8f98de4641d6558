//! `POST /v1/runs/claim`: claims a run for the caller, one that is pending or whose owner's lease has run out. 204: there
//! is none.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use keel_kernel::run::claimable;
use keel_kernel::{Event, Millis, OwnerId, Seq, SessionId, TenantId};
use keel_ledger::keys::DUE_SHARDS;
use keel_ledger::port::Consistency;
use keel_ledger::{Claimed, SessionKey};
use keel_web::{Body, Caller, Problem};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{Owners, lease};

/// The longest that a call waits for a run, in seconds: less than the gateway's 29.
const WAIT_MAX_S: u64 = 20;
/// The pause between two looks of a waiting call, in milliseconds.
const LOOK_MS: std::ops::RangeInclusive<u64> = 300..=600;
/// Sessions on one page of the due index.
const PAGE: usize = 100;
/// Pages of the due index that one look reads at most.
const PAGES: usize = 64;
/// Events that come with a claim at most. An owner reads the others page by page.
const EVENTS: usize = 1_000;

/// `{owner, sessionId?, waitSeconds?}`
pub(crate) async fn claim(
    State(owners): State<Owners>,
    caller: Caller,
    body: Body,
) -> Result<Response, Problem> {
    body.only(&["owner", "sessionId", "waitSeconds"])?;
    let owner = body.text("owner")?.ok_or_else(|| Problem::member("/owner", "is required"))?;
    let owner = OwnerId::parse(owner).map_err(|e| Problem::member("/owner", e.to_string()))?;
    let session = body.text("sessionId")?.map(SessionId::parse).transpose();
    let session = session.map_err(|e| Problem::member("/sessionId", e.to_string()))?;
    let wait =
        body.optional("waitSeconds", &format!("must be a whole number from 0 to {WAIT_MAX_S}"), |value| {
            value.as_u64().filter(|seconds| *seconds <= WAIT_MAX_S)
        })?;
    let until = Instant::now() + Duration::from_secs(wait.unwrap_or(0));
    let only = session.map(|session| SessionKey { tenant: caller.tenant.clone(), session });
    loop {
        if let Some((at, claimed)) = look(&owners, &caller.tenant, only.as_ref(), &owner).await? {
            return claimed_run(&owners, &at, &claimed).await;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        let look = Duration::from_millis(owners.ledger.env().pick(LOOK_MS));
        tokio::time::sleep(look.min(left)).await;
    }
}

/// Tries to claim the session `only`, or else the tenant's due sessions, in each partition of the index the longest due
/// first.
async fn look(
    owners: &Owners,
    tenant: &TenantId,
    only: Option<&SessionKey>,
    owner: &OwnerId,
) -> Result<Option<(SessionKey, Claimed)>, Problem> {
    if let Some(at) = only {
        return Ok(owners.ledger.claim(at, owner).await?.ok().map(|claimed| (at.clone(), claimed)));
    }
    // The first partition is random, so that owners who ask at the same time do not all compete for the same runs.
    let first = owners.ledger.env().pick(0..=u64::from(DUE_SHARDS - 1));
    let (mut shard, mut after, mut ended) = (u8::try_from(first).unwrap_or(0), None, 0);
    for _ in 0..PAGES {
        let page = owners.ledger.due(shard, Millis(u64::MAX), PAGE, after).await?;
        for (at, head) in page.sessions {
            if at.tenant == *tenant
                && claimable(&head, owners.ledger.env().now()).is_ok()
                && let Ok(claimed) = owners.ledger.claim(&at, owner).await?
            {
                return Ok(Some((at, claimed)));
            }
        }
        after = page.next;
        if after.is_none() {
            (shard, ended) = ((shard + 1) % DUE_SHARDS, ended + 1);
        }
        if ended == DUE_SHARDS {
            break;
        }
    }
    Ok(None)
}

/// A claimed run on the wire. Its events are no `Value`, which would lose the order of their members.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Won {
    session: Value,
    lease: Value,
    head: Value,
    events: Vec<Event>,
    has_more: bool,
}

async fn claimed_run(owners: &Owners, at: &SessionKey, claimed: &Claimed) -> Result<Response, Problem> {
    let described = owners.ledger.description(at).await?.ok_or_else(Problem::no_session)?;
    let page = owners.ledger.events(at, Seq::ZERO, EVENTS, Consistency::Strong).await?;
    Ok(Json(Won {
        session: json!({
            "sessionId": at.session, "model": described.model, "system": described.system,
            "metadata": described.metadata,
        }),
        lease: lease::view(&claimed.token, &claimed.head),
        head: lease::head(&claimed.head),
        has_more: page.has_more,
        events: page.events,
    })
    .into_response())
}
