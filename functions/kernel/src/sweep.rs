//! The sweep: hints are never the truth, so this looks at the index of due runs and sends again what got lost.
//!
//! Its work is bounded: so many rows per index partition and call. A partition with more is continued at the next call,
//! and a hint that was sent twice costs a failed claim.

use keel_kernel::Millis;
use keel_kernel::run::{self, Sweep};
use keel_ledger::dynamo::Dynamo;
use keel_ledger::dynamo::keys::DUE_SHARDS;
use keel_ledger::{Ledger, StoreError};

/// Rows looked at in one index partition in one call.
const ROWS_PER_SHARD: usize = 200;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Sessions looked at.
    pub looked_at: usize,
    /// Hints sent.
    pub hinted: usize,
}

/// Looks at every index partition once, for what is due now.
pub async fn sweep(ledger: &Ledger, rows: &Dynamo) -> Result<Swept, StoreError> {
    look(ledger, rows, ledger.env().now()).await
}

/// Looks at everything that will ever be due, with a hint for later where a lease or a backoff still runs: for a process
/// that starts where another was killed, and knows that its hints died with it.
pub async fn recover(ledger: &Ledger, rows: &Dynamo) -> Result<Swept, StoreError> {
    look(ledger, rows, Millis(u64::MAX)).await
}

async fn look(ledger: &Ledger, rows: &Dynamo, due: Millis) -> Result<Swept, StoreError> {
    let now = ledger.env().now();
    let mut swept = Swept::default();
    for shard in 0..DUE_SHARDS {
        for (at, head) in rows.due(shard, due, ROWS_PER_SHARD).await? {
            swept.looked_at += 1;
            match run::sweep(&head, now) {
                Sweep::Hint => {
                    swept.hinted += 1;
                    ledger.hint(&at, 0).await;
                }
                Sweep::Later(until) if due > now => {
                    swept.hinted += 1;
                    ledger.hint(&at, until.since(now) + 1).await;
                }
                Sweep::Later(_) | Sweep::Leave => {}
            }
        }
    }
    if swept.hinted > 0 {
        tracing::info!(looked_at = swept.looked_at, hinted = swept.hinted, "the sweep sent hints");
    }
    Ok(swept)
}
