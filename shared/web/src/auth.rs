//! Who sent a request: API keys, their tenant and their scopes. The tenant is taken from the key and from nowhere else.
//!
//! A key reads `keel_<tenant>.<id>_<secret>`. The table holds the secret's SHA-256 under the tenant and id; a secret is
//! long and random, so a fast hash is enough. Rows are cached for 30 seconds, so a deleted key works that much longer.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header;
use http::request::Parts;
use keel_kernel::TenantId;
use keel_ledger::TenantStore;
use keel_ledger::tenant_store::ApiKeyRow;
use subtle::ConstantTimeEq as _;

use crate::error::{Code, Problem};

/// What a credential may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The client API.
    Client,
    /// The owner API.
    Owner,
    /// Settings and keys.
    Admin,
}

impl Scope {
    /// The scope's name in a key's row.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Client => "client",
            Scope::Owner => "owner",
            Scope::Admin => "admin",
        }
    }
}

/// A verified caller.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The tenant whose sessions it may see.
    pub tenant: TenantId,
    /// Which of the tenant's keys it showed.
    pub key: String,
    scopes: Arc<[String]>,
}

impl Caller {
    fn require(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes.iter().any(|has| has == scope.as_str()) {
            return Ok(());
        }
        let detail = format!("the credential lacks the scope {:?}", scope.as_str());
        Err(Problem::new(Code::Forbidden, detail))
    }
}

/// An API key in its parts. `Debug` does not show the secret.
pub struct ApiKey {
    /// Whose key.
    pub tenant: TenantId,
    /// Which of the tenant's keys.
    pub id: String,
    secret: String,
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ApiKey({}.{})", self.tenant, self.id)
    }
}

impl ApiKey {
    /// Reads a key; `None` if the text is not one.
    pub fn parse(text: &str) -> Option<ApiKey> {
        let (name, secret) = text.strip_prefix("keel_")?.rsplit_once('_')?;
        let (tenant, id) = name.rsplit_once('.')?;
        let is_valid = |part: &str| {
            (1..=128).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        if !is_valid(id) || !is_valid(secret) {
            return None;
        }
        Some(ApiKey { tenant: TenantId::parse(tenant).ok()?, id: id.to_owned(), secret: secret.to_owned() })
    }

    /// SHA-256 of the secret, in hex.
    pub fn hash(&self) -> String {
        keel_kernel::hex::sha256(self.secret.as_bytes(), 32)
    }
}

/// How long a row is cached.
const CACHED: Duration = Duration::from_secs(30);
/// How many rows are cached.
const CACHE_SIZE: usize = 10_000;

type Cache = Mutex<HashMap<(TenantId, String), (Instant, Option<ApiKeyRow>)>>;

/// Checks credentials.
#[derive(Clone, Debug)]
pub struct Auth {
    keys: TenantStore,
    cache: Arc<Cache>,
}

impl Auth {
    /// Keys are looked up in this store.
    pub fn new(keys: TenantStore) -> Self {
        Self { keys, cache: Arc::default() }
    }

    async fn caller(&self, parts: &http::HeaderMap) -> Result<Caller, Problem> {
        let unknown = || Problem::new(Code::Unauthenticated, "send Authorization: Bearer <API key>");
        let bearer = parts
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim())
            .ok_or_else(unknown)?;
        let key = ApiKey::parse(bearer).ok_or_else(unknown)?;
        let row = self.row(&key).await?.ok_or_else(unknown)?;
        // In constant time, although both sides are hashes, so that the time of a refusal reveals nothing.
        if !bool::from(row.hash.as_bytes().ct_eq(key.hash().as_bytes())) {
            return Err(unknown());
        }
        Ok(Caller { tenant: key.tenant, key: key.id, scopes: row.scopes.into() })
    }

    async fn row(&self, key: &ApiKey) -> Result<Option<ApiKeyRow>, Problem> {
        let name = (key.tenant.clone(), key.id.clone());
        if let Some((read_at, row)) = self.cache.lock().get(&name)
            && read_at.elapsed() < CACHED
        {
            return Ok(row.clone());
        }
        let row = self.keys.api_key(&key.tenant, &key.id).await?;
        let mut cache = self.cache.lock();
        if cache.len() >= CACHE_SIZE {
            cache.clear();
        }
        cache.insert(name, (Instant::now(), row.clone()));
        Ok(row)
    }
}

/// Lets requests with this scope through.
#[derive(Clone, Debug)]
pub struct Gate {
    auth: Auth,
    scope: Scope,
}

impl Gate {
    /// A gate that demands a scope.
    pub fn new(auth: Auth, scope: Scope) -> Self {
        Self { auth, scope }
    }
}

/// Lets a request through with its [`Caller`], or answers 401 or 403.
pub async fn pass(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let caller = match gate.auth.caller(request.headers()).await {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    if let Err(problem) = caller.require(gate.scope) {
        return problem.into_response();
    }
    tracing::Span::current().record("tenant", caller.tenant.as_str());
    request.extensions_mut().insert(caller);
    next.run(request).await
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or_else(|| Problem::new(Code::Unauthenticated, "this route has no gate"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_and_its_secret_is_not_shown() {
        let key = ApiKey::parse("keel_a_b.k1_not-a-secret").unwrap();
        assert_eq!((key.tenant.as_str(), key.id.as_str()), ("a_b", "k1"));
        assert_eq!(format!("{key:?}"), "ApiKey(a_b.k1)");
        for bad in [
            "",
            "keel_",
            "keel_a_b",
            "keel_a.b",
            "keel_a.b_",
            "keel_.b_c",
            "keel_a#.b_c",
            "other_a.b_c",
            "keel_a.b_c d",
        ] {
            assert!(ApiKey::parse(bad).is_none(), "{bad}");
        }
    }
}
