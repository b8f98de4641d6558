//! A fact of an external backend (V5).

use serde_json::Value;

use super::{Payload, required_text};
use crate::refusal::Refusal;

/// A checked `external.event`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalEvent;

impl ExternalEvent {
    /// V5: names `backend` and `externalRef`; `stateOwner` is `external` when present.
    pub fn read(payload: &Payload) -> Result<Self, Refusal> {
        required_text("V5", payload, "backend")?;
        required_text("V5", payload, "externalRef")?;
        payload.optional("V5", "stateOwner", "must be \"external\"", |value| {
            (value.as_str() == Some("external")).then_some(())
        })?;
        payload.optional("V5", "requestId", "must be a string", Value::as_str)?;
        Ok(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v5_names_its_backend_and_reference() {
        for (text, pointer) in [
            (r#"{"externalRef":"r"}"#, "/backend"),
            (r#"{"backend":"b","externalRef":""}"#, "/externalRef"),
            (r#"{"backend":"b","externalRef":"r","stateOwner":"native"}"#, "/stateOwner"),
        ] {
            match ExternalEvent::read(&Payload::parse(text).unwrap()) {
                Err(Refusal::Invalid { rule, fault }) => {
                    assert_eq!((rule.0, fault.pointer.as_str()), ("V5", pointer), "{text}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
        let good = r#"{"backend":"b","externalRef":"r","stateOwner":"external"}"#;
        assert!(ExternalEvent::read(&Payload::parse(good).unwrap()).is_ok());
    }
}
