//! The context: what a request would show to the model. It is a projection of the ledger (L5), and names the inputs that
//! the next request presents (A1).
//!
//! Order in the context is not order in the ledger. An input stands where it was first answered: right before the
//! completed message that names it. Tool results stand behind their message, in the order of its calls. Failed messages
//! are left out (A3).

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{AssistantMessage, Delivery, Event, Facts, Kind, ToolCall};
use crate::head::LedgerState;
use crate::ids::{DedupeKey, Seq};
use crate::refusal::Refusal;

/// One entry of the context.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry<'a> {
    /// The summary that stands for everything before the first kept event.
    Summary(&'a Event),
    /// An input.
    User(&'a Event),
    /// A completed answer.
    Assistant(&'a Event),
    /// A tool's result.
    ToolResult(&'a Event),
    /// A superseded call: a later answer came before its result. Providers insist on a result, so the context shows an
    /// error.
    Orphan(&'a ToolCall),
}

/// A call of the latest answer without a result.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenCall<'a> {
    /// The call.
    pub call: &'a ToolCall,
    /// S4a: its message stopped at the token limit, so its arguments may be cut.
    pub cut: bool,
}

/// Why an event is not in the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// A3: a failed message.
    Failed,
    /// D2, D3: an input that enters the context later.
    Waiting,
    /// Summarised by a compaction.
    Compacted,
}

/// The context, and what the next step needs to know of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript<'a> {
    /// What the model sees, oldest first.
    pub entries: Vec<Entry<'a>>,
    /// A1: the inputs in it that no completed answer has named: the next request's inputSeqs.
    pub presented: Vec<Seq>,
    /// Calls of the latest answer that have no result yet.
    pub open_calls: Vec<OpenCall<'a>>,
    /// A3: the model owes a turn.
    pub owed_turn: bool,
    /// What the model does not see, and why.
    pub left_out: Vec<(Seq, LeftOut)>,
}

/// A session's events with their payloads checked once, for projecting again and again as the ledger grows.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<(Event, Facts)>,
    state: LedgerState,
}

impl History {
    /// A ledger that stands at `state`, with what of it a context can still show (K2): see [`LedgerState::shown`].
    ///
    /// # Errors
    /// A payload does not pass the rules it was committed under: the table was changed from outside.
    pub fn resume(state: LedgerState, events: Vec<Event>) -> Result<Self, Refusal> {
        let mut known = Vec::with_capacity(events.len());
        for event in events {
            let facts = Facts::read(event.kind, &event.payload)?;
            known.push((event, facts));
        }
        Ok(Self { events: known, state })
    }

    /// Appends the ledger's next event.
    ///
    /// # Errors
    /// The payload does not pass the rules it was committed under: the table was changed from outside.
    ///
    /// # Panics
    /// If the event is not the next one (L2).
    pub fn push(&mut self, event: Event) -> Result<(), Refusal> {
        assert_eq!(event.seq, self.state.seq.next(), "L2: a history has no gap");
        let facts = Facts::read(event.kind, &event.payload)?;
        self.state.apply(&event, &facts);
        self.events.push((event, facts));
        Ok(())
    }

    /// V2: the ids of all calls that its messages asked for, failed messages' too.
    pub fn call_ids(&self) -> impl Iterator<Item = &DedupeKey> {
        fn calls(facts: &Facts) -> &[ToolCall] {
            match facts {
                Facts::Assistant(message) => &message.calls,
                Facts::User(_)
                | Facts::Tool(_)
                | Facts::Compaction(_)
                | Facts::Finished(_)
                | Facts::External(_)
                | Facts::Reserved => &[],
            }
        }
        self.events.iter().flat_map(|(_, facts)| calls(facts)).map(|call| &call.id)
    }

    /// What the events determine.
    pub fn state(&self) -> &LedgerState {
        &self.state
    }

