//! Checks arguments against a tool's JSON Schema, before the call.

use jsonschema::Validator;
use serde_json::Value;

/// How many faults a model is shown at once.
const FAULTS_MAX: usize = 5;

/// Reads a schema. References stay within it: nothing is fetched.
///
/// # Errors
/// It is no JSON Schema, as a sentence's end.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    compile(schema).map(drop)
}

pub(crate) fn compile(schema: &Value) -> Result<Validator, String> {
    jsonschema::validator_for(schema).map_err(|error| format!("is no JSON Schema: {error}"))
}

/// What is wrong with the arguments, so that the model can correct them; `None`: nothing is.
pub(crate) fn faults(validator: &Validator, arguments: &Value) -> Option<String> {
    let empty = serde_json::json!({});
    let arguments = if arguments.is_null() { &empty } else { arguments };
    let faults: Vec<String> = validator
        .iter_errors(arguments)
        .take(FAULTS_MAX)
        .map(|error| {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { "the arguments".to_owned() } else { place };
            format!("{place}: {error}")
        })
        .collect();
    (!faults.is_empty())
        .then(|| format!("not run: the arguments do not fit the tool's schema: {}", faults.join("; ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_checked_and_the_place_is_named() {
        let schema = json!({
            "type": "object", "required": ["amount"], "additionalProperties": false,
            "properties": { "amount": { "type": "number", "minimum": 0 } },
        });
        let validator = compile(&schema).unwrap();
        assert_eq!(faults(&validator, &json!({ "amount": 1 })), None);
        assert!(faults(&validator, &json!({ "amount": -1 })).unwrap().contains("/amount"));
        assert!(faults(&validator, &Value::Null).unwrap().contains("amount"), "no arguments are none");
        assert!(check_schema(&json!({ "type": 7 })).is_err());
        assert!(
            check_schema(&json!({ "$ref": "https://example.com/schema" })).is_err(),
            "nothing is fetched"
        );
    }
}
