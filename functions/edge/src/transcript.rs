//! The route of the transcript: the context that a model would see, what was left out of it, and why (L5).

use axum::Json;
use axum::extract::State;
use keel_kernel::transcript::{Entry, History, LeftOut};
use keel_kernel::{Event, Head, RunStatus, Seq};
use keel_web::Problem;
use keel_web::params::{At, Query};
use serde::Serialize;
use serde_json::{Value, json};

use crate::Edge;

/// `GET /v1/sessions/{id}/transcript`
pub(crate) async fn show(State(edge): State<Edge>, At(at): At, query: Query) -> Result<Json<Shown>, Problem> {
    query.only(&[])?;
    let head = edge.ledger.head(&at).await?;
    let mut history = History::default();
    for event in edge.ledger.all_events(&at, Seq::ZERO).await? {
        history.push(event)?;
    }
    Ok(Json(shown(&history, &head)))
}

/// A transcript on the wire. Its events are no `Value`, which would lose the order of their members.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown {
    seq: Seq,
    entries: Vec<ShownEntry>,
    input_seqs: Vec<Seq>,
    owed_turn: bool,
    open_calls: Vec<Value>,
    left_out: Vec<Value>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ShownEntry {
    Event(Event),
    /// An entry of the context that is not in the ledger.
    Made(Value),
}

/// What the next request would show: in the live run, or in the run that a claim would begin now (A5).
fn shown(history: &History, head: &Head) -> Shown {
    let begun = match head.run.status {
        RunStatus::Running | RunStatus::Pending | RunStatus::Waiting => head.run.watermark,
        RunStatus::Idle | RunStatus::Done | RunStatus::Failed => None,
    };
    let transcript = history.transcript(begun.or(Some(history.seq())));
    let entry = |entry: &Entry<'_>| match entry {
        Entry::Summary(event) | Entry::User(event) | Entry::Assistant(event) | Entry::ToolResult(event) => {
            ShownEntry::Event((*event).clone())
        }
        Entry::Orphan(call) => ShownEntry::Made(json!({
            "kind": "tool.result",
            "payload": { "toolCallId": call.id, "toolName": call.name, "isError": true },
            "made": "the call has no result",
        })),
    };
    let why = |why: LeftOut| match why {
        LeftOut::Failed => "failed",
        LeftOut::Waiting => "waiting",
        LeftOut::Compacted => "compacted",
    };
    Shown {
        seq: history.seq(),
        entries: transcript.entries.iter().map(entry).collect(),
        input_seqs: transcript.presented.clone(),
        owed_turn: transcript.owed_turn,
        open_calls: transcript
            .open_calls
            .iter()
            .map(|open| json!({ "toolCallId": open.call.id, "toolName": open.call.name }))
            .collect(),
        left_out: transcript
            .left_out
            .iter()
            .map(|(seq, left)| json!({ "seq": seq, "why": why(*left) }))
            .collect(),
    }
}
