//! What paths, queries and headers hold, each read in one place.

use std::collections::BTreeMap;

use axum::extract::{FromRequestParts, Path};
use http::HeaderMap;
use http::request::Parts;
use keel_kernel::{DedupeKey, Seq, SessionId};
use keel_ledger::SessionKey;

use crate::auth::Caller;
use crate::error::Problem;

/// The session that a path names, in the caller's tenant. An id that is not valid is 404, like any missing session.
#[derive(Clone, Debug)]
pub struct At(pub SessionKey);

impl<S: Send + Sync> FromRequestParts<S> for At {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, state).await?;
        let Path(path) = Path::<BTreeMap<String, String>>::from_request_parts(parts, state)
            .await
            .map_err(|_| Problem::no_session())?;
        let id = path
            .get("id")
            .and_then(|id| SessionId::parse(id.as_str()).ok())
            .ok_or_else(Problem::no_session)?;
        tracing::Span::current().record("session", id.as_str());
        Ok(At(SessionKey { tenant: caller.tenant, session: id }))
    }
}

/// The query's parameters, by name. A parameter given twice is refused, and so is one that the route does not know.
#[derive(Clone, Debug)]
pub struct Query(BTreeMap<String, String>);

impl Query {
    /// Reads the text behind the `?`.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let pairs: Vec<(String, String)> = serde_urlencoded::from_str(text)
            .map_err(|_| Problem::parameter("query", "is not a query string"))?;
        let mut query = BTreeMap::new();
        for (name, value) in pairs {
            if query.insert(name.clone(), value).is_some() {
                return Err(Problem::parameter(&name, "is given twice"));
            }
        }
        Ok(Query(query))
    }

    /// Refuses parameters that the route does not know.
    pub fn only(&self, known: &[&str]) -> Result<(), Problem> {
        match self.0.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(Problem::parameter(name, "is not a parameter of this call")),
        }
    }

    /// A parameter's text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A parameter that is a number in the range.
    pub fn number(&self, name: &str, range: std::ops::RangeInclusive<u64>) -> Result<Option<u64>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse::<u64>() {
            // Rust also parses "+5", which is refused.
            Ok(number) if range.contains(&number) && text.bytes().all(|b| b.is_ascii_digit()) => {
                Ok(Some(number))
            }
            _ => {
                let must = format!("must be a whole number from {} to {}", range.start(), range.end());
                Err(Problem::parameter(name, must))
            }
        }
    }

    /// A parameter that is `1`, `true`, `0` or `false`.
    pub fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.text(name) {
            None | Some("0" | "false") => Ok(false),
            Some("1" | "true") => Ok(true),
            Some(_) => Err(Problem::parameter(name, "must be 1 or 0")),
        }
    }

    /// The cursor of a session's events: a seq, at most 2^53 − 1.
    pub fn after(&self) -> Result<Seq, Problem> {
        Ok(Seq(self.number("after", 0..=SEQ_MAX)?.unwrap_or(0)))
    }
}

/// The largest seq a cursor may name: what every JSON reader can hold.
pub const SEQ_MAX: u64 = 9_007_199_254_740_991;

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Query::parse(parts.uri.query().unwrap_or(""))
    }
}

/// I1: the request id that the body, other places of the request (each with its name) and the `Idempotency-Key` header
/// agree on.
pub fn request_id(
    headers: &HeaderMap,
    in_body: Option<&str>,
    elsewhere: Option<(&'static str, &str)>,
) -> Result<Option<DedupeKey>, Problem> {
    let read = |text: &str| DedupeKey::parse(text).map_err(|e| Problem::member("/requestId", e.to_string()));
    let in_body = in_body.map(read).transpose()?;
    let (place, elsewhere) = elsewhere.unzip();
    let elsewhere = elsewhere.map(read).transpose()?;
    let mut in_header = None;
    if let Some(value) = headers.get("idempotency-key") {
        let text = value.to_str().unwrap_or("");
        // The draft's header is a structured string, in quotes; many clients send it bare.
        let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
        let key = DedupeKey::parse(text).map_err(|e| Problem::parameter("Idempotency-Key", e.to_string()))?;
        in_header = Some(key);
    }
    let places = [
        ("the body's", in_body),
        (place.unwrap_or_default(), elsewhere),
        ("the Idempotency-Key header", in_header),
    ];
    DedupeKey::agreed(places).map_err(|other| Problem::member("/requestId", format!("differs from {other}")))
}
