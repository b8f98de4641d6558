//! Events, and the shape of each kind's payload (V).
//!
//! One file per payload that has rules; each turns a [`Payload`] into the few facts the head needs, or says what is
//! wrong and where.

mod assistant_message;
mod compaction;
mod external_event;
mod run_finished;
mod spent;
mod tool_result;
mod user_message;

use serde::Serialize;
use serde_json::Value;

pub use assistant_message::{AssistantMessage, ToolCall};
pub use compaction::Compaction;
pub use external_event::ExternalEvent;
pub use run_finished::RunFinished;
pub use spent::{Spent, micros};
pub use tool_result::ToolResult;
pub use user_message::{Delivery, UserMessage};

use crate::caps;
use crate::ids::{CommitId, Epoch, Millis, Seq};
use crate::json::Document;
pub use crate::kind::{Class, KeyName, Kind};
use crate::refusal::{Fault, Refusal};

impl Kind {
    /// The kind with this name.
    ///
    /// # Errors
    /// [`Refusal::UnknownKind`] (L3).
    pub fn parse(name: &str) -> Result<Kind, Refusal> {
        Kind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == name)
            .ok_or_else(|| Refusal::UnknownKind(name.chars().take(64).collect()))
    }

    /// C1: whether a lease token came, and had to.
    ///
    /// # Errors
    /// [`Refusal::TokenRequired`] or [`Refusal::TokenNotAllowed`].
    pub fn check_token(self, came: bool) -> Result<(), Refusal> {
        match (self.class(), came) {
            (Class::Owner, true) | (Class::Edge | Class::External, false) => Ok(()),
            (Class::Owner, false) => Err(Refusal::TokenRequired(self)),
            (Class::Edge | Class::External, true) => Err(Refusal::TokenNotAllowed(self)),
        }
    }

    /// I1: whether the kind takes a key of this name.
    ///
    /// # Errors
    /// [`Refusal::KeyNotAllowed`].
    pub fn check_key(self, given: KeyName) -> Result<(), Refusal> {
        if self.key_name() == Some(given) {
            Ok(())
        } else {
            Err(Refusal::KeyNotAllowed { kind: self, given })
        }
    }
}

/// A JSON object that passed the strict reading and the size limit. What it says is not checked yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Payload(Document);

impl Payload {
    /// Reads a payload: a JSON object, strict (I4a), of at most [`caps::PAYLOAD_BYTES`].
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        Self::of(Document::read(text).map_err(|fault| Refusal::Invalid { rule: crate::Rule("I4a"), fault })?)
    }

    /// A payload as the table keeps it: it was read strictly when it was committed.
    ///
    /// # Errors
    /// It is no JSON object: the table was changed from outside.
    pub fn kept(text: &str) -> Result<Self, Refusal> {
        let kept = Document::kept(text.to_owned());
        Ok(Self(kept.map_err(|fault| Refusal::Invalid { rule: crate::Rule("I4a"), fault })?))
    }

    /// A payload made by our own code. It is checked like a client's.
    pub fn from_value(value: &Value) -> Result<Self, Refusal> {
        Self::parse(&value.to_string())
    }

    /// A payload from a document that is read already: an object of at most [`caps::PAYLOAD_BYTES`].
    pub fn of(document: Document) -> Result<Self, Refusal> {
        if !document.value().is_object() {
            return Err(Refusal::invalid("V6", "", "must be an object"));
        }
        let bytes = document.text().len();
        if bytes > caps::PAYLOAD_BYTES {
            return Err(Refusal::TooLarge { what: "the payload", bytes, limit: caps::PAYLOAD_BYTES });
        }
        Ok(Self(document))
    }

    /// The text as it came in, on one line.
    pub fn text(&self) -> &str {
        self.0.text()
    }

    /// The payload as a value.
    pub fn value(&self) -> &Value {
        self.0.value()
    }

    /// A member, if present.
    pub fn get(&self, member: &str) -> Option<&Value> {
        self.0.value().get(member)
    }

    /// SHA-256 of the canonical form, in hex (I4).
    pub fn digest(&self) -> String {
        self.0.digest()
    }

    /// The payload with one member set and everything else as written.
    pub fn with_member(&self, member: &str, to: &Value) -> Result<Payload, Refusal> {
        Self::of(self.0.with_member(member, to))
    }

    fn optional<'a, T>(
        &'a self,
        rule: &'static str,
        member: &str,
        must: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        self.get(member)
            .map(|value| read(value).ok_or_else(|| Refusal::invalid(rule, format!("/{member}"), must)))
            .transpose()
    }

    fn string(&self, rule: &'static str, member: &str) -> Result<Option<&str>, Refusal> {
        self.optional(rule, member, "must be a string", Value::as_str)
    }

    fn counter(&self, rule: &'static str, member: &str) -> Result<Option<u64>, Refusal> {
        self.optional(rule, member, "must be a non-negative integer", whole)
    }
}

