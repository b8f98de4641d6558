//! Partials: chunks of a generation's text on their way to readers (R3), and which of them a reader may show (R3a).
//!
//! The partial text of a generation is a prefix of its final text, or the reader is told that the generation died. An
//! owner that was killed cannot say so; the ledger shows it, and [`PartialReader`] says it on its behalf.

use crate::event::{Event, Kind};
use crate::ids::Epoch;

/// One chunk of a generation's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialChunk {
    /// The epoch of the owner that generates: a successor's chunks sort behind its predecessor's, whatever their clocks.
    pub epoch: Epoch,
    /// The generation (R3a).
    pub generation: String,
    /// 0-based place of the chunk in its generation.
    pub index: u32,
    /// The text.
    pub text: String,
    /// Set on the last chunk of a generation that will not be committed: why.
    pub dead: Option<String>,
}

/// What a reader is to do with a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Show it.
    Show,
    /// Pass over it: its generation's final text was shown.
    Old,
    /// Stop here and read again later: a chunk before it is missing.
    Hole,
}

/// What a reader remembers of the partials: which chunks it has shown, and which generation may be dead.
#[derive(Debug, Default)]
pub struct PartialReader {
    /// The generation being read.
    reading: Option<Reading>,
    /// A generation whose owner was replaced before it ended: dead, unless the ledger turns out to hold it.
    orphan: Option<Reading>,
    /// The generation whose final text was delivered last: what is left of its chunks is old.
    committed: Option<String>,
}

/// A generation, as far as it was read.
#[derive(Debug)]
struct Reading {
    epoch: Epoch,
    generation: String,
    next: u32,
    /// Some of it was shown, and neither its message nor its end was.
    open: bool,
}

impl Reading {
    /// The last chunk, which says that the generation is dead, since its owner could not. `None` after the first time.
    fn dies(&mut self) -> Option<PartialChunk> {
        std::mem::take(&mut self.open).then(|| PartialChunk {
            epoch: self.epoch,
            generation: self.generation.clone(),
            index: self.next,
            text: String::new(),
            dead: Some("lost".to_owned()),
        })
    }
}

impl PartialReader {
    /// Takes the next chunk. Chunks are to come in the order of their sort keys.
    pub fn take(&mut self, chunk: &PartialChunk) -> Chunk {
        let reading = self.reading.take_if(|reading| reading.generation == chunk.generation);
        let is_next = chunk.index == reading.as_ref().map_or(0, |reading| reading.next);
        // A missing chunk comes with the next look, or never. Only the last chunk of a dead generation may follow a hole.
        if !is_next && chunk.dead.is_none() {
            self.reading = reading.or(self.reading.take());
            return Chunk::Hole;
        }
        if let Some(before) = self.reading.take()
            && before.epoch < chunk.epoch
        {
            self.orphan = Some(before);
        }
        let is_news = self.committed.as_deref() != Some(&chunk.generation);
        self.reading = Some(Reading {
            epoch: chunk.epoch,
            generation: chunk.generation.clone(),
            next: chunk.index + 1,
            open: is_news && chunk.dead.is_none(),
        });
        if is_news { Chunk::Show } else { Chunk::Old }
    }

    /// Takes a committed event. A generation of an earlier epoch, or of the attempt that the event ends, can no longer get
    /// its message, unless this is it. The chunks that say so are returned; they are to be shown before the event.
    pub fn committed(&mut self, event: &Event) -> Vec<PartialChunk> {
        let generation = match event.kind {
            Kind::AssistantMessage => event.payload.get("generationId").and_then(|id| id.as_str()),
            Kind::UserMessage
            | Kind::ToolResult
            | Kind::Compaction
            | Kind::RunFinished
            | Kind::ExternalEvent
            | Kind::RunStarted
            | Kind::RunFailed => None,
        };
        let mut dead = Vec::new();
        for reading in self.orphan.iter_mut().chain(&mut self.reading) {
            if generation.is_some_and(|generation| generation == reading.generation) {
                reading.open = false;
            } else if event.epoch > Some(reading.epoch)
                || (event.kind == Kind::RunFinished && event.epoch == Some(reading.epoch))
            {
                dead.extend(reading.dies());
            }
        }
        if generation.is_some() {
            self.committed = generation.map(str::to_owned);
        }
        dead
    }

    /// Whether a generation may be dead, and only a strong read of the ledger can tell.
    pub fn is_in_doubt(&self) -> bool {
        self.orphan.as_ref().is_some_and(|orphan| orphan.open)
    }

    /// Takes note that a strong read reached the ledger's end and did not find the generation in doubt. Its owner is
    /// fenced, so nothing more of it can come: the chunk that says so is to be shown.
    pub fn conclude(&mut self) -> Option<PartialChunk> {
        self.orphan.as_mut().and_then(Reading::dies)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::{CommitPlace, Payload};
    use crate::ids::{CommitId, Millis, Seq};

    fn chunk(epoch: u64, generation: &str, index: u32) -> PartialChunk {
        let (epoch, generation) = (Epoch(epoch), generation.to_owned());
        PartialChunk { epoch, generation, index, text: "t".to_owned(), dead: None }
    }

    fn event(kind: Kind, epoch: u64, payload: serde_json::Value) -> Event {
        Event {
            seq: Seq(1),
            kind,
            payload: Payload::from_value(&payload).unwrap(),
            ts: Millis(0),
            commit: CommitPlace { id: CommitId::parse("c").unwrap(), index: 0, size: 1 },
            epoch: Some(Epoch(epoch)),
            watermark: None,
        }
    }

    #[test]
    fn r3a_chunks_are_shown_without_a_hole_until_their_message_is_there() {
        let mut reader = PartialReader::default();
        assert_eq!(reader.take(&chunk(1, "g", 0)), Chunk::Show);
        assert_eq!(reader.take(&chunk(1, "g", 2)), Chunk::Hole);
        assert_eq!(reader.take(&chunk(1, "g", 1)), Chunk::Show);
        let message = event(Kind::AssistantMessage, 1, json!({ "generationId": "g" }));
        assert_eq!(reader.committed(&message), []);
        assert_eq!(reader.take(&chunk(1, "g", 2)), Chunk::Old);
    }

    #[test]
    fn r3a_a_generation_dies_with_its_run_its_epoch_or_by_the_ledgers_word() {
        let dies = |reader: &mut PartialReader, event: Event| {
            let dead = reader.committed(&event);
            assert_eq!(dead.len(), 1, "{event:?}");
            assert_eq!((dead[0].index, dead[0].dead.as_deref()), (1, Some("lost")));
            assert_eq!(reader.committed(&event), [], "said once");
        };
        let mut reader = PartialReader::default();
        reader.take(&chunk(1, "g", 0));
        dies(&mut reader, event(Kind::RunFinished, 1, json!({ "status": "failed" })));
        let mut reader = PartialReader::default();
        reader.take(&chunk(1, "g", 0));
        dies(&mut reader, event(Kind::ToolResult, 2, json!({ "toolCallId": "c" })));
        let mut reader = PartialReader::default();
        reader.take(&chunk(1, "g", 0));
        assert!(!reader.is_in_doubt());
        reader.take(&chunk(2, "h", 0));
        assert!(reader.is_in_doubt());
        assert_eq!(reader.conclude().map(|dead| dead.generation), Some("g".to_owned()));
        assert_eq!(reader.conclude(), None);
    }
}
