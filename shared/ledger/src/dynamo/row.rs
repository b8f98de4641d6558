//! A row of the state table that holds a value as JSON text.

use aws_sdk_dynamodb::types::AttributeValue;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::items::{self, Item, Read, Reader, attr};
use crate::port::StoreError;

/// The attribute with the text: nothing but these rows' own readers looks inside.
pub(super) const ROW: &str = "row";

pub(super) fn row_item<T: Serialize>(pk: &str, sk: String, row: &T) -> Item {
    let row = serde_json::to_string(row).expect("a row of strings and numbers serialises");
    Item::from([
        ("pk".to_owned(), AttributeValue::S(pk.to_owned())),
        ("sk".to_owned(), AttributeValue::S(sk)),
        (attr::VERSION.to_owned(), items::number(items::VERSION)),
        (ROW.to_owned(), AttributeValue::S(row)),
    ])
}

pub(super) fn read_row<T: DeserializeOwned>(item: &Read) -> Result<T, StoreError> {
    Reader::versioned(item)?.parse(ROW, serde_json::from_str)
}
