//! What commands look at before they decide, each read in one place.

use keel_kernel::decision::Decision;
use keel_kernel::{Head, Refusal, Session};

use super::{Ledger, LedgerError};
use crate::port::{Consistency, SessionKey};

/// What a command decides on.
pub(super) trait Subject: Sync {
    /// What a look shows.
    type Seen: Send + Sync;

    /// Reads it, as fresh as this.
    fn look(
        &self,
        ledger: &Ledger,
        at: &SessionKey,
        consistency: Consistency,
    ) -> impl Future<Output = Result<Self::Seen, LedgerError>> + Send;

    /// The head in it; `None`: there is no such session.
    fn head(seen: &Self::Seen) -> Option<&Head>;

    /// The same with this newer head and nothing else looked at; `None` where the rest must be read again too.
    fn with_head(head: Head) -> Option<Self::Seen>;
}

/// The head alone.
pub(super) struct OfHead;

impl Subject for OfHead {
    type Seen = Head;

    async fn look(
        &self,
        ledger: &Ledger,
        at: &SessionKey,
        consistency: Consistency,
    ) -> Result<Head, LedgerError> {
        match ledger.read_head(at, consistency).await? {
            Some(head) => Ok(head),
            // A session that was made a moment ago may be missing in an eventual read.
            None => ledger.head(at).await,
        }
    }

    fn head(seen: &Head) -> Option<&Head> {
        Some(seen)
    }

    fn with_head(head: Head) -> Option<Head> {
        Some(head)
    }
}

/// The head and one decision, by its id.
pub(super) struct OfDecision<'a>(pub(super) &'a str);

impl Subject for OfDecision<'_> {
    type Seen = (Head, Option<Decision>);

    /// The head first: an answer that comes between is seen (H1).
    async fn look(
        &self,
        ledger: &Ledger,
        at: &SessionKey,
        consistency: Consistency,
    ) -> Result<Self::Seen, LedgerError> {
        let head = OfHead.look(ledger, at, consistency).await?;
        Ok((head, ledger.read(|| ledger.store.decision(at, self.0, consistency)).await?))
    }

    fn head((head, _): &Self::Seen) -> Option<&Head> {
        Some(head)
    }

    fn with_head(_: Head) -> Option<Self::Seen> {
        None
    }
}

/// The head and all decisions of the session.
pub(super) struct OfDecisions;

impl Subject for OfDecisions {
    type Seen = (Head, Vec<Decision>);

    /// The head first: once it is closed, no decision is opened any more.
    async fn look(
        &self,
        ledger: &Ledger,
        at: &SessionKey,
        consistency: Consistency,
    ) -> Result<Self::Seen, LedgerError> {
        let head = OfHead.look(ledger, at, consistency).await?;
        Ok((head, ledger.read(|| ledger.store.decisions(at)).await?))
    }

    fn head((head, _): &Self::Seen) -> Option<&Head> {
        Some(head)
    }

    fn with_head(_: Head) -> Option<Self::Seen> {
        None
    }
}

/// The session: its description and its head.
pub(super) struct OfSession;

impl Subject for OfSession {
    type Seen = Session;

    async fn look(&self, ledger: &Ledger, at: &SessionKey, _: Consistency) -> Result<Session, LedgerError> {
        let found = ledger.read(|| ledger.store.session(at)).await?;
        found.ok_or(LedgerError::Refused(Refusal::NotFound))
    }

    fn head(seen: &Session) -> Option<&Head> {
        Some(&seen.head)
    }

    fn with_head(_: Head) -> Option<Session> {
        None
    }
}

/// The session, if there is one.
pub(super) struct OfNewSession;

impl Subject for OfNewSession {
    type Seen = Option<Session>;

    async fn look(
        &self,
        ledger: &Ledger,
        at: &SessionKey,
        _: Consistency,
    ) -> Result<Option<Session>, LedgerError> {
        ledger.read(|| ledger.store.session(at)).await
    }

    fn head(seen: &Option<Session>) -> Option<&Head> {
        seen.as_ref().map(|session| &session.head)
    }

    fn with_head(_: Head) -> Option<Option<Session>> {
        None
    }
}
