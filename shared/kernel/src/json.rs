//! Strict reading of JSON, its canonical form and its digest.
//!
//! A payload is kept for ever and compared by its canonical form, so it must be a document that every reader reads
//! the same way: I-JSON (RFC 7493, rule I4a). Whatever is accepted here comes back with its numbers as written and its
//! members in order, and its canonical form (RFC 8785, rule I4) denotes the same values.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::caps;
use crate::hex;
use crate::refusal::Fault;

/// A JSON document that passed the strict reading. Its copies share one text, one value and one digest.
#[derive(Clone, Debug)]
pub struct Document(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    text: String,
    /// Parsed when somebody first looks inside.
    value: OnceLock<Value>,
    /// Made when somebody first compares.
    digest: OnceLock<String>,
}

impl PartialEq for Document {
    fn eq(&self, other: &Document) -> bool {
        self.0.text == other.0.text
    }
}

impl Document {
    fn of(text: String, value: Value) -> Self {
        Self(Arc::new(Parts { text, value: OnceLock::from(value), digest: OnceLock::new() }))
    }

    /// Reads a document.
    ///
    /// # Errors
    /// What is wrong, and its place as a JSON pointer.
    pub fn read(text: &str) -> Result<Self, Fault> {
        let text = text.trim_matches([' ', '\t', '\n', '\r']);
        let mut reader = Reader { text: String::with_capacity(text.len()), pointer: Vec::new() };
        match reader.read(text) {
            Ok(value) => Ok(Self::of(reader.text, value)),
            // Text that is no JSON is reported as that, with its line, whatever else is wrong with it.
            Err(fault) => Err(match serde_json::from_str::<&RawValue>(text) {
                Ok(_) => fault,
                Err(e) => Fault::new("", format!("not JSON: {}", syntax_error(&e))),
            }),
        }
    }

    /// A document that was read strictly when it was committed, and kept since. Only one thing is checked: that it still is
    /// one JSON object. Its value is parsed when somebody needs it.
    ///
    /// # Errors
    /// It is no JSON object: the table was changed from outside.
    pub fn kept(text: String) -> Result<Self, Fault> {
        match serde_json::from_str::<&RawValue>(&text) {
            Ok(raw) if raw.get().starts_with('{') => {
                Ok(Self(Arc::new(Parts { text, value: OnceLock::new(), digest: OnceLock::new() })))
            }
            _ => Err(Fault::new("", "not a JSON object")),
        }
    }

    /// The text as it came in, without the white space between tokens (so it has no line breaks).
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The parsed value. Its numbers may have lost their spelling; the text has not.
    pub fn value(&self) -> &Value {
        self.0.value.get_or_init(|| serde_json::from_str(&self.0.text).unwrap_or_default())
    }

    /// SHA-256 of the canonical form, in hex (I4).
    pub fn digest(&self) -> String {
        self.0.digest.get_or_init(|| digest(self.value())).clone()
    }

    /// A member of the object as a document of its own, as written.
    pub fn member(&self, member: &str) -> Option<Document> {
        let value = self.value().get(member)?.clone();
        let Members(members) =
            serde_json::from_str(self.text()).expect("the text was read before, as an object");
        let (_, raw) = members.into_iter().find(|(name, _)| name == member)?;
        Some(Document::of(raw.get().to_owned(), value))
    }

    /// The same object with `member` set to `to`, in its place, or last when it was absent. Everything else stays as
    /// written.
    ///
    /// # Panics
    /// If the document is not an object.
    #[must_use]
    pub fn with_member(&self, member: &str, to: &Value) -> Document {
        let was = self.value().as_object().expect("an object").get(member);
        if was == Some(to) && to.is_string() {
            return self.clone(); // it is there already, as most clients send it
        }
        let Members(mut members) =
            serde_json::from_str(self.text()).expect("the text was read before, as an object");
        let raw = serde_json::value::to_raw_value(to).expect("a Value serialises");
        match members.iter_mut().find(|(name, _)| name == member) {
            Some((_, old)) => *old = &raw,
            None => members.push((member.to_owned(), &raw)),
        }
        let mut text = String::with_capacity(self.text().len() + raw.get().len() + member.len() + 4);
        for (index, (name, value)) in members.iter().enumerate() {
            text.push(if index == 0 { '{' } else { ',' });
            push_name(&mut text, name);
            text.push_str(value.get());
        }
        text.push('}');
        let mut value = self.value().clone();
        value.as_object_mut().expect("an object").insert(member.to_owned(), to.clone());
        Document::of(text, value)
    }
}

