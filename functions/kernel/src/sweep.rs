//! The sweep: it reads the due index and sends a hint for each run that needs an owner, since its first hint may be
//! lost. For a child whose run has ended it nudges the parent (H4).
//!
//! One call reads a limited number of pages, and the next call goes on where it stopped. So due runs that need nothing
//! (long ones, whose leases hold) never keep the sweep from those after them. A hint too many costs a failed claim.

use parking_lot::Mutex;

use keel_env::metric;
use keel_kernel::Millis;
use keel_kernel::run::{self, Sweep};
use keel_ledger::keys::DUE_SHARDS;
use keel_ledger::port::DuePlace;
use keel_ledger::{Ledger, LedgerError};
use tracing::Instrument as _;

/// Sessions on one page of the due index.
const PAGE: usize = 200;
/// Pages of one call: with the reads of the heads some 100 round trips, well within the minute until the next call.
const PAGES: usize = 32;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Sessions looked at.
    pub looked_at: usize,
    /// Hints sent.
    pub hinted: usize,
    /// It stopped at its limit of pages. The next call goes on from there.
    pub more: bool,
}

/// Sweeps call by call, and remembers where it stopped.
pub struct Sweeper {
    ledger: Ledger,
    pages: usize,
    place: Mutex<Place>,
}

/// Where the next page begins.
#[derive(Clone, Debug, Default)]
struct Place {
    shard: u8,
    after: Option<DuePlace>,
}

impl Sweeper {
    /// A sweeper that begins at a random partition, so that many short-lived ones together look at all partitions.
    pub fn new(ledger: Ledger) -> Self {
        let shard = ledger.env().pick(0..=u64::from(DUE_SHARDS - 1));
        let place = Place { shard: u8::try_from(shard).unwrap_or(0), after: None };
        Self { ledger, pages: PAGES, place: Mutex::new(place) }
    }

    /// The same sweeper with another limit for each call, in pages of 200 sessions.
    #[must_use]
    pub fn with_pages(self, pages: usize) -> Self {
        Self { pages, ..self }
    }

    /// Looks at the sessions that are due now.
    pub async fn sweep(&self) -> Result<Swept, LedgerError> {
        self.look(self.ledger.env().now(), self.pages).await
    }

    /// Looks at every session in the index, whenever it is due. Where a lease or a backoff still runs, the hint is held
    /// back until it ends. It is for a process that starts after another one was killed: the hints of that one are lost.
    pub async fn recover(&self) -> Result<Swept, LedgerError> {
        self.look(Millis(u64::MAX), usize::MAX).await
    }

    async fn look(&self, due: Millis, pages: usize) -> Result<Swept, LedgerError> {
        let mut place = self.place.lock().clone();
        let mut swept = Swept { more: true, ..Swept::default() };
        let mut ended = 0;
        for _ in 0..pages {
            let page = self.ledger.due(place.shard, due, PAGE, place.after.take()).await?;
            for (at, head) in page.sessions {
                swept.looked_at += 1;
                let span = tracing::error_span!("due", tenant = %at.tenant, session = %at.session);
                swept.hinted += usize::from(self.hint(&at, &head, due).instrument(span).await);
            }
            place.after = page.next;
            if place.after.is_none() {
                place.shard = (place.shard + 1) % DUE_SHARDS;
                ended += 1;
            }
            if ended == DUE_SHARDS {
                swept.more = false;
                break;
            }
        }
        *self.place.lock() = place;
        metric::count(metric::name::SWEPT, swept.looked_at as u64);
        metric::count(metric::name::SWEEP_HINTED, swept.hinted as u64);
        tracing::info!(
            looked_at = swept.looked_at,
            hinted = swept.hinted,
            more = swept.more,
            "the sweep has looked at due sessions"
        );
        Ok(swept)
    }

    /// H4: nudges the parent about an end of this child, which the process that ended the run did not do.
    async fn tell_parent(&self, at: &keel_ledger::SessionKey, head: &keel_kernel::Head) {
        let Some(parent) = &head.parent else { return };
        if let Err(error) = self.ledger.tell_parent(at, parent).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a parent could not be nudged about the end of a child's run; the next sweep will do it"
            );
        }
    }

    /// Does what the rule says about a due session. True: a hint was sent.
    async fn hint(&self, at: &keel_ledger::SessionKey, head: &keel_kernel::Head, due: Millis) -> bool {
        let now = self.ledger.env().now();
        let after_ms = match run::sweep(head, now) {
            Sweep::TellParent => {
                self.tell_parent(at, head).await;
                return false;
            }
            Sweep::Hint => 0,
            Sweep::Later(until) if due > now => until.since(now) + 1,
            Sweep::Later(_) | Sweep::Leave => return false,
        };
        self.ledger.hint(at, after_ms).await;
        true
    }
}
