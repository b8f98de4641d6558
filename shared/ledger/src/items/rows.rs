//! The rows beside the head, each a value as JSON text: descriptions, decisions, lists, settings.

use keel_kernel::decision::Decision;
use keel_kernel::{ChildOf, Millis, SessionDescription, TenantId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::reader::{Reader, number, text, versioned};
use crate::keys;
use crate::port::{SessionKey, StoreError};
use crate::value::{Item, Key, Value};

/// The attribute that holds a row's value as JSON text. No condition looks inside.
pub const ROW: &str = "row";
/// A description's revision, beside its row so that a condition can see it.
pub const REVISION: &str = "rev";
/// Present on a decision's row while nobody has answered it, so that a condition can see it.
pub const OPEN: &str = "open";

/// A row that holds a value as JSON text.
///
/// # Panics
/// If the value does not serialise. Rows consist of texts and numbers, which do.
pub fn row_item<T: Serialize>(key: Key, row: &T) -> Item {
    let row = serde_json::to_string(row).expect("a row of strings and numbers serialises");
    let mut item = versioned(key);
    item.insert(ROW.to_owned(), text(row));
    item
}

/// The value of a row.
///
/// # Errors
/// [`StoreError::Corrupt`].
pub fn read_row<T: DeserializeOwned>(item: &Item) -> Result<T, StoreError> {
    Reader::versioned(item)?.parse(ROW, serde_json::from_str)
}

/// The item of a session's description.
pub fn description_item(at: &SessionKey, description: &SessionDescription) -> Item {
    let mut item = row_item(keys::description(at), description);
    item.insert(REVISION.to_owned(), number(description.revision));
    item
}

/// A session's entry in its tenant's list.
pub fn listed_session(at: &SessionKey, created: Millis) -> Item {
    versioned(keys::listed_session(at, created))
}

/// A child's entry in its parent's list (H4).
pub fn child_item(child: &SessionKey, of: &ChildOf) -> Item {
    let parent = SessionKey { tenant: child.tenant.clone(), session: of.parent.clone() };
    versioned(keys::child(&parent, &child.session))
}

/// The item of a decision (H2).
pub fn decision_item(at: &SessionKey, decision: &Decision) -> Item {
    let mut item = row_item(keys::decision(at, &decision.id), decision);
    if decision.given.is_none() {
        item.insert(OPEN.to_owned(), Value::Flag(true));
    }
    item
}

/// An open decision's entry in its tenant's list.
pub fn listed_decision(tenant: &TenantId, decision: &Decision) -> Item {
    row_item(keys::listed_decision(tenant, decision.opened_ms, &decision.id), &decision.id)
}
