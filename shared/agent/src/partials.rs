//! When token text becomes a chunk: often enough to read along, seldom enough to pay for. Pure: time is an argument.

/// The first text of a chunk waits this long for more, in milliseconds: at first somebody waits to see it begin.
const WAIT_MS: u64 = 100;
/// So many chunks of a generation go so fast.
const FAST: u32 = 10;
/// From then on somebody reads, no faster than this, and every chunk is a write.
const READING_MS: u64 = 250;
/// A chunk this long waits no longer, in bytes.
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

    /// When the text at hand is due, on the clock of [`push`](Self::push).
    pub fn due_ms(&self) -> Option<u64> {
        let wait = if self.given < FAST { WAIT_MS } else { READING_MS };
        (!self.text.is_empty()).then_some(self.since_ms + wait)
    }

    /// The text at hand, if any.
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
