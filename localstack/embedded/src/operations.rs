//! An operation's name and JSON body become one call of the store, and its outcome becomes a status and a JSON body.
//!
//! Only the operations that Keel uses, and a few that its tests and tools need, are served. Any other is refused by
//! name, so a new one is added here knowingly and not met by a half-working emulation.

use dynoxide::{Database, DynoxideError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What goes back over the wire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Runs one operation to its end on the calling thread.
pub(crate) fn run(db: &Database, operation: &str, body: &[u8]) -> ApiResponse {
    let outcome = match operation {
        "CreateTable" => call(body, |request| db.create_table(request)),
        "DeleteTable" => call(body, |request| db.delete_table(request)),
        "DescribeTable" => call(body, |request| db.describe_table(request)),
        "ListTables" => call(body, |request| db.list_tables(request)),
        "UpdateTimeToLive" => call(body, |request| db.update_time_to_live(request)),
        "DescribeTimeToLive" => call(body, |request| db.describe_time_to_live(request)),
        "PutItem" => call(body, |request| db.put_item(request)),
        "GetItem" => call(body, |request| db.get_item(request)),
        "UpdateItem" => call(body, |request| db.update_item(request)),
        "DeleteItem" => call(body, |request| db.delete_item(request)),
        "Query" => call(body, |request| db.query(request)),
        "Scan" => call(body, |request| db.scan(request)),
        "BatchGetItem" => call(body, |request| db.batch_get_item(request)),
        "BatchWriteItem" => call(body, |request| db.batch_write_item(request)),
        "TransactWriteItems" => call(body, |request| db.transact_write_items(request)),
        "TransactGetItems" => call(body, |request| db.transact_get_items(request)),
        _ => return unknown(operation),
    };
    match outcome {
        Ok(body) => ApiResponse { status: 200, body },
        Err(refusal) => ApiResponse { status: refusal.status_code(), body: refusal.to_json() },
    }
}

fn call<Request: DeserializeOwned, Response: Serialize>(
    body: &[u8],
    run: impl FnOnce(Request) -> dynoxide::Result<Response>,
) -> dynoxide::Result<String> {
    let request = serde_json::from_slice(body).map_err(|unread| unreadable(&unread.to_string()))?;
    let response = run(request)?;
    serde_json::to_string(&response).map_err(|e| DynoxideError::InternalServerError(e.to_string()))
}

fn unknown(operation: &str) -> ApiResponse {
    let body = serde_json::json!({
        "__type": "com.amazon.coral.service#UnknownOperationException",
        "message": format!("the embedded store does not serve {operation:?}"),
    });
    ApiResponse { status: 400, body: body.to_string() }
}

/// Words by which the store's own readers mark a body that parses and breaks a rule of DynamoDB's, as opposed to one of
/// the wrong JSON type. They are the only way it tells the two apart: its translation of them belongs to its server,
/// which is not compiled.
const BREAKS_A_RULE: [&str; 5] =
    ["VALIDATION", "missing field", "unknown variant", "invalid type: null", "AttributeValue"];

fn unreadable(message: &str) -> DynoxideError {
    let (marker, rest) = match message.split_once(':') {
        Some((marker, rest)) if marker.starts_with("VALIDATION") || marker.starts_with("SERIALIZATION") => {
            (marker, rest)
        }
        _ => ("", message),
    };
    // serde_json ends every message with a place in the body, which DynamoDB's messages never have.
    let detail = rest.rsplit_once(" at line ").map_or(rest, |(detail, _)| detail).trim().to_owned();
    let breaks_a_rule =
        !marker.starts_with("SERIALIZATION") && BREAKS_A_RULE.iter().any(|m| message.contains(m));
    if breaks_a_rule {
        DynoxideError::ValidationException(detail)
    } else {
        DynoxideError::SerializationException(detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn type_of(response: &ApiResponse) -> String {
        let body: serde_json::Value = serde_json::from_str(&response.body).unwrap();
        body["__type"].as_str().unwrap().to_owned()
    }

    #[test]
    fn an_operation_that_is_not_served_is_refused_by_name() {
        let db = Database::memory().unwrap();
        for operation in ["UpdateTable", "Nonsense", ""] {
            let response = run(&db, operation, b"{}");
            assert_eq!(response.status, 400);
            assert_eq!(type_of(&response), "com.amazon.coral.service#UnknownOperationException");
            assert!(response.body.contains(operation));
        }
    }

    #[test]
    fn a_body_that_breaks_a_rule_is_a_validation_and_one_of_the_wrong_type_a_serialization_error() {
        let db = Database::memory().unwrap();
        let response = run(&db, "PutItem", br#"{"TableName":"t","Item":{"n":{"N":"one"}}}"#);
        assert_eq!(type_of(&response), "com.amazon.coral.validate#ValidationException");
        assert!(
            !response.body.contains("VALIDATION") && !response.body.contains("at line"),
            "{}",
            response.body
        );

        let response = run(&db, "TransactWriteItems", br#"{"TransactItems":7}"#);
        assert_eq!(type_of(&response), "com.amazon.coral.service#SerializationException");
        assert!(!response.body.contains("at line"), "{}", response.body);
    }
}
