//! A person's say over a tool call (H2, H3). On the wire it is a decision; here that word means what the kernel decides.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::event::{Payload, ToolCall};
use crate::ids::{DedupeKey, Millis, SessionId};
use crate::refusal::Refusal;

/// What was said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "answer")]
pub enum Say {
    /// Run it.
    Allow,
    /// Do not run it.
    Deny,
    /// Run it with these arguments instead.
    Edit {
        /// An object.
        arguments: Value,
    },
}

/// An answer: what, who, when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// What was said.
    #[serde(flatten)]
    pub say: Say,
    /// Why, for the model to read where the call is denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The credential that said it.
    pub by: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

/// A call that waits for a person, or has been answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// `<session>.<digest of the call's id>`: the same call is the same decision, whoever opens it.
    pub id: String,
    /// The session.
    pub session_id: SessionId,
    /// The call.
    pub tool_call_id: DedupeKey,
    /// The tool.
    pub tool_name: String,
    /// What the model wants to pass.
    pub arguments: Value,
    /// SHA-256 of the canonical arguments, in hex: what an answer is checked against.
    pub digest: String,
    /// When it was opened, in milliseconds since 1970.
    pub opened_ms: u64,
    /// From when on it counts as denied, in milliseconds since 1970.
    pub expires_ms: u64,
    /// The answer, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Answer>,
}

/// Where a decision stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Standing<'a> {
    /// Nobody has said anything, and there is time until then.
    Open(Millis),
    /// It was answered in time.
    Given(&'a Answer),
    /// Nobody said anything in time: it counts as denied.
    Expired,
}

impl Approval {
    /// The decision's name, for a session's call.
    pub fn id_of(session: &SessionId, call: &DedupeKey) -> String {
        let digest = Sha256::digest(call.as_str().as_bytes());
        let hex: String = digest.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
        format!("{session}.{hex}")
    }

    /// The session that a decision's name names.
    pub fn session_of(id: &str) -> Option<SessionId> {
        id.split_once('.').and_then(|(session, _)| SessionId::parse(session).ok())
    }

    /// Opens a decision about a call.
    pub fn open(session: &SessionId, call: &ToolCall, now: Millis, for_ms: u64) -> Approval {
        Approval {
            id: Self::id_of(session, &call.id),
            session_id: session.clone(),
            tool_call_id: call.id.clone(),
            tool_name: call.name.clone(),
            arguments: call.arguments.clone(),
            digest: digest_of(&call.arguments),
            opened_ms: now.0,
            expires_ms: now.plus(for_ms).0,
            given: None,
        }
    }

    /// Where it stands. An answer counts whenever it was given, since it was taken in time.
    pub fn standing(&self, now: Millis) -> Standing<'_> {
        match &self.given {
            Some(answer) => Standing::Given(answer),
            None if now.0 >= self.expires_ms => Standing::Expired,
            None => Standing::Open(Millis(self.expires_ms)),
        }
    }

    /// H2: takes an answer about the arguments with this digest. `Ok(None)`: the same was said before.
    ///
    /// # Errors
    /// Another answer was given, the time is over, or the arguments are other ones.
    pub fn answered(&self, digest: &str, answer: Answer) -> Result<Option<Approval>, Refusal> {
        if digest != self.digest {
            return Err(Refusal::DecisionDiffers);
        }
        match self.standing(Millis(answer.at_ms)) {
            Standing::Given(before) if before.say == answer.say => Ok(None),
            Standing::Given(_) => Err(Refusal::DecisionTaken),
            Standing::Expired => Err(Refusal::DecisionExpired),
            Standing::Open(_) => Ok(Some(Approval { given: Some(answer), ..self.clone() })),
        }
    }
}

/// SHA-256 of arguments in canonical form, in hex. Arguments that are no object stand in one of their own.
pub fn digest_of(arguments: &Value) -> String {
    let wrapped = serde_json::json!({ "arguments": arguments });
    match Payload::from_value(&wrapped) {
        Ok(payload) => payload.digest(),
        Err(_) => Sha256::digest(wrapped.to_string()).iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn opened() -> Approval {
        let call = ToolCall {
            id: DedupeKey::parse("c1").unwrap(),
            name: "pay".into(),
            arguments: json!({ "b": 1.0, "a": 2 }),
        };
        Approval::open(&SessionId::parse("s").unwrap(), &call, Millis(1_000), 500)
    }

    fn answer(say: Say, at_ms: u64) -> Answer {
        Answer { say, comment: None, by: "k1".into(), at_ms }
    }

    #[test]
    fn h2_a_decision_is_given_once_in_time_and_about_these_arguments() {
        let open = opened();
        assert_eq!(Approval::session_of(&open.id), Some(open.session_id.clone()));
        assert_eq!(open.digest, digest_of(&json!({ "a": 2, "b": 1 })), "formatting is not the arguments");
        assert_eq!(open.standing(Millis(1_499)), Standing::Open(Millis(1_500)));
        assert_eq!(open.standing(Millis(1_500)), Standing::Expired);
        let say = |open: &Approval, say, at| open.answered(&open.digest, answer(say, at));
        assert_eq!(open.answered("other", answer(Say::Allow, 1_100)), Err(Refusal::DecisionDiffers));
        assert_eq!(say(&open, Say::Allow, 1_500), Err(Refusal::DecisionExpired));
        let allowed = say(&open, Say::Allow, 1_100).unwrap().unwrap();
        assert_eq!(say(&allowed, Say::Allow, 9_999), Ok(None), "the same again, however late");
        assert_eq!(say(&allowed, Say::Deny, 1_200), Err(Refusal::DecisionTaken));
        let edit = |n| Say::Edit { arguments: json!({ "a": n }) };
        let edited = say(&open, edit(1), 1_100).unwrap().unwrap();
        assert_eq!(say(&edited, edit(2), 1_100), Err(Refusal::DecisionTaken));
        assert!(matches!(edited.standing(Millis(9_999)), Standing::Given(_)));
        let text = serde_json::to_string(&edited).unwrap();
        assert_eq!(serde_json::from_str::<Approval>(&text).unwrap(), edited);
    }
}
