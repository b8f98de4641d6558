//! What an eventual read may answer. A page may lack its newest items, or have a gap where an item has not arrived yet. A
//! single item may be an earlier version.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::rng::Rng;

/// Of a thousand eventual reads, how many may get an answer that is out of date.
const STALE: u64 = 150;

/// An earlier answer, if this read gets one.
pub(crate) fn answer(
    rng: &mut Rng,
    operation: &str,
    request: &Value,
    now: &Value,
    seen: &mut BTreeMap<String, Value>,
) -> Option<Value> {
    match operation {
        "GetItem" => {
            let before = seen.insert(request["Key"].to_string(), now.clone());
            before.filter(|before| rng.chance(STALE) && before != now)
        }
        "Query" => page(rng, now),
        _ => None,
    }
}

fn page(rng: &mut Rng, now: &Value) -> Option<Value> {
    let items = now["Items"].as_array().filter(|items| !items.is_empty())?;
    if !rng.chance(STALE) {
        return None;
    }
    let mut items = items.clone();
    let last = items.len() as u64 - 1;
    let at = usize::try_from(rng.pick(0..=last)).expect("an index");
    if rng.chance(300) {
        items.remove(at);
    } else {
        items.truncate(at);
    }
    let mut past = now.clone();
    past["Count"] = items.len().into();
    past["ScannedCount"] = items.len().into();
    past["Items"] = items.into();
    Some(past)
}
