//! H2, H3: a person's decision about a tool call, and which answers to it count.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{Payload, ToolCall};
use crate::hex;
use crate::ids::{DedupeKey, Millis, SessionId};
use crate::refusal::Refusal;

/// What a person answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "answer")]
pub enum Verdict {
    /// Run the call.
    Allow,
    /// Do not run the call.
    Deny,
    /// Run the call with a person's arguments instead of the model's.
    Edit {
        /// The person's arguments, a JSON object.
        arguments: Value,
    },
}

/// A person's answer to a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionAnswer {
    /// Whether the call may run.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Why. The model reads it where the call is denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Who gave the answer: the id of an API key; `keel` where a cancelled run denies its calls.
    pub by: String,
    /// When it was given, in milliseconds since 1970.
    pub at_ms: u64,
}

/// The question whether a tool call may run, and the answer once there is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// `<session>.<digest of the call's id>`: a call has one decision, whoever opens it.
    pub id: String,
    /// The session.
    pub session_id: SessionId,
    /// The call.
    pub tool_call_id: DedupeKey,
    /// The tool.
    pub tool_name: String,
    /// The model's arguments.
    pub arguments: Value,
    /// SHA-256 of the canonical arguments, in hex. An answer must name it.
    pub digest: String,
    /// When it was opened, in milliseconds since 1970.
    pub opened_ms: u64,
    /// From this moment on it counts as denied, in milliseconds since 1970.
    pub expires_ms: u64,
    /// The answer, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<DecisionAnswer>,
}

/// What has become of a decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DecisionState<'a> {
    /// Nobody has answered it. It expires at this moment.
    Open(Millis),
    /// It was answered in time.
    Answered(&'a DecisionAnswer),
    /// Nobody answered it in time: it counts as denied.
    Expired,
}

impl Decision {
    /// The id of the decision about a session's call.
    pub fn id_of(session: &SessionId, call: &DedupeKey) -> String {
        format!("{session}.{}", hex::sha256(call.as_str().as_bytes(), 10))
    }

    /// The session that a decision's id names; `None`: the text is no decision's id.
    pub fn session_of(id: &str) -> Option<SessionId> {
        id.split_once('.').and_then(|(session, _)| SessionId::parse(session).ok())
    }

    /// A decision about a call, opened at `now` and open for `for_ms` milliseconds.
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

    /// What has become of it at `now`. Only an answer that came in time was taken, so one that is there always counts.
    pub fn state(&self, now: Millis) -> DecisionState<'_> {
        match &self.given {
            Some(answer) => DecisionState::Answered(answer),
            None if now.0 >= self.expires_ms => DecisionState::Expired,
            None => DecisionState::Open(Millis(self.expires_ms)),
        }
    }

    /// H2: the decision with this answer, which is about the arguments with this digest. `Ok(None)`: it has the same
    /// answer already.
    ///
    /// # Errors
    /// [`Refusal::DecisionDiffers`]: the call has other arguments. [`Refusal::DecisionTaken`]: it has another answer.
    /// [`Refusal::DecisionExpired`]: it is too late.
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

/// SHA-256 of a call's arguments, in hex: of the canonical form of `{"arguments": …}`, or, where the arguments are no valid
/// payload, of their text as it is.
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
