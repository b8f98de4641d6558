//! How a retry is told from a conflict (I3, I5, I6): a key that is taken, with the same digest, is an earlier submission
//! of the same event.

use keel_kernel::{DedupeKey, Event, KeyName, KeyRow, NewEvent, Refusal, Seq};

use super::engine::Job;
use super::{Ledger, LedgerError};
use crate::port::{Consistency, SessionKey};

impl Ledger {
    /// The rows of the job's keys that are taken.
    pub(super) async fn taken_keys(
        &self,
        at: &SessionKey,
        job: &Job<'_>,
    ) -> Result<Vec<KeyRow>, LedgerError> {
        let keys: Vec<(KeyName, DedupeKey)> =
            job.events.iter().filter_map(|event| event.key.clone()).collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.read_keys(at, &keys).await
    }

    /// Finds the events of the job that are in the ledger, by their keys that are taken: they are moved from `job.events`
    /// to `job.found`. True where this very commit wrote them.
    ///
    /// A commit is written whole. So where an event has the same place in a commit of the same size and kinds, that
    /// commit is this one, sent before, and its events without keys are in the ledger too.
    ///
    /// # Errors
    /// [`Refusal::IdempotencyConflict`]: a key is taken with another payload (I5).
    pub(super) async fn recognise(
        &self,
        at: &SessionKey,
        job: &mut Job<'_>,
        rows: Vec<KeyRow>,
    ) -> Result<bool, LedgerError> {
        let mut ours = false;
        for row in rows {
            let mine = |event: &NewEvent| {
                event.key.as_ref().is_some_and(|(name, key)| *name == row.name && *key == row.key)
            };
            let Some(index) = job.events.iter().position(mine) else { continue };
            let (_, digest) = job.events[index].sent()?;
            if digest != row.digest {
                let key = row.key.to_string();
                return Err(Refusal::IdempotencyConflict { name: row.name, key, seq: row.seq }.into()); // I5
            }
            ours |= row.commit == *job.id;
            let place = job.places[index];
            let first = self.read_commit(at, row.seq, 1).await?;
            let commit = &first[0].commit;
            if commit.size == job.size && commit.index == place && commit.size > 1 {
                let base = Seq(row.seq.0 - place as u64);
                let siblings = self.read_commit(at, base, commit.size).await?;
                if siblings.iter().zip(&job.events).all(|(old, new)| old.kind == new.kind) {
                    job.found.extend(siblings.into_iter().enumerate());
                    job.events.clear();
                    job.places.clear();
                    return Ok(ours);
                }
            }
            job.found.insert(place, first.into_iter().next().expect("read_commit reads at least one"));
            job.events.remove(index);
            job.places.remove(index);
        }
        Ok(ours)
    }

    /// `size` events from `from` on, which a key says are in the ledger.
    async fn read_commit(&self, at: &SessionKey, from: Seq, size: usize) -> Result<Vec<Event>, LedgerError> {
        let before = Seq(from.0 - 1);
        let page = self.page(at, before, size, Consistency::Strong).await?;
        if page.events.len() == size && page.events[0].seq == from {
            Ok(page.events)
        } else {
            Err(crate::StoreError::Corrupt(format!("a key names event {from}, which is not there")).into())
        }
    }
}