/// The canonical form of RFC 8785.
pub fn canonical(value: &Value) -> String {
    serde_json_canonicalizer::to_string(value)
        .expect("a Value has no key but strings and no number but finite ones")
}

/// SHA-256 of the canonical form, in hex.
pub fn digest(value: &Value) -> String {
    hex::sha256(canonical(value).as_bytes(), 32)
}

/// serde_json's message without its excerpt of the input: a payload never reaches a log through an error.
fn syntax_error(e: &serde_json::Error) -> String {
    let what = match e.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Io
        | serde_json::error::Category::Syntax
        | serde_json::error::Category::Data => "unexpected text",
    };
    format!("{what} at line {}, column {}", e.line(), e.column())
}

/// Walks a document token by token, writing it again without white space.
struct Reader {
    text: String,
    pointer: Vec<String>,
}

impl Reader {
    fn fault(&self, detail: impl Into<String>) -> Fault {
        let mut pointer = String::new();
        for part in &self.pointer {
            pointer.push('/');
            pointer.push_str(&part.replace('~', "~0").replace('/', "~1"));
        }
        Fault::new(pointer, detail)
    }

    fn read(&mut self, raw: &str) -> Result<Value, Fault> {
        match raw.as_bytes().first() {
            Some(b'{') => self.object(raw),
            Some(b'[') => self.array(raw),
            Some(b'"') => {
                let text = self.string(raw)?;
                self.text.push_str(raw);
                Ok(Value::String(text))
            }
            Some(b'-' | b'0'..=b'9') => self.number(raw),
            _ => {
                self.text.push_str(raw);
                serde_json::from_str(raw).map_err(|_| self.fault("not JSON"))
            }
        }
    }

    fn enter(&mut self, part: String) -> Result<(), Fault> {
        self.pointer.push(part);
        if self.pointer.len() > caps::PAYLOAD_DEPTH {
            return Err(self.fault(format!("nests deeper than {}", caps::PAYLOAD_DEPTH)));
        }
        Ok(())
    }

    fn object(&mut self, raw: &str) -> Result<Value, Fault> {
        // What can still fail here is a member name with half a surrogate pair; each value is read on its own below.
        let Members(members) =
            serde_json::from_str(raw).map_err(|_| self.fault("has a member name with a lone surrogate"))?;
        let mut seen = BTreeSet::new();
        let mut object = serde_json::Map::new();
        self.text.push('{');
        for (index, (name, value)) in members.into_iter().enumerate() {
            self.enter(name.clone())?;
            if name.contains('\0') {
                return Err(self.fault("has a NUL in its member name"));
            }
            if !seen.insert(name.clone()) {
                return Err(self.fault("stands twice in its object"));
            }
            if index > 0 {
                self.text.push(',');
            }
            push_name(&mut self.text, &name);
            let value = self.read(value.get())?;
            self.pointer.pop();
            object.insert(name, value);
        }
        self.text.push('}');
        Ok(Value::Object(object))
    }

    fn array(&mut self, raw: &str) -> Result<Value, Fault> {
        let items: Vec<&RawValue> = serde_json::from_str(raw).map_err(|_| self.fault("not JSON"))?;
        let mut array = Vec::with_capacity(items.len());
        self.text.push('[');
        for (index, item) in items.into_iter().enumerate() {
            self.enter(index.to_string())?;
            if index > 0 {
                self.text.push(',');
            }
            array.push(self.read(item.get())?);
            self.pointer.pop();
        }
        self.text.push(']');
        Ok(Value::Array(array))
    }

