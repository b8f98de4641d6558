//! A request's body: strict JSON of at most 1 MiB, read once, before anything else is done with it.

use axum::extract::{FromRequest, Request};
use http_body_util::BodyExt as _;
use keel_kernel::json::Document;
use keel_kernel::{Fault, Payload, Refusal, Rule};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Code, Problem};

/// The largest body, in bytes.
pub const LIMIT: usize = 1024 * 1024;
/// How much of a larger body is read and dropped, in bytes: a client that gets its answer while it still sends may lose the
/// connection before it has read the answer.
const READ_ON: usize = 16 * LIMIT;

/// A body that is a JSON object (I4a).
#[derive(Clone, Debug)]
pub struct Body(Document);

impl Body {
    fn read(bytes: &[u8]) -> Result<Self, Problem> {
        let text = std::str::from_utf8(bytes).map_err(|_| {
            Problem::new(Code::InvalidJson, "the body is not UTF-8").with_fault(Fault::new("", "not JSON"))
        })?;
        let document = Document::read(text).map_err(|fault| Refusal::Invalid { rule: Rule("I4a"), fault })?;
        if !document.value().is_object() {
            return Err(Problem::member("", "the body must be an object"));
        }
        Ok(Self(document))
    }

    /// The members.
    pub fn object(&self) -> &serde_json::Map<String, Value> {
        self.0.value().as_object().expect("checked when it was read")
    }

    /// The whole body as a value of `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        T::deserialize(self.0.value()).map_err(|error| Problem::member("", error.to_string()))
    }

    /// Refuses members that the call does not know: a typing error must not pass as a default.
    pub fn only(&self, known: &[&str]) -> Result<(), Problem> {
        match self.object().keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => {
                let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
                Err(Problem::member(&pointer, "is not known here"))
            }
        }
    }

    /// A member that must be a string, if present. `null` counts as absent.
    pub fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        self.optional(name, "must be a string", Value::as_str)
    }

    /// A member that must be a non-negative integer, if present.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        self.optional(name, "must be a non-negative integer", Value::as_u64)
    }

    /// A member that `read` must accept, if present. `null` counts as absent.
    pub fn optional<'a, T>(
        &'a self,
        name: &str,
        must: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        match self.object().get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match read(value) {
                Some(read) => Ok(Some(read)),
                None => Err(Problem::member(&format!("/{name}"), must)),
            },
        }
    }

    /// The whole body as an event's payload.
    pub fn payload(self) -> Result<Payload, Problem> {
        Ok(Payload::of(self.0)?)
    }

    /// A member as an event's payload.
    pub fn payload_at(&self, name: &str) -> Result<Payload, Problem> {
        let pointer = format!("/{name}");
        let member = self.0.member(name).ok_or_else(|| Problem::member(&pointer, "is required"))?;
        if !member.value().is_object() {
            return Err(Problem::member(&pointer, "must be an object"));
        }
        Ok(Payload::of(member)?)
    }

    /// SHA-256 of the canonical form, in hex (I4).
    pub fn digest(&self) -> String {
        self.0.digest()
    }
}

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let too_large = || {
            Problem::new(Code::TooLarge, format!("the body is larger than {LIMIT} bytes"))
                .with("limit", LIMIT)
                .with_fault(Fault::new("", format!("is larger than {LIMIT} bytes")))
        };
        let mut body = request.into_body();
        let (mut bytes, mut length) = (Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            let cut = |_| {
                Problem::new(Code::InvalidJson, "the body was cut off").with_fault(Fault::new("", "not JSON"))
            };
            let Ok(data) = frame.map_err(cut)?.into_data() else { continue };
            length += data.len();
            if length > READ_ON {
                return Err(too_large());
            }
            if length <= LIMIT {
                bytes.extend_from_slice(&data);
            }
        }
        if length > LIMIT {
            return Err(too_large());
        }
        Self::read(&bytes)
    }
}
