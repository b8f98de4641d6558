//! What commands look at before they decide: the head alone, or the head with rows beside it. Each is read in one place,
//! in the order that its rule needs.

use keel_kernel::decision::Decision;
use keel_kernel::{Head, Refusal, Session};

use super::{Ledger, LedgerError};
use crate::port::{Consistency, SessionKey};

/// What a command decides on.
pub(super) trait ReadSet: Sync {
    /// What a look shows.
    type Seen: Send + Sync;

    /// Reads it with this consistency.
    fn look(
        &self,
        ledger: &Ledger,
        at: &SessionKey,
        consistency: Consistency,
    ) -> impl Future<Output = Result<Self::Seen, LedgerError>> + Send;

    /// The head in it; `None`: there is no such session.
    fn head(seen: &Self::Seen) -> Option<&Head>;

    /// What a look would show, made of this newer head alone; `None` where there is more to it, which must be read again.
    fn with_head(head: Head) -> Option<Self::Seen>;
}

/// The head alone.
pub(super) struct OfHead;

impl ReadSet for OfHead {
    type Seen = Head;

    async fn look(
        &self,
        ledger: &Ledger,
        at: &SessionKey,
        consistency: Consistency,
    ) -> Result<Head, LedgerError> {
        match ledger.read_head(at, consistency).await? {
            Some(head) => Ok(head),
            // An eventual read may not show a session that was made a moment ago.
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

impl ReadSet for OfDecision<'_> {
    type Seen = (Head, Option<Decision>);

    /// The head is read first: an answer that comes between the two reads is then seen (H1).
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

impl ReadSet for OfDecisions {
    type Seen = (Head, Vec<Decision>);

    /// The head is read first: where it is closed, no decision is opened after that.
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

impl ReadSet for OfSession {
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

impl ReadSet for OfNewSession {
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
