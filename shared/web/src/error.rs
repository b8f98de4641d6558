//! The one table of errors that a client can meet, as RFC 9457 problem details (V6).
//!
//! A code never changes. The cause of a 5xx is written to the log and never sent to the client.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use keel_kernel::{Fault, Refusal};
use keel_ledger::{LedgerError, StoreError};
use serde_json::{Map, Value, json};

use crate::request;
use crate::revision::etag;

/// A stable error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The body is not JSON.
    InvalidJson,
    /// The body, or the payload in it, breaks a rule (I4a, A1, V1–V5).
    InvalidPayload,
    /// A path, query or header value is not acceptable.
    InvalidRequest,
    /// L3: no such event kind.
    UnknownKind,
    /// C3: this route does not take the kind.
    KindNotAccepted,
    /// C1: the kind takes no lease token.
    TokenNotAllowed,
    /// C1: the kind needs a lease token.
    TokenRequired,
    /// I1: the kind takes no such key.
    KeyNotAllowed,
    /// No credential, or none that is known.
    Unauthenticated,
    /// The credential lacks the scope.
    Forbidden,
    /// There is no such thing, or it is another tenant's.
    NotFound,
    /// The path exists, but not with this method.
    MethodNotAllowed,
    /// C6.
    SessionClosed,
    /// C4.
    ExternalSession,
    /// C: an external event for a native session.
    NativeSession,
    /// The session id is taken by a session with another description.
    SessionExists,
    /// C2, S3.
    Fenced,
    /// S1.
    AlreadyFinished,
    /// H2: the decision was answered differently.
    DecisionTaken,
    /// H2: nobody answered in time.
    DecisionExpired,
    /// H2: the answer is about other arguments.
    DecisionDiffers,
    /// If-Match named another revision.
    PreconditionFailed,
    /// The body, the payload or the commit is too large.
    TooLarge,
    /// I5.
    IdempotencyConflict,
    /// Too many of something in the session for now.
    LimitReached,
    /// The session is busy; send the call again.
    Busy,
    /// Keel failed; sending the call again is safe.
    Internal,
}

impl Code {
    /// Every code, for the documentation and its test.
    pub const ALL: [Code; 27] = [
        Code::InvalidJson,
        Code::InvalidPayload,
        Code::InvalidRequest,
        Code::UnknownKind,
        Code::KindNotAccepted,
        Code::TokenNotAllowed,
        Code::TokenRequired,
        Code::KeyNotAllowed,
        Code::Unauthenticated,
        Code::Forbidden,
        Code::NotFound,
        Code::MethodNotAllowed,
        Code::SessionClosed,
        Code::ExternalSession,
        Code::NativeSession,
        Code::SessionExists,
        Code::Fenced,
        Code::AlreadyFinished,
        Code::DecisionTaken,
        Code::DecisionExpired,
        Code::DecisionDiffers,
        Code::PreconditionFailed,
        Code::TooLarge,
        Code::IdempotencyConflict,
        Code::LimitReached,
        Code::Busy,
        Code::Internal,
    ];

    /// The table: status, code and title.
    pub fn row(self) -> (u16, &'static str, &'static str) {
        match self {
            Code::InvalidJson => (400, "invalid_json", "The body is not JSON"),
            Code::InvalidPayload => (400, "invalid_payload", "The payload is not acceptable"),
            Code::InvalidRequest => (400, "invalid_request", "The request is not acceptable"),
            Code::UnknownKind => (400, "unknown_kind", "There is no such event kind"),
            Code::KindNotAccepted => (400, "kind_not_accepted", "This event kind is not accepted here"),
            Code::TokenNotAllowed => (400, "token_not_allowed", "A lease token is not allowed here"),
            Code::TokenRequired => (400, "token_required", "A lease token is required"),
            Code::KeyNotAllowed => (400, "key_not_allowed", "This event kind takes no such key"),
            Code::Unauthenticated => (401, "unauthenticated", "No valid credential"),
            Code::Forbidden => (403, "forbidden", "The credential does not reach this"),
            Code::NotFound => (404, "not_found", "Not found"),
            Code::MethodNotAllowed => (405, "method_not_allowed", "The method is not allowed here"),
            Code::SessionClosed => (409, "session_closed", "The session is closed"),
            Code::ExternalSession => (409, "external_session", "The session is external"),
            Code::NativeSession => (409, "native_session", "The session is native"),
            Code::SessionExists => (409, "session_exists", "The session id is taken"),
            Code::Fenced => (409, "fenced", "The lease is no longer yours"),
            Code::AlreadyFinished => (409, "already_finished", "The attempt is finished"),
            Code::DecisionTaken => (409, "decision_taken", "The decision is taken"),
            Code::DecisionExpired => (409, "decision_expired", "The decision has expired"),
            Code::DecisionDiffers => (409, "decision_differs", "The decision is about something else"),
            Code::PreconditionFailed => (412, "precondition_failed", "The row has changed"),
            Code::TooLarge => (413, "too_large", "Too large"),
            Code::IdempotencyConflict => {
                (422, "idempotency_conflict", "The key is used with another payload")
            }
            Code::LimitReached => (429, "limit_reached", "A limit is reached"),
            Code::Busy => (503, "busy", "Busy, try again"),
            Code::Internal => (500, "internal", "Something failed"),
        }
    }