/// A non-negative integer, however it is spelled (`1`, `1.0`, `1e0`: I4 makes them one).
fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let double = value.as_f64()?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the range beside it rules both out"
        )]
        ((0.0..=caps::INTEGER_MAX).contains(&double) && double.fract() == 0.0).then_some(double as u64)
    })
}

/// A committed event, with what the table keeps beside what the wire shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its position (L2).
    pub seq: Seq,
    /// What it is.
    pub kind: Kind,
    /// What it says.
    pub payload: Payload,
    /// When it was committed.
    pub ts: Millis,
    /// The commit that wrote it. By this a commit whose answer was lost is found again (I6).
    pub commit: CommitPlace,
    /// The epoch it was committed under; `None` where it needed no lease. Never on the wire (L4).
    pub epoch: Option<Epoch>,
    /// The run's readWatermark, on an assistant message without inputSeqs before the first one with them (A4). Never on the
    /// wire.
    pub watermark: Option<Seq>,
}

/// Where an event stands in the commit that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitPlace {
    /// The commit.
    pub id: CommitId,
    /// 0-based place of the event in the commit.
    pub index: usize,
    /// How many events the commit wrote.
    pub size: usize,
}

/// L4: an event on the wire is `{seq, kind, payload, ts}` and nothing else.
impl Serialize for Event {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let payload: &serde_json::value::RawValue =
            serde_json::from_str(self.payload.text()).map_err(serde::ser::Error::custom)?;
        let mut event = serializer.serialize_struct("Event", 4)?;
        event.serialize_field("seq", &self.seq)?;
        event.serialize_field("kind", self.kind.as_str())?;
        event.serialize_field("payload", payload)?;
        event.serialize_field("ts", &self.ts)?;
        event.end()
    }
}

/// What the rules need to know of a payload, once it has been checked.
#[derive(Clone, Debug, PartialEq)]
pub enum Facts {
    /// V1.
    User(UserMessage),
    /// V2.
    Assistant(AssistantMessage),
    /// V3.
    Tool(ToolResult),
    /// K1.
    Compaction(Compaction),
    /// V4.
    Finished(RunFinished),
    /// V5.
    External(ExternalEvent),
    /// Reserved kinds: no rule beyond being an object.
    Reserved,
}

impl Facts {
    /// V: checks a payload of this kind.
    pub fn read(kind: Kind, payload: &Payload) -> Result<Facts, Refusal> {
        Ok(match kind {
            Kind::UserMessage => Facts::User(UserMessage::read(payload)?),
            Kind::AssistantMessage => Facts::Assistant(AssistantMessage::read(payload)?),
            Kind::ToolResult => Facts::Tool(ToolResult::read(payload)?),
            Kind::Compaction => Facts::Compaction(Compaction::read(payload)?),
            Kind::RunFinished => Facts::Finished(RunFinished::read(payload)?),
            Kind::ExternalEvent => Facts::External(ExternalEvent::read(payload)?),
            Kind::RunStarted | Kind::RunFailed => Facts::Reserved,
        })
    }
}

/// A member that must be a non-empty string.
fn required_text(rule: &'static str, payload: &Payload, member: &str) -> Result<String, Refusal> {
    match payload.get(member).and_then(Value::as_str) {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(Refusal::Invalid {
            rule: crate::Rule(rule),
            fault: Fault::new(format!("/{member}"), "must be a non-empty string"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l3_the_vocabulary_is_closed() {
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.as_str()), Ok(kind));
        }
        for other in ["", "User.Message", "run", "user.message ", "assistant.partial"] {
            assert_eq!(Kind::parse(other), Err(Refusal::UnknownKind(other.to_owned())));
        }
    }

    #[test]
    fn l4_an_event_on_the_wire_has_four_members_and_its_payload_as_written() {
        let event = Event {
            seq: Seq(7),
            kind: Kind::AssistantMessage,
            payload: Payload::parse(r#"{"z": 1.0, "a": "b"}"#).unwrap(),
            ts: Millis(0),
            commit: CommitPlace { id: CommitId::parse("c").unwrap(), index: 0, size: 1 },
            epoch: Some(Epoch(3)),
            watermark: Some(Seq(1)),
        };
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"seq":7,"kind":"assistant.message","payload":{"z":1.0,"a":"b"},"ts":"1970-01-01T00:00:00.000Z"}"#
        );
    }

    #[test]
    fn v6_a_payload_is_an_object_of_bounded_size() {
        assert!(matches!(Payload::parse("[]"), Err(Refusal::Invalid { .. })));
        let text = "x".repeat(caps::PAYLOAD_BYTES);
        assert!(matches!(Payload::parse(&format!("{{\"text\":\"{text}\"}}")), Err(Refusal::TooLarge { .. })));
    }
}
