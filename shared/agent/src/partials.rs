//! When the text of a generation is published as a chunk: often enough for readers, seldom enough for its cost. Pure: time
//! is an argument.

/// How long the first text of a chunk waits for more, in milliseconds, at the beginning of a generation: a reader waits for
/// it to begin.
const WAIT_MS: u64 = 100;
/// How many chunks of a generation are published at that pace.
const FAST: u32 = 10;
/// The wait from then on, in milliseconds: every chunk is a write, and a reader reads no faster than this.
const READING_MS: u64 = 250;
/// A chunk of this size is published at once, in bytes.
const FULL: usize = 1_024;

/// Collects deltas into chunks.
#[derive(Debug, Default)]
pub struct Chunker {
    text: String,
    since_ms: u64,
    given: u32,
}

impl Chunker {
    /// Takes a delta that came `now_ms` after some fixed moment; gives a chunk when it is full.
    pub fn push(&mut self, delta: &str, now_ms: u64) -> Option<String> {
        if self.text.is_empty() {
            self.since_ms = now_ms;
        }
        self.text.push_str(delta);
        (self.text.len() >= FULL).then(|| self.flush()).flatten()
    }

    /// When the collected text is due, on the clock of [`push`](Self::push).
    pub fn due_ms(&self) -> Option<u64> {
        let wait = if self.given < FAST { WAIT_MS } else { READING_MS };
        (!self.text.is_empty()).then_some(self.since_ms + wait)
    }

    /// The collected text, if any.
    pub fn flush(&mut self) -> Option<String> {
        if self.text.is_empty() {
            return None;
        }
        self.given += 1;
        Some(std::mem::take(&mut self.text))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn r3a_chunks_joined_are_the_deltas_joined(deltas in prop::collection::vec((".{0,400}", 0_u64..300), 0..40)) {
            let (mut chunker, mut now, mut joined) = (Chunker::default(), 0, String::new());
            for (delta, pause) in &deltas {
                now += pause;
                if chunker.due_ms().is_some_and(|due| due <= now) {
                    joined.extend(chunker.flush());
                }
                joined.extend(chunker.push(delta, now));
                if let Some(due) = chunker.due_ms() {
                    prop_assert!((now..=now + READING_MS).contains(&due), "a text is never held longer than the wait");
                }
            }
            joined.extend(chunker.flush());
            prop_assert_eq!(joined, deltas.iter().map(|(delta, _)| delta.as_str()).collect::<String>());
        }
    }
}
