//! A plan's writes, rendered as DynamoDB's expressions.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
    Update,
};

use super::Tables;
use super::convert::{sdk_item, sdk_key, sdk_value};
use crate::plan::{Action, Condition, Plan, Role, Table, Write};
use crate::value::Value;

impl Tables {
    pub(super) fn name(&self, table: Table) -> &str {
        match table {
            Table::Events => &self.events,
            Table::State => &self.state,
        }
    }
}

/// A plan's writes as the items of one transaction. It is public for measurements of bare calls.
///
/// # Errors
/// A request that lacks a required part; no plan makes one.
pub fn transaction(tables: &Tables, plan: Plan) -> Result<Vec<TransactWriteItem>, BuildError> {
    plan.writes.into_iter().map(|write| action(tables, write)).collect()
}

/// A write as an item of a transaction.
fn action(tables: &Tables, write: Write) -> Result<TransactWriteItem, BuildError> {
    let table = tables.name(write.table).to_owned();
    let returns = returned(write.role);
    let Rendered { update, condition, names, values } = Rendered::of(&write);
    let (names, values) = (filled(names), filled(values));
    let item = TransactWriteItem::builder();
    Ok(match write.action {
        Action::Put(new) => item
            .put(
                Put::builder()
                    .table_name(table)
                    .set_item(Some(sdk_item(new)))
                    .set_condition_expression(condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .set_return_values_on_condition_check_failure(returns)
                    .build()?,
            )
            .build(),
        Action::Update { .. } if update.is_some() => item
            .update(
                Update::builder()
                    .table_name(table)
                    .set_key(Some(sdk_key(write.key)))
                    .set_update_expression(update)
                    .set_condition_expression(condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .set_return_values_on_condition_check_failure(returns)
                    .build()?,
            )
            .build(),
        // In a transaction an update that changes nothing is a check.
        Action::Update { .. } | Action::Check => item
            .condition_check(
                ConditionCheck::builder()
                    .table_name(table)
                    .set_key(Some(sdk_key(write.key)))
                    .set_condition_expression(condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .set_return_values_on_condition_check_failure(returns)
                    .build()?,
            )
            .build(),
        Action::Delete => item
            .delete(
                Delete::builder()
                    .table_name(table)
                    .set_key(Some(sdk_key(write.key)))
                    .set_condition_expression(condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .build()?,
            )
            .build(),
    })
}

/// What a failed condition returns of the item: all of it, except for a row beside the head, which the command reads again.
pub(super) fn returned(role: Role) -> Option<ReturnValuesOnConditionCheckFailure> {
    match role {
        Role::Head | Role::Event | Role::Key | Role::Call => {
            Some(ReturnValuesOnConditionCheckFailure::AllOld)
        }
        Role::Row => None,
    }
}

/// The map, or `None` where it is empty: DynamoDB refuses empty maps.
pub(super) fn filled<T>(map: BTreeMap<String, T>) -> Option<std::collections::HashMap<String, T>> {
    (!map.is_empty()).then(|| map.into_iter().collect())
}

/// A write's expressions.
pub(super) struct Rendered {
    /// `SET … REMOVE …`; `None` where there is neither.
    pub(super) update: Option<String>,
    /// The conditions, joined; `None` where there is none.
    pub(super) condition: Option<String>,
    /// `#n` to attribute names.
    pub(super) names: BTreeMap<String, String>,
    /// `:v` to values.
    pub(super) values: BTreeMap<String, AttributeValue>,
}

impl Rendered {
    pub(super) fn of(write: &Write) -> Rendered {
        let mut e = Expression::default();
        let mut update = Vec::new();
        if let Action::Update { set, remove } = &write.action {
            let set: Vec<String> = set.iter().map(|(name, value)| e.equals(name, value)).collect();
            let remove: Vec<String> = remove.iter().map(|name| e.name(name)).collect();
            if !set.is_empty() {
                update.push(format!("SET {}", set.join(", ")));
            }
            if !remove.is_empty() {
                update.push(format!("REMOVE {}", remove.join(", ")));
            }
        }
        let conditions: Vec<String> =
            write.conditions.iter().map(|condition| e.condition(condition)).collect();
        Rendered {
            update: (!update.is_empty()).then(|| update.join(" ")),
            condition: (!conditions.is_empty()).then(|| conditions.join(" AND ")),
            names: e.names,
            values: e.values,
        }
    }
}

/// The placeholders of one write: each name and each value once.
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

    fn value(&mut self, value: &Value) -> String {
        let value = sdk_value(value.clone());
        if let Some((placeholder, _)) = self.values.iter().find(|(_, known)| **known == value) {
            return placeholder.clone();
        }
        let placeholder = format!(":v{}", self.values.len());
        self.values.insert(placeholder.clone(), value);
        placeholder
    }

    fn equals(&mut self, name: &str, value: &Value) -> String {
        let (name, value) = (self.name(name), self.value(value));
        format!("{name} = {value}")
    }

    fn condition(&mut self, condition: &Condition) -> String {
        match condition {
            Condition::NoItem => "attribute_not_exists(pk)".to_owned(),
            Condition::Equals(name, value) => self.equals(name, value),
            Condition::Present(name) => format!("attribute_exists({})", self.name(name)),
            Condition::Missing(name) => format!("attribute_not_exists({})", self.name(name)),
        }
    }
}
