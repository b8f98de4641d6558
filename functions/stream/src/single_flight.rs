//! Single flight: readers that ask the same at the same time share one read of the store.
//!
//! An answer is shared only with those who asked before its read began. So each sees at least what a read of its own would
//! have shown: a reader that is notified of a commit sees that commit.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An answer, with the number that was drawn when its read began.
type Slot<T> = tokio::sync::Mutex<Option<(u64, Arc<T>)>>;

pub(crate) struct SingleFlight<K, T> {
    numbers: AtomicU64,
    slots: Mutex<HashMap<K, Arc<Slot<T>>>>,
}

impl<K, T> Default for SingleFlight<K, T> {
    fn default() -> Self {
        Self { numbers: AtomicU64::new(0), slots: Mutex::default() }
    }
}

impl<K: Eq + Hash + Clone, T> SingleFlight<K, T> {
    /// Gives the answer of a read that began after this call did: another caller's, or that of `read`.
    ///
    /// The read is boxed, so that a caller that waits for another's answer keeps no memory for a read of its own.
    pub(crate) async fn run<E, F>(&self, key: K, read: impl FnOnce() -> F) -> Result<Arc<T>, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        let asked = self.draw();
        let participant = self.join(key);
        let mut last = participant.slot.lock().await;
        if let Some((began, answer)) = &*last
            && *began > asked
        {
            return Ok(Arc::clone(answer));
        }
        let began = self.draw();
        let answer = Arc::new(Box::pin(read()).await?);
        *last = Some((began, Arc::clone(&answer)));
        Ok(answer)
    }

    fn draw(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::SeqCst)
    }

    fn join(&self, key: K) -> Participant<'_, K, T> {
        let mut slots = self.slots.lock();
        let slot = Arc::clone(slots.entry(key.clone()).or_default());
        Participant { single_flight: self, key, slot }
    }
}

/// A caller that waits for an answer. When the last one for a key is dropped, the answer is dropped with it.
struct Participant<'a, K: Eq + Hash, T> {
    single_flight: &'a SingleFlight<K, T>,
    key: K,
    slot: Arc<Slot<T>>,
}

impl<K: Eq + Hash, T> Drop for Participant<'_, K, T> {
    fn drop(&mut self) {
        let mut slots = self.single_flight.slots.lock();
        // Two are left: the map's and this one. Nobody can get another without the map, which is locked.
        if Arc::strong_count(&self.slot) == 2 {
            slots.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::future::join_all;
    use tokio::task::yield_now;

    use super::*;

    /// The store: how often it was asked, and what it holds.
    #[derive(Default)]
    struct Store {
        asked: AtomicU64,
        holds: AtomicU64,
    }

    impl Store {
        /// Sees what is there when it begins, and takes its time.
        async fn read(&self) -> Result<u64, Infallible> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let seen = self.holds.load(Ordering::SeqCst);
            yield_now().await;
            Ok(seen)
        }
    }

    #[tokio::test]
    async fn r6_many_ask_together_and_the_store_is_asked_once_and_nothing_is_left() {
        let (single_flight, store) = (SingleFlight::default(), Store::default());
        let asks = (0..100).map(|_| single_flight.run("s", || store.read()));
        let answers = join_all(asks).await;
        assert!(answers.iter().all(|answer| **answer.as_ref().unwrap() == 0));
        // The first began before the others asked, so it is not theirs; the second is everybody else's.
        assert_eq!(store.asked.load(Ordering::SeqCst), 2);
        assert!(single_flight.slots.lock().is_empty());
    }

    #[tokio::test]
    async fn r6_who_asks_after_a_commit_sees_it_though_an_older_look_is_under_way() {
        let (single_flight, store) = (SingleFlight::default(), Store::default());
        let before = single_flight.run("s", || store.read());
        let after = async {
            yield_now().await; // the first look is under way
            store.holds.store(1, Ordering::SeqCst);
            single_flight.run("s", || store.read()).await
        };
        let (before, after) = tokio::join!(before, after);
        assert_eq!((*before.unwrap(), *after.unwrap()), (0, 1));
    }

    #[tokio::test]
    async fn a_reader_that_goes_away_leaves_the_others_their_look() {
        let (single_flight, store) = (SingleFlight::default(), Store::default());
        let gone = tokio::time::timeout(
            std::time::Duration::ZERO,
            single_flight.run("s", std::future::pending::<Result<u64, Infallible>>),
        );
        let (gone, stays) = tokio::join!(gone, single_flight.run("s", || store.read()));
        assert!(gone.is_err());
        assert_eq!(*stays.unwrap(), 0);
        assert!(single_flight.slots.lock().is_empty());
    }
}
