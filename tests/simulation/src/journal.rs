//! Records the writes that the store carried out. They are read from the requests below every fault, so their order is the
//! store's, and nothing depends on what a caller was told.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::history::{History, Write};

/// Notes what a successful write did.
pub(crate) fn record(history: &History, operation: &str, request: &Value) {
    match operation {
        "UpdateItem" => head_update(history, request),
        "TransactWriteItems" => {
            let actions = request["TransactItems"].as_array().map(Vec::as_slice).unwrap_or_default();
            let puts = actions.iter().filter_map(|action| action.get("Put"));
            let begins_child =
                |put: &Value| string(&put["Item"]["sk"], "S").is_some_and(|sk| sk.starts_with("child#"));
            if puts.clone().any(begins_child) {
                history.count("a child was begun");
            }
            let fresh = puts.filter(|put| put["TableName"] == "keel-events").all(|put| event(history, put));
            if let Some(update) = actions.iter().find_map(|action| action.get("Update"))
                && fresh
            {
                head_update(history, update);
            }
        }
        "PutItem" | "CreateTable" | "UpdateTimeToLive" => {}
        "DeleteItem" if request["TableName"] == "keel-state" => {}
        other => history.violated("L1", format!("the functions called {other}")),
    }
}

fn string<'a>(value: &'a Value, kind: &str) -> Option<&'a str> {
    value.get(kind)?.as_str()
}

fn number(value: &Value) -> Option<u64> {
    string(value, "N")?.parse().ok()
}

/// Notes an event's put. False: the store had carried it out before, and answered the same token again.
fn event(history: &History, put: &Value) -> bool {
    let item = &put["Item"];
    let pk = string(&item["pk"], "S").unwrap_or_default().to_owned();
    let sk = string(&item["sk"], "S").unwrap_or_default();
    let Some(seq) = sk.strip_prefix("e#").and_then(|seq| seq.parse::<u64>().ok()) else { return true };
    let write = Write::Event {
        seq,
        kind: string(&item["kind"], "S").unwrap_or_default().to_owned(),
        epoch: number(&item["epoch"]),
        commit: string(&item["commit"], "S").unwrap_or_default().to_owned(),
    };
    if history.records().writes.get(&pk).is_some_and(|writes| writes.contains(&write)) {
        history.count("a token was answered again");
        return false;
    }
    append(history, pk, write);
    true
}

fn append(history: &History, pk: String, write: Write) {
    history.note(format_args!("{pk} {write:?}"));
    history.records().writes.entry(pk).or_default().push(write);
    history.written.notify_waiters();
}

/// What an update sets, by attribute.
fn set(update: &Value) -> BTreeMap<&str, &Value> {
    let expression = update["UpdateExpression"].as_str().unwrap_or_default();
    let sets = expression.strip_prefix("SET ").unwrap_or_default();
    let sets = sets.split(" REMOVE ").next().unwrap_or_default();
    let values = &update["ExpressionAttributeValues"];
    sets.split(", ")
        .filter_map(|one| one.split_once(" = "))
        .map(|(name, value)| (name.trim_start_matches('#'), &values[value]))
        .collect()
}

/// The update ends a lease.
fn gives_up_lease(update: &Value) -> bool {
    let expression = update["UpdateExpression"].as_str().unwrap_or_default();
    expression
        .split_once("REMOVE ")
        .is_some_and(|(_, removed)| removed.split(", ").any(|name| name == "#owner"))
}

fn head_update(history: &History, update: &Value) {
    if update["TableName"] != "keel-state" {
        history.violated("L1", format!("an update of {}", update["TableName"]));
        return;
    }
    let pk = string(&update["Key"]["pk"], "S").unwrap_or_default().to_owned();
    let set = set(update);
    let last = |find: fn(&Write) -> Option<u64>| {
        let records = history.records();
        records.writes.get(&pk).into_iter().flatten().rev().find_map(find)
    };
    if let Some(epoch) = set.get("epoch").and_then(|value| number(value)) {
        let ended = |write: &Write| match write {
            Write::Settled { .. } | Write::HandedOver | Write::Parked | Write::Cancelled { .. } => Some(true),
            Write::Claimed { .. } => Some(false),
            Write::Event { .. } | Write::CancelAsked { .. } | Write::Closed => None,
        };
        let before = history.records().writes.get(&pk).into_iter().flatten().rev().find_map(ended);
        if before == Some(false) {
            history.count("a lease was taken over");
        }
        append(history, pk.clone(), Write::Claimed { epoch });
    }
    if set.contains_key("closed") {
        append(history, pk.clone(), Write::Closed);
    }
    let Some(run) = set.get("run").map(|run| &run["M"]) else { return };
    let status = string(&run["status"], "S").unwrap_or_default();
    let seq = last(|write| match write {
        Write::Event { seq, .. } => Some(*seq),
        _ => None,
    });
    let settled = number(&run["settledEpoch"]).filter(|epoch| {
        let before = last(|write| match write {
            Write::Settled { epoch, .. } => Some(*epoch),
            _ => None,
        });
        before != Some(*epoch)
    });
    let asked = last(|write| match write {
        Write::CancelAsked { seq } => Some(*seq),
        _ => None,
    });
    if let Some(epoch) = settled {
        append(history, pk.clone(), Write::Settled { epoch, to: status.to_owned() });
    }
    if string(&run["reason"], "S") == Some("cancelled") {
        // A running attempt was cancelled as of the seq when it was asked to stop; a pending run as of now.
        let up_to = if settled.is_some() { asked } else { seq };
        append(history, pk.clone(), Write::Cancelled { up_to: up_to.unwrap_or(0) });
    }
    if let Some(cancel) = number(&run["cancel"])
        && (status == "running" || (status == "pending" && !set.contains_key("epoch")))
        && asked != Some(cancel)
    {
        history.count("a running attempt was asked to stop");
        append(history, pk.clone(), Write::CancelAsked { seq: cancel });
    }
    if status == "waiting" {
        history.count("a run was parked");
        append(history, pk, Write::Parked);
    } else if status == "pending" && gives_up_lease(update) && settled.is_none() {
        history.count("a run was handed over");
        append(history, pk, Write::HandedOver);
    }
}
