//! Plain values as the SDK's values, and back.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::port::StoreError;
use crate::value::{Item, Key, Value};

/// An item as the SDK takes and gives it.
pub(super) type SdkItem = HashMap<String, AttributeValue>;

pub(super) fn sdk_value(value: Value) -> AttributeValue {
    match value {
        Value::Text(text) => AttributeValue::S(text),
        Value::Number(number) => AttributeValue::N(number.to_string()),
        Value::Flag(flag) => AttributeValue::Bool(flag),
        Value::Texts(texts) => AttributeValue::Ss(texts),
        Value::Map(map) => AttributeValue::M(sdk_item(map)),
    }
}

pub(super) fn sdk_item(item: Item) -> SdkItem {
    item.into_iter().map(|(name, value)| (name, sdk_value(value))).collect()
}

pub(super) fn sdk_key(key: Key) -> SdkItem {
    sdk_item(key.item())
}

/// An item as it came from the SDK.
///
/// # Errors
/// [`StoreError::Corrupt`] where an attribute is of a type that no item of ours has.
pub fn read_item(item: SdkItem) -> Result<Item, StoreError> {
    let attribute = |(name, value): (String, AttributeValue)| {
        let value = read_value(&name, value)?;
        Ok((name, value))
    };
    item.into_iter().map(attribute).collect()
}

fn read_value(name: &str, value: AttributeValue) -> Result<Value, StoreError> {
    let bad = || StoreError::Corrupt(format!("attribute {name}"));
    Ok(match value {
        AttributeValue::S(text) => Value::Text(text),
        AttributeValue::N(number) => Value::Number(number.parse().map_err(|_| bad())?),
        AttributeValue::Bool(flag) => Value::Flag(flag),
        AttributeValue::Ss(texts) => Value::Texts(texts),
        AttributeValue::M(map) => Value::Map(read_item(map)?),
        _ => return Err(bad()),
    })
}
