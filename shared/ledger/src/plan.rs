//! A transition as a write in plain data: built here, sent by [`crate::dynamo`], and looked at by tests.
//!
//! The head is never overwritten whole: only what the transition changes is set, and each [`Guard`] becomes a condition on
//! what the transition rests on. So a renewal and an input at the same moment do not disturb each other.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use keel_kernel::commit::Guard;
use keel_kernel::{Head, Transition};

use crate::dynamo::items::{self, Item, attr};
use crate::dynamo::keys;
use crate::port::SessionKey;

/// A write of a transition.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The change of the head.
    pub head: HeadUpdate,
    /// The new events and dedupe keys, each only where nothing stands yet.
    pub puts: Vec<Item>,
    /// Keys (pk, sk) that must not exist (V2).
    pub absent: Vec<(String, String)>,
}

/// An UpdateItem on the head.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadUpdate {
    /// The head's key.
    pub key: (String, String),
    /// `SET … REMOVE …`; empty where the transition only wants its guards to hold.
    pub update: String,
    /// The guards.
    pub condition: String,
    /// `#n` to attribute names.
    pub names: BTreeMap<String, String>,
    /// `:v` to values.
    pub values: BTreeMap<String, AttributeValue>,
}

/// Plans a transition's write.
pub fn plan(at: &SessionKey, before: &Head, transition: &Transition) -> Plan {
    let mut puts: Vec<Item> = transition.events.iter().map(|event| items::event_item(at, event)).collect();
    if let Some(commit) = transition.events.first().map(|event| &event.commit.id) {
        puts.extend(transition.keys.iter().map(|claim| items::key_item(at, claim, commit)));
    }
    let taken: Vec<String> =
        transition.keys.iter().map(|claim| keys::dedupe_key(claim.name, &claim.key)).collect();
    let absent = transition
        .new_calls
        .iter()
        .map(|call| keys::dedupe_key(keel_kernel::KeyName::ToolCallId, call))
        .filter(|sk| !taken.contains(sk)) // its own put says the same
        .map(|sk| (at.to_string(), sk))
        .collect();
    Plan { head: head_update(at, before, transition), puts, absent }
}

fn head_update(at: &SessionKey, before: &Head, transition: &Transition) -> HeadUpdate {
    let (old, new) = (items::head_attributes(at, before), items::head_attributes(at, &transition.head));
    let mut expression = Expression::default();
    let mut set = Vec::new();
    let mut remove = Vec::new();
    for (name, value) in &new {
        if old.get(name) != Some(value) {
            let (name, value) = (expression.name(name), expression.value(value.clone()));
            set.push(format!("{name} = {value}"));
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        remove.push(expression.name(name));
    }
    let mut update = Vec::new();
    if !set.is_empty() {
        update.push(format!("SET {}", set.join(", ")));
    }
    if !remove.is_empty() {
        update.push(format!("REMOVE {}", remove.join(", ")));
    }
    let condition = transition
        .guards
        .iter()
        .map(|guard| condition(&mut expression, guard))
        .collect::<Vec<_>>()
        .join(" AND ");
    HeadUpdate {
        key: keys::head(at),
        update: update.join(" "),
        condition,
        names: expression.names,
        values: expression.values,
    }
}

/// A guard as a condition on the head's attributes.
fn condition(e: &mut Expression, guard: &Guard) -> String {
    match guard {
        Guard::Seq(seq) => e.equals(attr::SEQ, items::number(seq.0)), // L2, S4
        Guard::Open => {
            let closed = e.name(attr::CLOSED);
            format!("attribute_not_exists({closed})") // C6
        }
        // C2, S3: the epoch decides, in the same write that appends.
        Guard::Lease(owner, epoch) => {
            let owner = e.equals(attr::OWNER, AttributeValue::S(owner.to_string()));
            let epoch = e.equals(attr::EPOCH, items::number(epoch.0));
            format!("{owner} AND {epoch}")
        }
        Guard::Epoch(epoch) => e.equals(attr::EPOCH, items::number(epoch.0)),
        Guard::LeaseUntil(Some(until)) => e.equals(attr::UNTIL, items::number(until.0)),
        Guard::LeaseUntil(None) => {
            let until = e.name(attr::UNTIL);
            format!("attribute_not_exists({until})")
        }
        Guard::Run(run) => e.equals(attr::RUN, items::run_value(run)), // D4
    }
}

/// Placeholders, each name and each value once.
#[derive(Default)]
struct Expression {
    names: BTreeMap<String, String>,
    values: BTreeMap<String, AttributeValue>,
}

impl Expression {
    fn name(&mut self, name: &str) -> String {
        let placeholder = format!("#{name}");
        self.names.insert(placeholder.clone(), name.to_owned());
        placeholder
    }

    fn value(&mut self, value: AttributeValue) -> String {
        if let Some((placeholder, _)) = self.values.iter().find(|(_, known)| **known == value) {
            return placeholder.clone();
        }
        let placeholder = format!(":v{}", self.values.len());
        self.values.insert(placeholder.clone(), value);
        placeholder
    }

    fn equals(&mut self, name: &str, value: AttributeValue) -> String {
        let (name, value) = (self.name(name), self.value(value));
        format!("{name} = {value}")
    }
}
