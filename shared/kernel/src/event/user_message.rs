//! A client's input (V1), and when it is to enter the model's context (D1).

use serde::Serialize;
use serde_json::Value;

use super::Payload;
use crate::refusal::Refusal;

/// D1: when an input enters the model's context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Delivery {
    /// At the next claim, after the current run ends (D2).
    #[default]
    Queue,
    /// Inside the current run, at a request boundary (D3).
    Guide,
}

impl Delivery {
    /// The delivery that a committed input's payload names; absent means queue.
    pub fn of(payload: &Payload) -> Delivery {
        match payload.get("delivery").and_then(Value::as_str) {
            Some("guide") => Delivery::Guide,
            _ => Delivery::Queue,
        }
    }

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Delivery::Queue => "queue",
            Delivery::Guide => "guide",
        }
    }
}

/// A checked `user.message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserMessage {
    /// D1; absent means queue.
    pub delivery: Delivery,
}

impl UserMessage {
    /// V1: `text` and `requestId` strings if present; `delivery` exactly `queue` or `guide`; `selection` an object;
    /// `retryOf` a non-negative integer; unknown members stay.
    pub fn read(payload: &Payload) -> Result<Self, Refusal> {
        payload.string("V1", "text")?;
        payload.string("V1", "requestId")?;
        payload.optional("V1", "selection", "must be an object", Value::as_object)?;
        payload.counter("V1", "retryOf")?;
        let delivery = payload.optional("V1", "delivery", "must be \"queue\" or \"guide\"", |value| {
            match value.as_str() {
                Some("queue") => Some(Delivery::Queue),
                Some("guide") => Some(Delivery::Guide),
                _ => None,
            }
        })?;
        Ok(Self { delivery: delivery.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<UserMessage, Refusal> {
        UserMessage::read(&Payload::parse(text).unwrap())
    }

    #[test]
    fn v1_each_member_has_its_type_and_unknown_ones_stay() {
        for (text, pointer) in [
            (r#"{"text":1}"#, "/text"),
            (r#"{"text":null}"#, "/text"),
            (r#"{"requestId":7}"#, "/requestId"),
            (r#"{"delivery":"Queue"}"#, "/delivery"),
            (r#"{"delivery":null}"#, "/delivery"),
            (r#"{"selection":[]}"#, "/selection"),
            (r#"{"retryOf":-1}"#, "/retryOf"),
            (r#"{"retryOf":1.5}"#, "/retryOf"),
            (r#"{"retryOf":"1"}"#, "/retryOf"),
        ] {
            match read(text) {
                Err(Refusal::Invalid { rule, fault }) => {
                    assert_eq!((rule.0, fault.pointer.as_str()), ("V1", pointer), "{text}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
        assert!(read(r#"{"text":"hi","requestId":"a","selection":{},"retryOf":2.0,"mood":[1]}"#).is_ok());
    }

    #[test]
    fn d1_absent_delivery_means_queue() {
        assert_eq!(read("{}").unwrap().delivery, Delivery::Queue);
        assert_eq!(read(r#"{"delivery":"guide"}"#).unwrap().delivery, Delivery::Guide);
    }
}
