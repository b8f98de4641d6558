//! A model that follows a script: deterministic, free, and controlled by the newest input's text.
//!
//! Without a script it repeats what is new in the context. A script is one directive a line:
//!
//! | directive | does |
//! |---|---|
//! | `!say TEXT` | says TEXT, word by word |
//! | `!delay MS` | waits before the first word |
//! | `!stream WORDS MS` | says that many words, MS apart |
//! | `!tool NAME {json}` | calls a tool; several lines are parallel calls (ids repeat from turn to turn, as models' do) |
//! | `!limit` | stops at the token limit; calls before it are cut |
//! | `!error TEXT` | fails |
//! | `!fail N` | fails in the first N attempts |
//! | `!overflow N` | fails, as if the request were too long, if it has more than N words |
//! | `!hang` | never ends |
//! | `!then` | what follows is for the next turn |
//!
//! In a turn past the last section it repeats the tools' results. Asked for a summary, it counts the words it was given.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use serde_json::Value;

use super::{Block, Delta, Message, ModelAnswer, Provider, Request, StopReason, Usage, text_of};
use crate::compact;

/// The provider's and the model's name.
pub const NAME: &str = "fake";

/// The fake provider.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fake;

impl Provider for Fake {
    fn name(&self) -> &str {
        NAME
    }

