//! A transition's writes in plain data. They are planned here, rendered as DynamoDB's expressions in `dynamo/plan.rs`, and
//! looked at by tests.
//!
//! The head is never overwritten whole: only what the transition changes is set, and each [`Guard`] becomes a condition on
//! what the transition relies on. So a renewal and an input at the same moment do not disturb each other.

use keel_kernel::{DedupeKey, Guard, Head, KeyName, SideRow, Transition};

use crate::items::{self, attr};
use crate::keys;
use crate::port::SessionKey;
use crate::value::{Item, Key, Value};

/// The tables that a session's items lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// The ledger and its dedupe keys.
    Events,
    /// Heads, descriptions, decisions, children and lists.
    State,
}

/// A transition's writes: all of them or none.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// One for each item, the head's first.
    pub writes: Vec<Write>,
}

/// What is done to one item.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// What the item is to the transition. It says what a failed condition means.
    pub role: Role,
    /// Where the item lies.
    pub table: Table,
    /// Its key.
    pub key: Key,
    /// What is done to it.
    pub action: Action,
    /// What must hold of the item, all of it.
    pub conditions: Vec<Condition>,
}

/// What an item is to a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The head, under its guards.
    Head,
    /// A new event.
    Event,
    /// A dedupe key.
    Key,
    /// V2: the place of a tool result's key, which must not be taken.
    Call,
    /// A row beside the head.
    Row,
}

/// What is done to an item.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The item is written whole; its key stands in it.
    Put(Item),
    /// These attributes are set and removed, and the others stay. Where there is none of either, only the conditions count.
    Update {
        /// The attributes that are set.
        set: Vec<(String, Value)>,
        /// The attributes that are removed.
        remove: Vec<String>,
    },
    /// The item is removed.
    Delete,
    /// Nothing: only the conditions count.
    Check,
}

/// What must hold of an item.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// There is no item with this key.
    NoItem,
    /// The attribute has this value.
    Equals(&'static str, Value),
    /// The attribute is there.
    Present(&'static str),
    /// The attribute is not there.
    Missing(&'static str),
}

/// Plans a transition's writes. `before` is the head that it was decided on; `None`: it makes the session.
pub fn plan(at: &SessionKey, before: Option<&Head>, transition: &Transition) -> Plan {
    let mut writes = Vec::new();
    match before {
        Some(before) if transition.touches_head(before) => writes.push(head_write(at, before, transition)),
        Some(_) => {}
        None => writes.push(new(Role::Row, Table::State, items::head_item(at, &transition.head))),
    }
    let events = transition.events.iter();
    writes.extend(events.map(|event| new(Role::Event, Table::Events, items::event_item(at, event))));
    if let Some(commit) = transition.events.first().map(|event| &event.commit.id) {
        let claims = transition.keys.iter();
        writes.extend(claims.map(|claim| new(Role::Key, Table::Events, items::key_item(at, claim, commit))));
    }
    let taken = |call: &DedupeKey| {
        transition.keys.iter().any(|claim| claim.name == KeyName::ToolCallId && claim.key == *call)
    };
    // Where the call's own result is put by the same transition, that put has the same condition.
    let calls = transition.new_calls.iter().filter(|call| !taken(call));
    writes.extend(calls.map(|call| Write {
        role: Role::Call,
        table: Table::Events,
        key: keys::dedupe_key(at, KeyName::ToolCallId, call),
        action: Action::Check,
        conditions: vec![Condition::NoItem],
    }));
    writes.extend(transition.rows.iter().flat_map(|row| side_row(at, row)));
    Plan { writes }
}

/// Puts an item where there is none yet.
fn new(role: Role, table: Table, item: Item) -> Write {
    let part = |name: &str| item.get(name).and_then(Value::as_text).unwrap_or_default().to_owned();
    let key = Key { pk: part("pk"), sk: part("sk") };
    Write { role, table, key, action: Action::Put(item), conditions: vec![Condition::NoItem] }
}

fn head_write(at: &SessionKey, before: &Head, transition: &Transition) -> Write {
    let (old, mut new) = (items::head_item(at, before), items::head_item(at, &transition.head));
    let remove = old.keys().filter(|name| !new.contains_key(*name)).cloned().collect();
    new.retain(|name, value| old.get(name) != Some(value));
    Write {
        role: Role::Head,
        table: Table::State,
        key: keys::head(at),
        action: Action::Update { set: new.into_iter().collect(), remove },
        conditions: transition.guards.iter().flat_map(conditions).collect(),
    }
}

/// A guard as conditions on the head's attributes. They mean what [`Guard::holds`] says.
fn conditions(guard: &Guard) -> Vec<Condition> {
    let number = |name, number| Condition::Equals(name, Value::Number(number));
    match guard {
        Guard::Seq(seq) => vec![number(attr::SEQ, seq.0)], // L2, S4
        Guard::Open => vec![Condition::Missing(attr::CLOSED)], // C6
        // C2, S3: the epoch decides, in the same write that appends.
        Guard::Lease(owner, epoch) => {
            vec![Condition::Equals(attr::OWNER, Value::Text(owner.to_string())), number(attr::EPOCH, epoch.0)]
        }
        Guard::Epoch(epoch) => vec![number(attr::EPOCH, epoch.0)],
        Guard::LeaseUntil(Some(until)) => vec![number(attr::UNTIL, until.0)],
        Guard::LeaseUntil(None) => vec![Condition::Missing(attr::UNTIL)],
        Guard::Run(run) => vec![Condition::Equals(attr::RUN, items::run_value(run))], // D4
    }
}

fn side_row(at: &SessionKey, row: &SideRow) -> Vec<Write> {
    match row {
        SideRow::NewSession(description) => {
            let listed = items::listed_session(at, description.created());
            let child = description.child_of.as_ref().map(|of| items::child_item(at, of));
            [items::description_item(at, description), listed]
                .into_iter()
                .chain(child)
                .map(|item| new(Role::Row, Table::State, item))
                .collect()
        }
        SideRow::Description(description) => {
            let mut item = items::description_item(at, description);
            item.retain(|name, _| name == items::ROW || name == items::REVISION);
            let before = Value::Number(description.revision.saturating_sub(1));
            vec![Write {
                role: Role::Row,
                table: Table::State,
                key: keys::description(at),
                action: Action::Update { set: item.into_iter().collect(), remove: Vec::new() },
                conditions: vec![Condition::Equals(items::REVISION, before)],
            }]
        }
        SideRow::OpenDecision(decision) => {
            let listed = items::listed_decision(&at.tenant, decision);
            [items::decision_item(at, decision), listed].map(|item| new(Role::Row, Table::State, item)).into()
        }
        SideRow::AnswerDecision(decision) => vec![
            Write {
                role: Role::Row,
                table: Table::State,
                key: keys::decision(at, &decision.id),
                action: Action::Put(items::decision_item(at, decision)),
                conditions: vec![Condition::Present(items::OPEN)],
            },
            unlist(at, decision),
        ],
        SideRow::WithdrawDecision(decision) => vec![unlist(at, decision)],
    }
}

/// Removes a decision from the tenant's list of open ones.
fn unlist(at: &SessionKey, decision: &keel_kernel::decision::Decision) -> Write {
    Write {
        role: Role::Row,
        table: Table::State,
        key: keys::listed_decision(&at.tenant, decision.opened_ms, &decision.id),
        action: Action::Delete,
        conditions: Vec::new(),
    }
}
