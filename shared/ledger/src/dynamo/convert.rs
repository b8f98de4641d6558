//! Plain values as the SDK's values, and back.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

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
        Value::Foreign => AttributeValue::Null(true),
    }
}

pub(super) fn sdk_item(item: Item) -> SdkItem {
    item.into_iter().map(|(name, value)| (name, sdk_value(value))).collect()
}

pub(super) fn sdk_key(key: Key) -> SdkItem {
    sdk_item(key.item())
}

/// An item as it came from the SDK. An attribute of a type that no item of ours has is kept as such: it harms only who reads
/// it.
pub fn read_item(item: SdkItem) -> Item {
    item.into_iter().map(|(name, value)| (name, read_value(value))).collect()
}

fn read_value(value: AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) => Value::Text(text),
        AttributeValue::N(number) => number.parse().map_or(Value::Foreign, Value::Number),
        AttributeValue::Bool(flag) => Value::Flag(flag),
        AttributeValue::Ss(texts) => Value::Texts(texts),
        AttributeValue::M(map) => Value::Map(read_item(map)),
        _ => Value::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_of_somebody_elses_harms_only_who_reads_it() {
        let read = read_item(SdkItem::from([
            ("seq".to_owned(), AttributeValue::N("1.5".to_owned())),
            ("note".to_owned(), AttributeValue::L(Vec::new())),
            ("v".to_owned(), AttributeValue::N("1".to_owned())),
        ]));
        assert_eq!(read["v"].as_number(), Some(1));
        for foreign in ["seq", "note"] {
            assert_eq!((&read[foreign], read[foreign].as_number()), (&Value::Foreign, None), "{foreign}");
        }
    }
}