    /// The code as clients read it.
    pub fn as_str(self) -> &'static str {
        self.row().1
    }
}

/// An error as it is sent to a client.
#[derive(Clone, Debug)]
pub struct Problem {
    code: Code,
    detail: String,
    faults: Vec<Fault>,
    more: Map<String, Value>,
    retry_after_s: Option<u64>,
}

impl Problem {
    /// A problem with a code and a sentence about this occurrence.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), faults: Vec::new(), more: Map::new(), retry_after_s: None }
    }

    /// A value of the path, the query or a header is not acceptable.
    pub fn parameter(name: &str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self::new(Code::InvalidRequest, format!("{name} {detail}"))
            .with_fault(Fault::new(format!("/{name}"), detail))
    }

    /// A member of the body is not acceptable.
    pub fn member(pointer: &str, detail: impl Into<String>) -> Self {
        Fault::new(pointer, detail).into()
    }

    /// The session is missing, or another tenant's: the bytes are the same (C3).
    pub fn no_session() -> Self {
        Refusal::NotFound.into()
    }

    /// Names a place that is at fault.
    #[must_use]
    pub fn with_fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Adds an extension member.
    #[must_use]
    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.more.insert(member.to_owned(), value.into());
        self
    }

    /// Says when to try again, in seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, code, title) = self.code.row();
        let mut body = self.more;
        body.insert("type".into(), format!("urn:keel:problem:{code}").into());
        body.insert("title".into(), title.into());
        body.insert("status".into(), status.into());
        body.insert("code".into(), code.into());
        body.insert("detail".into(), self.detail.into());
        if !self.faults.is_empty() {
            body.insert("errors".into(), json!(self.faults));
        }
        if let Some(id) = request::current_id() {
            body.insert("requestId".into(), id.into());
        }
        let status = StatusCode::from_u16(status).expect("the table holds status codes");
        let mut response = (status, Json(Value::Object(body))).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"keel\""));
        }
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            Refusal::Invalid { rule, fault } => {
                let code = if fault.detail.starts_with("not JSON") {
                    Code::InvalidJson
                } else {
                    Code::InvalidPayload
                };
                let place = if fault.pointer.is_empty() { "the body" } else { &fault.pointer };
                Problem::new(code, format!("{place}: {}", fault.detail))
                    .with("rule", rule.0)
                    .with_fault(fault)
            }
            Refusal::UnknownKind(_) => Problem::new(Code::UnknownKind, detail)
                .with_fault(Fault::new("/kind", "is not an event kind")),
            Refusal::KindNotAccepted(_) => Problem::new(Code::KindNotAccepted, detail)
                .with_fault(Fault::new("/kind", "is not accepted here")),
            Refusal::TokenNotAllowed(_) => {
                Problem::new(Code::TokenNotAllowed, detail).with_fault(Fault::new("/lease", "must be absent"))
            }
            Refusal::TokenRequired(_) => {
                Problem::new(Code::TokenRequired, detail).with_fault(Fault::new("/lease", "is required"))
            }
            Refusal::KeyNotAllowed { given, .. } => {
                let fault = Fault::new(format!("/{given}"), "must be absent with this kind");
                Problem::new(Code::KeyNotAllowed, detail).with_fault(fault)
            }
            Refusal::NotFound => Problem::new(Code::NotFound, detail),
            Refusal::SessionExists => {
                Problem::new(Code::SessionExists, detail).with_fault(Fault::new("/sessionId", "is taken"))
            }
            Refusal::RevisionDiffers { revision } => {
                Problem::new(Code::PreconditionFailed, detail).with("etag", etag(revision))
            }
            Refusal::Fenced { current_epoch } => {
                Problem::new(Code::Fenced, detail).with("currentEpoch", current_epoch.0)
            }
            Refusal::SessionClosed => Problem::new(Code::SessionClosed, detail),
            Refusal::ExternalSession => Problem::new(Code::ExternalSession, detail),
            Refusal::NativeSession => Problem::new(Code::NativeSession, detail),
            Refusal::IdempotencyConflict { name, seq, .. } => {
                let fault =
                    Fault::new(format!("/{name}"), format!("is used by event {seq} with another payload"));
                Problem::new(Code::IdempotencyConflict, detail).with("seq", seq.0).with_fault(fault)
            }
            Refusal::NotUnanswered(_) => Problem::member("/inputSeqs", detail).with("rule", "A1"),
            Refusal::UnknownToolCall(_) => Problem::member("/toolCallId", detail).with("rule", "V3"),
            Refusal::CallIdReused(_) => Problem::member("/content", detail).with("rule", "V2"),
            Refusal::TooLarge { limit, .. } => {
                let fault = Fault::new("", format!("is larger than {limit} bytes"));
                Problem::new(Code::TooLarge, detail).with("limit", limit).with_fault(fault)
            }
            Refusal::LimitReached { limit, .. } => {
                Problem::new(Code::LimitReached, detail).with("limit", limit).retry_after(5)
            }
            Refusal::AlreadyFinished => Problem::new(Code::AlreadyFinished, detail),
            Refusal::DecisionTaken => Problem::new(Code::DecisionTaken, detail),
            Refusal::DecisionExpired => Problem::new(Code::DecisionExpired, detail),
            Refusal::DecisionDiffers => {
                let fault = Fault::new("/digest", "is not that of the call's arguments");
                Problem::new(Code::DecisionDiffers, detail).with_fault(fault)
            }
        }
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Self::new(Code::InvalidPayload, format!("{} {}", fault.pointer, fault.detail)).with_fault(fault)
    }
}

impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Refused(refusal) => refusal.into(),
            LedgerError::Busy => {
                Problem::new(Code::Busy, "the session is busy; sending the call again is safe").retry_after(1)
            }
            LedgerError::Store(error) => error.into(),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        tracing::error!(error = &error as &dyn std::error::Error, "the store failed");
        Problem::new(Code::Internal, "the store failed; sending the call again is safe").retry_after(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v6_codes_are_distinct_and_stable() {
        let table: Vec<String> =
            Code::ALL.iter().map(|code| format!("{} {}", code.row().0, code.as_str())).collect();
        let mut distinct = table.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), Code::ALL.len());
        // A changed line is a wire change.
        assert_eq!(
            table.join("\n"),
            "400 invalid_json\n400 invalid_payload\n400 invalid_request\n400 unknown_kind\n400 kind_not_accepted\n\
             400 token_not_allowed\n400 token_required\n400 key_not_allowed\n401 unauthenticated\n403 forbidden\n\
             404 not_found\n405 method_not_allowed\n409 session_closed\n409 external_session\n409 native_session\n\
             409 session_exists\n409 fenced\n409 already_finished\n409 decision_taken\n409 decision_expired\n\
             409 decision_differs\n412 precondition_failed\n413 too_large\n\
             422 idempotency_conflict\n429 limit_reached\n503 busy\n500 internal"
        );
    }

    #[test]
    fn v6_every_code_is_documented() {
        let documented = include_str!("../../../docs/errors.md");
        for code in Code::ALL {
            let row = format!("| {} | `{}` |", code.row().0, code.as_str());
            assert!(documented.contains(&row), "docs/errors.md has no row {row}");
        }
    }
}