    /// The events, oldest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().map(|(event, _)| event)
    }

    /// The last position.
    pub fn seq(&self) -> Seq {
        self.state.seq
    }

    /// Where the event at a position is, if it is known.
    fn index_of(&self, seq: Seq) -> Option<usize> {
        self.events.binary_search_by_key(&seq, |(event, _)| event.seq).ok()
    }

    fn is_guide(&self, seq: Seq) -> bool {
        let facts = self.index_of(seq).map(|index| &self.events[index].1);
        matches!(facts, Some(Facts::User(message)) if message.delivery == Delivery::Guide)
    }

    /// D3: whether a guide that came since `watermark`, other than those in `presented`, waits to enter this run.
    pub fn guide_waits(&self, watermark: Option<Seq>, presented: &[Seq]) -> bool {
        let newer = self.state.unanswered.iter().filter(|seq| Some(**seq) > watermark);
        newer.into_iter().any(|seq| !presented.contains(seq) && self.is_guide(*seq))
    }

    /// The inputs that a request prepared now presents (D2, D3): those up to the watermark, and the oldest of the guides
    /// that came since.
    fn admitted(&self, watermark: Option<Seq>) -> BTreeSet<Seq> {
        let mut admitted: BTreeSet<Seq> =
            self.state.unanswered.iter().copied().filter(|seq| Some(*seq) <= watermark).collect();
        let newer = self.state.unanswered.iter().copied().filter(|seq| Some(*seq) > watermark);
        admitted.extend(newer.filter(|seq| self.is_guide(*seq)).take(1));
        admitted
    }

    /// Projects the context of a request prepared now, in a run whose readWatermark is `watermark` (D5).
    pub fn transcript(&self, watermark: Option<Seq>) -> Transcript<'_> {
        let admitted = self.admitted(watermark);
        let mut projection = Projection::new(&self.events);
        for (index, (event, facts)) in self.events.iter().enumerate() {
            match facts {
                Facts::Assistant(message) => projection.assistant(index, event, message),
                Facts::User(_)
                | Facts::Tool(_)
                | Facts::Compaction(_)
                | Facts::Finished(_)
                | Facts::External(_)
                | Facts::Reserved => {}
            }
        }
        let mut transcript = projection.transcript;
        transcript.owed_turn = self.state.owed_turn;
        for seq in &self.state.unanswered {
            if admitted.contains(seq)
                && let Some(index) = self.index_of(*seq)
            {
                transcript.entries.push(Entry::User(&self.events[index].0));
                transcript.presented.push(*seq);
            } else {
                transcript.left_out.push((*seq, LeftOut::Waiting));
            }
        }
        self.compact(&mut transcript);
        transcript
    }

    /// K1: the last compaction's summary takes the place of what stands before its first kept event. A result goes with
    /// its call, and an input that nobody had answered stays.
    fn compact<'a>(&'a self, transcript: &mut Transcript<'a>) {
        let Some(compacted) = &self.state.compacted else { return };
        let Some(index) = self.index_of(compacted.seq) else { return };
        let mut kept = vec![Entry::Summary(&self.events[index].0)];
        let mut keeps_answer = true;
        for entry in transcript.entries.drain(..) {
            let (seq, keeps) = match &entry {
                Entry::User(event) => (event.seq, compacted.keeps(event.seq)),
                Entry::Assistant(event) => {
                    keeps_answer = event.seq >= compacted.first_kept;
                    (event.seq, keeps_answer)
                }
                Entry::ToolResult(event) => (event.seq, keeps_answer),
                Entry::Orphan(_) if !keeps_answer => continue,
                Entry::Orphan(_) | Entry::Summary(_) => (Seq::ZERO, true),
            };
            if keeps {
                kept.push(entry);
            } else {
                transcript.left_out.push((seq, LeftOut::Compacted));
            }
        }
        transcript.entries = kept;
    }
}

struct Projection<'a> {
    events: &'a [(Event, Facts)],
    results: BTreeMap<&'a DedupeKey, usize>,
    last_answer: Option<usize>,
    shown: BTreeSet<Seq>,
    transcript: Transcript<'a>,
}

impl<'a> Projection<'a> {
    fn new(events: &'a [(Event, Facts)]) -> Self {
        let mut results = BTreeMap::new();
        let mut last_answer = None;
        for (index, (_, facts)) in events.iter().enumerate() {
            match facts {
                Facts::Tool(result) => {
                    results.insert(&result.tool_call_id, index);
                }
                Facts::Assistant(message) if !message.failed => last_answer = Some(index),
                Facts::Assistant(_)
                | Facts::User(_)
                | Facts::Compaction(_)
                | Facts::Finished(_)
                | Facts::External(_)
                | Facts::Reserved => {}
            }
        }
        let transcript = Transcript::default();
        Self { events, results, last_answer, shown: BTreeSet::new(), transcript }
    }

    fn assistant(&mut self, index: usize, event: &'a Event, message: &'a AssistantMessage) {
        if message.failed {
            self.transcript.left_out.push((event.seq, LeftOut::Failed)); // A3
            return;
        }
        for (input, _) in self.events[..index].iter().filter(|(input, _)| input.kind == Kind::UserMessage) {
            let named = message.input_seqs.iter().flatten().any(|seq| *seq == input.seq);
            let read = message.input_seqs.is_none() && Some(input.seq) <= event.watermark; // A4
            if (named || read) && self.shown.insert(input.seq) {
                self.transcript.entries.push(Entry::User(input));
            }
        }
        self.transcript.entries.push(Entry::Assistant(event));
        for call in &message.calls {
            match self.results.get(&call.id) {
                Some(result) => self.transcript.entries.push(Entry::ToolResult(&self.events[*result].0)),
                None if self.last_answer == Some(index) => {
                    self.transcript.open_calls.push(OpenCall { call, cut: message.cut });
                }
                None => self.transcript.entries.push(Entry::Orphan(call)),
            }
        }
    }
}