    fn string(&self, raw: &str) -> Result<String, Fault> {
        let text: String = serde_json::from_str(raw).map_err(|_| self.fault("has a lone surrogate"))?;
        if text.contains('\0') {
            return Err(self.fault("contains a NUL"));
        }
        Ok(text)
    }

    fn number(&mut self, raw: &str) -> Result<Value, Fault> {
        let double: f64 = raw.parse().map_err(|_| self.fault("not a number"))?;
        let whole = !raw.contains(['.', 'e', 'E']);
        // From 1e21 on the canonical form has an exponent and reads back as a plain double.
        if double.abs() > caps::INTEGER_MAX && (whole || double.abs() < 1e21) {
            return Err(self.fault("is an integer beyond ±9007199254740991; send it as a string"));
        }
        if !held(raw, double) {
            return Err(self.fault("is a number that a double cannot hold; send it as a string"));
        }
        self.text.push_str(raw);
        serde_json::from_str(raw).map_err(|_| self.fault("is a number that a double cannot hold"))
    }
}

/// Whether a double holds what the numeral says. It does where the numeral is the double's shortest spelling, or the
/// double's value rounded to as many digits as the numeral has (many writers print 17). Where two spellings are equally
/// short and equally near, writers differ, so the canonical form's choice is accepted too.
fn held(raw: &str, double: f64) -> bool {
    let wanted = Decimal::of(raw);
    let Some(digits) = wanted.as_ref().map(|decimal| decimal.digits.len()) else { return false };
    wanted == Decimal::of(&format!("{double:e}"))
        || (digits <= DIGITS_MAX
            && (wanted == Decimal::of(&format!("{double:.*e}", digits.saturating_sub(1)))
                || wanted == Decimal::of(&canonical(&Value::from(double)))))
}

/// No double has more significant digits.
const DIGITS_MAX: usize = 768;

fn push_name(text: &mut String, name: &str) {
    text.push_str(&serde_json::to_string(name).expect("a string serialises"));
    text.push(':');
}

/// A decimal numeral's value: digits without zeros at either end, and the exponent of the last one.
#[derive(Debug, PartialEq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// `None` where the numeral is no number at all (`inf`) or its exponent is beyond counting.
    fn of(numeral: &str) -> Option<Decimal> {
        let (negative, unsigned) = match numeral.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, numeral),
        };
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let significant = digits.trim_start_matches('0');
        let trimmed = significant.trim_end_matches('0');
        if trimmed.is_empty() {
            return Some(Decimal { negative: false, digits: String::new(), exponent: 0 });
        }
        let exponent: i64 = exponent.parse().ok()?;
        let zeros = i64::try_from(significant.len() - trimmed.len()).ok()?;
        let exponent = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?.checked_add(zeros)?;
        Some(Decimal { negative, digits: trimmed.to_owned(), exponent })
    }
}

