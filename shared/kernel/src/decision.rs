//! H2, H3: a person's decision about a tool call, and which answers to it count.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{Payload, ToolCall};
use crate::hex;
use crate::ids::{DedupeKey, Millis, SessionId};
use crate::refusal::Refusal;

/// What was said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "answer")]
pub enum Verdict {
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
pub struct DecisionAnswer {
    /// What was said.
    #[serde(flatten)]
    pub verdict: Verdict,
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
pub struct Decision {
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
    pub given: Option<DecisionAnswer>,
}

/// Where a decision stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DecisionState<'a> {
    /// Nobody has said anything, and there is time until then.
    Open(Millis),
    /// It was answered in time.
    Answered(&'a DecisionAnswer),
    /// Nobody said anything in time: it counts as denied.
    Expired,
}

impl Decision {
    /// The decision's name, for a session's call.
    pub fn id_of(session: &SessionId, call: &DedupeKey) -> String {
        format!("{session}.{}", hex::sha256(call.as_str().as_bytes(), 10))
    }

    /// The session that a decision's name names.
    pub fn session_of(id: &str) -> Option<SessionId> {
        id.split_once('.').and_then(|(session, _)| SessionId::parse(session).ok())
    }

    /// Opens a decision about a call.
    pub fn open(session: &SessionId, call: &ToolCall, now: Millis, for_ms: u64) -> Decision {
        Decision {
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
    pub fn state(&self, now: Millis) -> DecisionState<'_> {
        match &self.given {
            Some(answer) => DecisionState::Answered(answer),
            None if now.0 >= self.expires_ms => DecisionState::Expired,
            None => DecisionState::Open(Millis(self.expires_ms)),
        }
    }

    /// H2: takes an answer about the arguments with this digest. `Ok(None)`: the same was said before.
    ///
    /// # Errors
    /// Another answer was given, the time is over, or the arguments are other ones.
    pub fn answered(&self, digest: &str, answer: DecisionAnswer) -> Result<Option<Decision>, Refusal> {
        if digest != self.digest {
            return Err(Refusal::DecisionDiffers);
        }
        match self.state(Millis(answer.at_ms)) {
            DecisionState::Answered(before) if before.verdict == answer.verdict => Ok(None),
            DecisionState::Answered(_) => Err(Refusal::DecisionTaken),
            DecisionState::Expired => Err(Refusal::DecisionExpired),
            DecisionState::Open(_) => Ok(Some(Decision { given: Some(answer), ..self.clone() })),
        }
    }
}

/// SHA-256 of arguments in canonical form, in hex. Arguments that are no object stand in one of their own.
pub fn digest_of(arguments: &Value) -> String {
    let wrapped = serde_json::json!({ "arguments": arguments });
    match Payload::from_value(&wrapped) {
        Ok(payload) => payload.digest(),
        Err(_) => hex::sha256(wrapped.to_string().as_bytes(), 32),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn opened() -> Decision {
        let call = ToolCall {
            id: DedupeKey::parse("c1").unwrap(),
            name: "pay".into(),
            arguments: json!({ "b": 1.0, "a": 2 }),
        };
        Decision::open(&SessionId::parse("s").unwrap(), &call, Millis(1_000), 500)
    }

    fn answer(verdict: Verdict, at_ms: u64) -> DecisionAnswer {
        DecisionAnswer { verdict, comment: None, by: "k1".into(), at_ms }
    }

    #[test]
    fn h2_a_decision_is_given_once_in_time_and_about_these_arguments() {
        let open = opened();
        assert_eq!(Decision::session_of(&open.id), Some(open.session_id.clone()));
        assert_eq!(open.digest, digest_of(&json!({ "a": 2, "b": 1 })), "formatting is not the arguments");
        assert_eq!(open.state(Millis(1_499)), DecisionState::Open(Millis(1_500)));
        assert_eq!(open.state(Millis(1_500)), DecisionState::Expired);
        let give = |open: &Decision, verdict, at| open.answered(&open.digest, answer(verdict, at));
        assert_eq!(open.answered("other", answer(Verdict::Allow, 1_100)), Err(Refusal::DecisionDiffers));
        assert_eq!(give(&open, Verdict::Allow, 1_500), Err(Refusal::DecisionExpired));
        let allowed = give(&open, Verdict::Allow, 1_100).unwrap().unwrap();
        assert_eq!(give(&allowed, Verdict::Allow, 9_999), Ok(None), "the same again, however late");
        assert_eq!(give(&allowed, Verdict::Deny, 1_200), Err(Refusal::DecisionTaken));
        let edit = |n| Verdict::Edit { arguments: json!({ "a": n }) };
        let edited = give(&open, edit(1), 1_100).unwrap().unwrap();
        assert_eq!(give(&edited, edit(2), 1_100), Err(Refusal::DecisionTaken));
        assert!(matches!(edited.state(Millis(9_999)), DecisionState::Answered(_)));
        let text = serde_json::to_string(&edited).unwrap();
        assert_eq!(serde_json::from_str::<Decision>(&text).unwrap(), edited);
    }
}
