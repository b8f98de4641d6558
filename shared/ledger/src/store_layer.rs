//! A store over another one, for tests that change a few of its calls. All other calls are passed on.

use async_trait::async_trait;
use keel_kernel::decision::Decision;
use keel_kernel::event::KeyName;
use keel_kernel::partial::PartialChunk;
use keel_kernel::{DedupeKey, Head, KeyRow, Millis, Seq, Session, SessionDescription, Transition};

use crate::port::{
    Consistency, DuePage, DuePlace, EventPage, PartialPage, SessionKey, Store, StoreError, Written,
};

/// A store that changes some calls of the one below. Whatever implements this is a [`Store`].
#[async_trait]
pub trait StoreLayer: Send + Sync {
    /// The store below.
    fn below(&self) -> &dyn Store;

    /// See [`Store::head`].
    async fn head(&self, at: &SessionKey, consistency: Consistency) -> Result<Option<Head>, StoreError> {
        self.below().head(at, consistency).await
    }

    /// See [`Store::write`].
    async fn write(
        &self,
        at: &SessionKey,
        before: Option<&Head>,
        transition: &Transition,
        token: &str,
    ) -> Result<Written, StoreError> {
        self.below().write(at, before, transition, token).await
    }

    /// See [`Store::events`].
    async fn events(
        &self,
        at: &SessionKey,
        after: Seq,
        limit: usize,
        consistency: Consistency,
    ) -> Result<EventPage, StoreError> {
        self.below().events(at, after, limit, consistency).await
    }

    /// See [`Store::decisions`].
    async fn decisions(&self, at: &SessionKey) -> Result<Vec<Decision>, StoreError> {
        self.below().decisions(at).await
    }
}

#[async_trait]
impl<L: StoreLayer> Store for L {
    async fn head(&self, at: &SessionKey, consistency: Consistency) -> Result<Option<Head>, StoreError> {
        StoreLayer::head(self, at, consistency).await
    }

    async fn description(&self, at: &SessionKey) -> Result<Option<SessionDescription>, StoreError> {
        self.below().description(at).await
    }

    async fn session(&self, at: &SessionKey) -> Result<Option<Session>, StoreError> {
        self.below().session(at).await
    }

    async fn sessions(&self, at: &[SessionKey]) -> Result<Vec<Session>, StoreError> {
        self.below().sessions(at).await
    }

    async fn write(
        &self,
        at: &SessionKey,
        before: Option<&Head>,
        transition: &Transition,
        token: &str,
    ) -> Result<Written, StoreError> {
        StoreLayer::write(self, at, before, transition, token).await
    }

    async fn keys(&self, at: &SessionKey, keys: &[(KeyName, DedupeKey)]) -> Result<Vec<KeyRow>, StoreError> {
        self.below().keys(at, keys).await
    }

    async fn events(
        &self,
        at: &SessionKey,
        after: Seq,
        limit: usize,
        consistency: Consistency,
    ) -> Result<EventPage, StoreError> {
        StoreLayer::events(self, at, after, limit, consistency).await
    }

    async fn decision(
        &self,
        at: &SessionKey,
        id: &str,
        consistency: Consistency,
    ) -> Result<Option<Decision>, StoreError> {
        self.below().decision(at, id, consistency).await
    }

    async fn decisions(&self, at: &SessionKey) -> Result<Vec<Decision>, StoreError> {
        StoreLayer::decisions(self, at).await
    }

    async fn children(&self, at: &SessionKey) -> Result<Vec<SessionKey>, StoreError> {
        self.below().children(at).await
    }

    async fn due(
        &self,
        shard: u8,
        now: Millis,
        limit: usize,
        after: Option<DuePlace>,
    ) -> Result<DuePage, StoreError> {
        self.below().due(shard, now, limit, after).await
    }

    async fn put_partial(
        &self,
        at: &SessionKey,
        now: Millis,
        chunk: &PartialChunk,
    ) -> Result<(), StoreError> {
        self.below().put_partial(at, now, chunk).await
    }

    async fn partials(&self, at: &SessionKey, after: &str) -> Result<PartialPage, StoreError> {
        self.below().partials(at, after).await
    }

    async fn partials_from_now(&self, at: &SessionKey) -> Result<String, StoreError> {
        self.below().partials_from_now(at).await
    }
}
