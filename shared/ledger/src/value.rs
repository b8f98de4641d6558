//! Items in plain data: what a table holds, without the SDK's types.

use std::collections::BTreeMap;

/// An item, or a map inside one: attributes by name.
pub type Item = BTreeMap<String, Value>;

/// An attribute's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Number(u64),
    /// A flag.
    Flag(bool),
    /// A set of texts.
    Texts(Vec<String>),
    /// A map.
    Map(Item),
    /// Something that no item of ours has: nobody minds it in an attribute that nobody reads, and whoever reads it refuses
    /// it. Never written.
    Foreign,
}

impl Value {
    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            Value::Number(_) | Value::Flag(_) | Value::Texts(_) | Value::Map(_) | Value::Foreign => None,
        }
    }

    /// The number, if it is one.
    pub fn as_number(&self) -> Option<u64> {
        match self {
            Value::Number(number) => Some(*number),
            Value::Text(_) | Value::Flag(_) | Value::Texts(_) | Value::Map(_) | Value::Foreign => None,
        }
    }

    /// The map, if it is one.
    pub fn as_map(&self) -> Option<&Item> {
        match self {
            Value::Map(map) => Some(map),
            Value::Text(_) | Value::Number(_) | Value::Flag(_) | Value::Texts(_) | Value::Foreign => None,
        }
    }

    /// The set of texts, if it is one.
    pub fn as_texts(&self) -> Option<&[String]> {
        match self {
            Value::Texts(texts) => Some(texts),
            Value::Text(_) | Value::Number(_) | Value::Flag(_) | Value::Map(_) | Value::Foreign => None,
        }
    }
}

/// A key: partition and sort key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The partition key.
    pub pk: String,
    /// The sort key.
    pub sk: String,
}

impl Key {
    /// A key.
    pub fn new(pk: impl Into<String>, sk: impl Into<String>) -> Self {
        Self { pk: pk.into(), sk: sk.into() }
    }

    /// A new item with this key and nothing else.
    pub fn item(self) -> Item {
        Item::from([("pk".to_owned(), Value::Text(self.pk)), ("sk".to_owned(), Value::Text(self.sk))])
    }
}
