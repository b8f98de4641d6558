//! How items begin and are read: the schema version, and attributes by name.

use super::attr;
use crate::port::StoreError;
use crate::value::{Item, Key, Value};

/// The schema of head, event and key items.
pub const VERSION: u64 = 1;

pub(super) fn number(n: u64) -> Value {
    Value::Number(n)
}

pub(super) fn text(s: impl Into<String>) -> Value {
    Value::Text(s.into())
}

/// An item with its key and its version, and nothing else yet.
pub(super) fn versioned(key: Key) -> Item {
    let mut item = key.item();
    item.insert(attr::VERSION.to_owned(), number(VERSION));
    item
}

/// Reads an item's attributes. An error names the attribute that does not decode.
pub(crate) struct Reader<'a>(pub(crate) &'a Item);

impl<'a> Reader<'a> {
    pub(crate) fn versioned(item: &'a Item) -> Result<Self, StoreError> {
        let reader = Reader(item);
        match reader.number(attr::VERSION)? {
            VERSION => Ok(reader),
            other => Err(StoreError::Corrupt(format!("schema version {other} is newer than this code"))),
        }
    }

    pub(super) fn bad(&self, name: &str) -> StoreError {
        let sk = self.0.get("sk").and_then(Value::as_text).unwrap_or("?");
        StoreError::Corrupt(format!("attribute {name} of item {sk}"))
    }

    pub(crate) fn text(&self, name: &str) -> Result<&'a str, StoreError> {
        self.maybe_text(name)?.ok_or_else(|| self.bad(name))
    }

    pub(crate) fn maybe_text(&self, name: &str) -> Result<Option<&'a str>, StoreError> {
        self.0.get(name).map(|value| value.as_text().ok_or_else(|| self.bad(name))).transpose()
    }

    pub(crate) fn number(&self, name: &str) -> Result<u64, StoreError> {
        self.maybe_number(name)?.ok_or_else(|| self.bad(name))
    }

    pub(crate) fn maybe_number(&self, name: &str) -> Result<Option<u64>, StoreError> {
        self.0.get(name).map(|value| value.as_number().ok_or_else(|| self.bad(name))).transpose()
    }

    pub(crate) fn small(&self, name: &str) -> Result<u32, StoreError> {
        u32::try_from(self.number(name)?).map_err(|_| self.bad(name))
    }

    /// An attribute with a text format of its own, if it is present.
    pub(super) fn maybe<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, StoreError> {
        self.maybe_text(name)?.map(|text| parse(text).ok_or_else(|| self.bad(name))).transpose()
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn parse<T, E>(
        &self,
        name: &str,
        parse: impl FnOnce(&'a str) -> Result<T, E>,
    ) -> Result<T, StoreError> {
        parse(self.text(name)?).map_err(|_| self.bad(name))
    }
}