/// An object's members in order, duplicates included, each value as its own text.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    members.push((name, map.next_value::<&'de RawValue>().map_err(de::Error::custom)?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn refused_at(text: &str) -> String {
        Document::read(text).expect_err(text).pointer
    }

    #[test]
    fn i4a_what_a_double_cannot_hold_is_refused_with_its_place() {
        for (text, pointer) in [
            (r#"{"a":9007199254740992}"#, "/a"),
            (r#"{"a":[1,-9007199254740993]}"#, "/a/1"),
            (r#"{"a":1e16}"#, "/a"),
            (r#"{"a":100000000000000000000000}"#, "/a"),
            (r#"{"a":1e400}"#, "/a"),
            (r#"{"a":1e-400}"#, "/a"),
            (r#"{"a":1e99999999999999999999}"#, "/a"),
            (r#"{"a":0.1000000000000000055511151231257828}"#, "/a"),
            (r#"{"a":0.30000000000000002}"#, "/a"),
            (r#"{"a/b":{"~":1e999}}"#, "/a~1b/~0"),
        ] {
            assert_eq!(refused_at(text), pointer, "{text}");
        }
        assert_eq!(refused_at(&format!("[{}]", "9".repeat(400))), "/0");
        for text in ["[NaN]", "[Infinity]", "[01]", "[1.]", "{\"a\":1,}", "", "[\"\u{1}\"]", "nul"] {
            assert!(Document::read(text).is_err(), "{text}");
        }
        for text in [
            "[9007199254740991,-9007199254740991]",
            "[1e21,1.0,0.1,1E2,-0,0e999999999999999999999,5e-324]",
            // As C's %.17g prints them, and to more digits than anybody needs.
            "[0.29999999999999999,0.10000000000000001,4.9406564584124654e-324,0.1000000000000000055511151231257827]",
            // A tie between two spellings, and the double itself.
            "[1475861365257754.2,1475861365257754.25]",
        ] {
            assert_eq!(Document::read(text).unwrap().text(), text);
        }
    }

    #[test]
    fn i4a_duplicates_surrogates_nul_and_depth_are_refused_with_their_place() {
        assert_eq!(refused_at(r#"{"a":{"b":1,"b":1}}"#), "/a/b");
        assert_eq!(refused_at(r#"{"a":{"b":1,"\u0062":2}}"#), "/a/b");
        assert_eq!(refused_at(r#"{"a":["\ud800"]}"#), "/a/0");
        assert_eq!(refused_at(r#"{"a":{"\udc00x":1}}"#), "/a");
        assert_eq!(refused_at(r#"{"a":"x\u0000"}"#), "/a");
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(Document::read(&deep(caps::PAYLOAD_DEPTH)).is_ok());
        assert!(Document::read(&deep(1_000)).expect_err("deep").detail.contains("deeper"));
    }

    #[test]
    fn i4_formatting_does_not_change_the_digest() {
        let one = Document::read(r#"{"b":[1.0,"A",1E2],"a":null}"#).unwrap();
        let two = Document::read("{\n \"a\" : null, \"b\": [1, \"\\u0041\", 100.00]}").unwrap();
        assert_eq!(one.digest(), two.digest());
        assert_ne!(one.digest(), Document::read(r#"{"a":null,"b":[1,"a",100]}"#).unwrap().digest());
        assert_eq!(one.text(), r#"{"b":[1.0,"A",1E2],"a":null}"#, "the text keeps its spelling");
    }

    #[test]
    fn with_member_leaves_the_rest_as_written() {
        let read = Document::read(r#"{"z":1.0, "delivery":"guide", "a":[ 1E2 ]}"#).unwrap();
        assert_eq!(
            read.with_member("delivery", &json!("queue")).text(),
            r#"{"z":1.0,"delivery":"queue","a":[1E2]}"#
        );
        let added = read.with_member("new", &json!(7));
        assert_eq!(added.text(), r#"{"z":1.0,"delivery":"guide","a":[1E2],"new":7}"#);
        assert_eq!(added, Document::read(added.text()).unwrap());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(Value::from),
            any::<f64>()
                .prop_filter("finite", |f| f.is_finite() && (f.abs() < 9e15 || f.abs() > 1e21))
                .prop_map(Value::from),
            "[^\u{0}]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map("[^\u{0}]{0,4}", inner, 0..6)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn i4_the_canonical_form_is_accepted_and_is_its_own_canonical_form(value in any_json()) {
            let form = canonical(&value);
            let read = Document::read(&form).expect("the canonical form of an accepted document is accepted");
            prop_assert_eq!(canonical(read.value()), form.clone());
            let pretty = Document::read(&serde_json::to_string_pretty(&value).unwrap()).expect("pretty");
            prop_assert_eq!(pretty.digest(), read.digest());
        }

        #[test]
        fn i4_the_canonical_form_is_what_another_implementation_makes(value in any_json()) {
            prop_assert_eq!(canonical(&value), json_canon::to_string(&value).unwrap());
        }

        #[test]
        fn i4a_reading_never_panics(text in "[\\[\\]{}\",:0-9eE+.\\-\\\\ud8abtrfn ]{0,40}") {
            let _ = Document::read(&text);
        }
    }
}