    fn model(&self, _wanted: Option<&str>) -> String {
        NAME.to_owned()
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Delta> {
        stream::unfold(play(&request), |mut steps| async move {
            loop {
                match steps.pop_front()? {
                    Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                    Step::Hang => std::future::pending().await,
                    Step::Give(delta) => return Some((delta, steps)),
                }
            }
        })
        .boxed()
    }
}

#[derive(Debug, PartialEq)]
enum Step {
    Wait(u64),
    Hang,
    Give(Delta),
}

/// The steps that answer a request.
fn play(request: &Request) -> VecDeque<Step> {
    let messages = &request.messages;
    if request.system.as_deref() == Some(compact::INSTRUCTIONS) {
        let mut playing = Playing::default();
        let total = messages.iter().map(message_words).sum::<u64>();
        playing.say(&format!("A summary of {total} words."));
        return playing.end(request);
    }
    let newest = messages.iter().rposition(|message| matches!(message, Message::User(_)));
    let script = newest.map_or(String::new(), |index| match &messages[index] {
        Message::User(payload) => text_of(payload),
        Message::Summary(_) | Message::Assistant(_) | Message::ToolResult(_) => String::new(),
    });
    let turn = messages[newest.unwrap_or(0)..].iter().filter(|m| matches!(m, Message::Assistant(_))).count();
    let directives: Vec<&str> = script.lines().map(str::trim).filter(|line| line.starts_with('!')).collect();
    let mut turns = directives.split(|line| *line == "!then");
    let mut playing = Playing::default();
    match turns.nth(turn) {
        Some(section) if !directives.is_empty() => {
            for line in section {
                playing.follow(line, request);
            }
        }
        _ => playing.say(&repeat_new(messages)),
    }
    playing.end(request)
}

/// What is new since the last answer.
fn repeat_new(messages: &[Message]) -> String {
    let last = messages.iter().rposition(|message| matches!(message, Message::Assistant(_)));
    let new = &messages[last.map_or(0, |index| index + 1)..];
    let mut inputs = Vec::new();
    let mut results = Vec::new();
    for message in new {
        match message {
            Message::User(payload) => inputs.push(text_of(payload)),
            Message::ToolResult(payload) => results.push(text_of(payload)),
            Message::Summary(_) | Message::Assistant(_) => {}
        }
    }
    match (inputs.is_empty(), results.is_empty()) {
        (false, _) => format!("You said: {}", inputs.join(" | ")),
        (true, false) => format!("The tools said: {}", results.join(" | ")),
        (true, true) => "There is nothing new.".to_owned(),
    }
}

#[derive(Default)]
struct Playing {
    steps: VecDeque<Step>,
    text: String,
    calls: Vec<Block>,
    stop: Option<StopReason>,
    error: Option<String>,
    overflow: bool,
}

fn words(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

fn message_words(message: &Message) -> u64 {
    match message {
        Message::Summary(text) => words(text),
        Message::User(payload) | Message::Assistant(payload) | Message::ToolResult(payload) => {
            words(&text_of(payload))
        }
    }
}

fn request_words(request: &Request) -> u64 {
    request.messages.iter().map(message_words).sum()
}

impl Playing {
    fn follow(&mut self, line: &str, request: &Request) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = |text: Option<&str>| text.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        match verb {
            "!say" => self.say(rest),
            "!delay" => self.steps.push_back(Step::Wait(number(Some(rest)))),
            "!stream" => {
                let mut numbers = rest.split(' ');
                let (words, ms) = (number(numbers.next()), number(numbers.next()));
                for word in 0..words.min(100_000) {
                    self.give(format!("word{word} "));
                    self.steps.push_back(Step::Wait(ms));
                }
            }
            "!tool" => {
                let (name, arguments) = rest.split_once(' ').unwrap_or((rest, "{}"));
                let arguments =
                    serde_json::from_str(arguments).unwrap_or_else(|_| Value::String(arguments.into()));
                let id = format!("call_{}", self.calls.len());
                self.calls.push(Block::ToolCall { id, name: name.to_owned(), arguments });
            }
            "!limit" => self.stop = Some(StopReason::MaxTokens),
            "!hang" => self.steps.push_back(Step::Hang),
            "!error" => self.fail(rest),
            "!fail" if u64::from(request.attempt) <= number(Some(rest)) => self.fail("it fails for now"),
            "!fail" => {}
            "!overflow" if request_words(request) > number(Some(rest)) => {
                self.fail("the request is longer than the window");
                self.overflow = true;
            }
            "!overflow" => {}
            unknown => self.say(&format!("(no directive {unknown})")),
        }
    }

    fn say(&mut self, text: &str) {
        for word in text.split_inclusive(' ') {
            self.give(word.to_owned());
        }
    }

    fn give(&mut self, text: String) {
        self.text.push_str(&text);
        self.steps.push_back(Step::Give(Delta::Text(text)));
    }

    fn fail(&mut self, error: &str) {
        self.stop = Some(StopReason::Error);
        self.error = Some(error.to_owned());
    }

    fn end(mut self, request: &Request) -> VecDeque<Step> {
        if self.text.is_empty() && self.calls.is_empty() && self.error.is_none() {
            self.say("Done.");
        }
        let default = if self.calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
        let usage = Usage { input: request_words(request), output: words(&self.text), ..Usage::default() };
        let mut content = Vec::new();
        if !self.text.is_empty() {
            content.push(Block::Text { text: self.text });
        }
        content.extend(self.calls);
        let stop_reason = self.stop.unwrap_or(default);
        let done = ModelAnswer { content, stop_reason, usage, error: self.error, overflow: self.overflow };
        self.steps.push_back(Step::Give(Delta::Done(done)));
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(messages: Vec<Message>, attempt: u32) -> Request {
        Request { model: None, system: None, messages, tools: Vec::new(), attempt, generation_id: "g".into() }
    }

    fn user(text: &str) -> Message {
        Message::User(json!({ "text": text }))
    }

    async fn play_to_end(messages: Vec<Message>, attempt: u32) -> (String, ModelAnswer) {
        let deltas: Vec<Delta> = Fake.stream(request(messages, attempt)).collect().await;
        let mut text = String::new();
        for delta in deltas {
            match delta {
                Delta::Text(more) => text.push_str(&more),
                Delta::Done(done) => return (text, done),
            }
        }
        panic!("a stream ends with Done");
    }

    #[tokio::test(start_paused = true)]
    async fn it_repeats_what_is_new() {
        let (text, done) =
            play_to_end(vec![user("a"), Message::Assistant(json!({})), user("b"), user("c")], 1).await;
        assert_eq!(text, "You said: b | c");
        assert_eq!(done.content, [Block::Text { text }]);
        assert_eq!(done.stop_reason, StopReason::EndTurn);
    }

    #[tokio::test(start_paused = true)]
    async fn each_directive_does_what_the_table_says() {
        let start = tokio::time::Instant::now();
        let script = "!delay 500\n!say one two\n!stream 2 10\n!tool echo {\"x\":1}\n!tool sleep\n!then\n!error no\n!then\n!limit";
        let (text, done) = play_to_end(vec![user(script)], 1).await;
        assert_eq!(text, "one twoword0 word1 ");
        assert_eq!(start.elapsed(), Duration::from_millis(520));
        assert_eq!(done.stop_reason, StopReason::ToolUse);
        let call =
            |id: &str, name: &str, arguments| Block::ToolCall { id: id.into(), name: name.into(), arguments };
        assert_eq!(
            done.content[1..],
            [call("call_0", "echo", json!({"x":1})), call("call_1", "sleep", json!({}))]
        );
        let then = |n: usize| {
            std::iter::once(user(script)).chain((0..n).map(|_| Message::Assistant(json!({})))).collect()
        };
        assert_eq!(play_to_end(then(1), 1).await.1.error.as_deref(), Some("no"));
        assert_eq!(play_to_end(then(2), 1).await.1.stop_reason, StopReason::MaxTokens);
        let mut with_result: Vec<Message> = then(3);
        with_result.push(Message::ToolResult(json!({"content":[{"type":"text","text":"42"}]})));
        assert_eq!(play_to_end(with_result, 1).await.0, "The tools said: 42");
        assert_eq!(play_to_end(vec![user("!fail 2")], 2).await.1.stop_reason, StopReason::Error);
        assert_eq!(play_to_end(vec![user("!fail 2")], 3).await.1.stop_reason, StopReason::EndTurn);
    }
}
