//! The events of a command. Some fit the session's state, some do not.

use keel_kernel::{KeyName, Kind, NewEvent};
use serde_json::json;

use super::Model;
use super::commands::{Command, Inputs, Own, Stop};
use crate::support::{event, key};

impl Model {
    fn own(&self, events: &[Own]) -> Vec<NewEvent> {
        let mut made = Vec::new();
        for own in events {
            made.push(match own {
                Own::Answer { generation, inputs, calls, stop } => {
                    self.answer(*generation, *inputs, calls, *stop)
                }
                Own::Result { call, open, text } => {
                    let waiting = &self.session.head.ledger.open_calls;
                    let chosen = waiting.iter().cycle().nth(usize::from(*call)).filter(|_| *open);
                    let id = chosen.map_or(format!("c{call}"), ToString::to_string);
                    let value = json!({ "toolCallId": id, "text": text });
                    event(Kind::ToolResult, &value, Some((KeyName::ToolCallId, key(&id))))
                }
                Own::Compaction { keep } => {
                    let first = (self.session.events.len() as u64 + 1).saturating_sub((*keep).into());
                    event(Kind::Compaction, &json!({ "summary": "s", "firstKeptSeq": first }), None)
                }
                Own::Finished => event(Kind::RunFinished, &json!({ "status": "done" }), None),
            });
        }
        made
    }

    fn answer(&self, generation: u8, inputs: Inputs, calls: &[u8], stop: Stop) -> NewEvent {
        let unanswered: Vec<u64> = self.session.unanswered();
        let inputs: Option<Vec<u64>> = match inputs {
            Inputs::Presented => {
                let history = self.session.history();
                let presented = history.transcript(self.session.head.run.watermark).presented;
                Some(presented.iter().map(|seq| seq.0).collect())
            }
            Inputs::Some(bits) => {
                let chosen = unanswered.iter().enumerate().filter(|(at, _)| bits >> (at % 8) & 1 == 1);
                Some(chosen.map(|(_, seq)| *seq).collect())
            }
            Inputs::Wrong(seq) => Some(vec![seq]),
            Inputs::Absent => None,
        };
        let stop = match stop {
            Stop::Completed => "end_turn",
            Stop::Cut => "max_tokens",
            Stop::Failed => "error",
            Stop::Aborted => "aborted",
        };
        let mut ids: Vec<String> = calls.iter().map(|call| format!("c{call}")).collect();
        ids.dedup();
        let content: Vec<_> =
            ids.iter().map(|id| json!({ "type": "toolCall", "id": id, "name": "t" })).collect();
        let generation = format!("g{generation}");
        let mut value = json!({ "generationId": generation, "content": content, "stopReason": stop });
        if let Some(inputs) = inputs {
            value["inputSeqs"] = json!(inputs);
        }
        event(Kind::AssistantMessage, &value, Some((KeyName::GenerationId, key(&generation))))
    }

    /// The events of a command, without those of a settle that the ledger holds already (I6).
    pub(super) fn events_of(&self, command: &Command) -> Vec<NewEvent> {
        match command {
            Command::Input { key: id, text, guide } => {
                let delivery = if *guide { "guide" } else { "queue" };
                let value = json!({ "text": text.to_string(), "delivery": delivery });
                vec![event(Kind::UserMessage, &value, Some((KeyName::RequestId, key(&format!("r{id}")))))]
            }
            Command::External { key: id, text } => {
                let id = format!("x{id}");
                let value = json!({ "backend": "b", "externalRef": text.to_string(), "requestId": id });
                vec![event(Kind::ExternalEvent, &value, Some((KeyName::RequestId, key(&id))))]
            }
            Command::Own { events, .. } => self.own(events),
            Command::Settle { events, .. } => {
                let mut events = self.own(events);
                events.retain(|new| new.key.as_ref().is_none_or(|key| !self.session.keys.contains_key(key)));
                events
            }
            Command::Claim { .. }
            | Command::Renew { .. }
            | Command::Release { .. }
            | Command::Park { .. }
            | Command::Nudge
            | Command::Queue
            | Command::Cancel
            | Command::Close
            | Command::Pass { .. } => Vec::new(),
        }
    }
}
