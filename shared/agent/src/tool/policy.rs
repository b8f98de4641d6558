//! How a tool may be used: whether a person must consent, how long it may take, what may run beside it. Pure.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A tool's policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Policy {
    /// Whether a person must consent to a call (H3).
    pub approval: ApprovalRule,
    /// Calls of such tools run one after the other, in the order of the message.
    pub sequential: bool,
    /// How long a call may take, in milliseconds.
    pub timeout_ms: u64,
    /// How long a decision stays open, in milliseconds.
    pub approval_ms: u64,
}

/// The longest that a call may take, in milliseconds: well within a function's timeout.
pub const TIMEOUT_MAX_MS: u64 = 600_000;
/// The longest that a decision may stay open, in milliseconds: thirty days.
pub const APPROVAL_MAX_MS: u64 = 30 * 24 * 3_600_000;

impl Default for Policy {
    fn default() -> Self {
        Self {
            approval: ApprovalRule::Never,
            sequential: false,
            timeout_ms: 120_000,
            approval_ms: 24 * 3_600_000,
        }
    }
}

/// Whether a person must consent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalRule {
    /// Never.
    #[default]
    Never,
    /// To every call.
    Always,
    /// To calls whose arguments meet any of these.
    When(Vec<Condition>),
}

/// A condition on arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Condition {
    /// A JSON pointer into the arguments.
    pub pointer: String,
    /// The value is a number above this, or not a number: the receiver may read it as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
    /// The value is one of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<Value>>,
    /// The value is none of these, or there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub none_of: Option<Vec<Value>>,
}

impl Condition {
    /// Whether arguments meet it. Without `above`, `oneOf` and `noneOf`, any value meets it.
    fn is_met(&self, arguments: &Value) -> bool {
        let found = arguments.pointer(&self.pointer);
        let is_in =
            |values: &[Value]| found.is_some_and(|found| values.iter().any(|value| same(value, found)));
        if self.above.is_none() && self.one_of.is_none() && self.none_of.is_none() {
            return found.is_some();
        }
        self.above.is_some_and(|above| {
            found.is_some_and(|found| found.as_f64().is_none_or(|number| number > above))
        }) || self.one_of.as_deref().is_some_and(is_in)
            || self.none_of.as_deref().is_some_and(|values| !is_in(values))
    }
}

/// Numbers by value: `1` is `1.0` (I4).
fn same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one.total_cmp(&other).is_eq(),
        _ => one == other,
    }
}

impl Policy {
    /// H3: whether a call with these arguments needs a person's consent.
    pub fn asks(&self, arguments: &Value) -> bool {
        match &self.approval {
            ApprovalRule::Never => false,
            ApprovalRule::Always => true,
            // Arguments that are not an object cannot be checked.
            ApprovalRule::When(_) if !arguments.is_object() => true,
            ApprovalRule::When(conditions) => conditions.iter().any(|condition| condition.is_met(arguments)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn h3_a_rule_on_arguments_decides_which_calls_ask() {
        let policy =
            |approval: Value| -> Policy { serde_json::from_value(json!({ "approval": approval })).unwrap() };
        let asks = |approval: Value, arguments: Value| policy(approval).asks(&arguments);
        assert!(!asks(json!("never"), json!({})));
        assert!(asks(json!("always"), json!({})));
        let above = json!({ "when": [{ "pointer": "/amount", "above": 100 }] });
        assert!(asks(above.clone(), json!({ "amount": 100.5 })));
        assert!(!asks(above.clone(), json!({ "amount": 100 })));
        assert!(!asks(above.clone(), json!({})));
        assert!(asks(above.clone(), json!({ "amount": "5000" })), "a text may be read as a number");
        assert!(asks(above, json!("not an object")), "what cannot be looked into asks");
        let one_of = json!({ "when": [{ "pointer": "/to/0", "oneOf": ["x", 1] }] });
        assert!(asks(one_of.clone(), json!({ "to": ["x"] })) && asks(one_of.clone(), json!({ "to": [1.0] })));
        assert!(!asks(one_of, json!({ "to": ["y"] })));
        let none_of = json!({ "when": [{ "pointer": "/host", "noneOf": ["a.example"] }] });
        assert!(asks(none_of.clone(), json!({})) && !asks(none_of, json!({ "host": "a.example" })));
        assert!(asks(json!({ "when": [{ "pointer": "/force" }] }), json!({ "force": false })));
    }
}
