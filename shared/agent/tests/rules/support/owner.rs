//! An owner's attempt, and a record of its requests and tool calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use keel_agent::provider::fake::Fake;
use keel_agent::provider::{Delta, Message, Request};
use keel_agent::tool::builtin::Builtin;
use keel_agent::tool::{ToolOutput, ToolSpec};
use keel_agent::{Ended, Ports, Provider, RunContext, SessionPortError, Signals, Time, Tools, answer_run};
use keel_kernel::event::ToolCall;
use keel_kernel::requests;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{MemorySessionPort, MemoryWaits, locked};

/// The fake model, with a record of its requests.
#[derive(Default)]
pub(crate) struct Recording {
    requests: Mutex<Vec<Request>>,
    slow_ms: AtomicU64,
}

impl Recording {
    /// The context of each request, as short names: `user:TEXT`, `assistant`, `result:CALL`, `summary`.
    pub(crate) fn contexts(&self) -> Vec<Vec<String>> {
        let name = |message: &Message| match message {
            Message::Summary(_) => "summary".to_owned(),
            Message::User(payload) => format!("user:{}", payload["text"].as_str().unwrap_or_default()),
            Message::Assistant(_) => "assistant".to_owned(),
            Message::ToolResult(payload) => {
                format!("result:{}", payload["toolCallId"].as_str().unwrap_or_default())
            }
        };
        locked(&self.requests).iter().map(|request| request.messages.iter().map(name).collect()).collect()
    }
}

impl Provider for Recording {
    fn name(&self) -> &str {
        Fake.name()
    }

    fn model(&self, wanted: Option<&str>) -> String {
        Fake.model(wanted)
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Delta> {
        locked(&self.requests).push(request.clone());
        let slow = sleep(Duration::from_millis(self.slow_ms.load(Ordering::Relaxed)));
        let answer = Fake.stream(request);
        stream::once(slow).flat_map(|()| stream::empty()).chain(answer).boxed()
    }
}

/// The builtin tools, and which calls they ran.
pub(crate) struct Counting {
    inner: Builtin,
    ran: Mutex<Vec<String>>,
}

impl Counting {
    pub(super) fn new(inner: Builtin) -> Self {
        Self { inner, ran: Mutex::default() }
    }

    pub(crate) fn ran(&self) -> Vec<String> {
        locked(&self.ran).clone()
    }
}

#[async_trait]
impl Tools for Counting {
    fn specs(&self) -> Vec<ToolSpec> {
        self.inner.specs()
    }

    async fn call(&self, call: &ToolCall) -> ToolOutput {
        locked(&self.ran).push(call.id.to_string());
        self.inner.call(call).await
    }
}

/// One owner's attempt.
pub(crate) struct Owner {
    pub(crate) session_port: MemorySessionPort,
    pub(crate) context: RunContext,
    pub(crate) signals: watch::Sender<Signals>,
    pub(crate) provider: Recording,
    pub(crate) tools: Arc<Counting>,
    pub(crate) waits: MemoryWaits,
    /// How long the model thinks before its first word, in milliseconds.
    pub(crate) slow_ms: u64,
}

impl Owner {
    pub(crate) async fn try_answer_run(&self) -> Result<Ended, SessionPortError> {
        let tools = self.tools.clone();
        self.answer_run_with(&*tools).await
    }

    pub(crate) async fn answer_run_with(&self, tools: &dyn Tools) -> Result<Ended, SessionPortError> {
        let ledger = self.session_port.ledger.clone();
        self.provider.slow_ms.store(self.slow_ms, Ordering::Relaxed);
        let new_id = move || ledger.unique("gen");
        let ports = Ports {
            session: &self.session_port,
            provider: &self.provider,
            tools,
            waits: &self.waits,
            new_id: &new_id,
        };
        let ended = answer_run(ports, &self.context, self.signals.subscribe()).await;
        if matches!(ended, Ok(Ended::Lost) | Err(_)) {
            *locked(&self.session_port.ledger.lost) = true;
        }
        self.session_port.ledger.check();
        ended
    }

    /// Answers the run, with a store that never fails.
    pub(crate) async fn answer_run(&self) -> Ended {
        self.try_answer_run().await.expect("the store does not fail")
    }

    /// Answers the run, and calls `happens` after `after_ms` milliseconds.
    pub(crate) async fn answer_run_and<T>(&self, after_ms: u64, happens: impl FnOnce() -> T) -> Ended {
        let other = async {
            sleep(Duration::from_millis(after_ms)).await;
            happens();
        };
        tokio::join!(self.answer_run(), other).0
    }

    /// A client cancels, and the owner is signalled.
    pub(crate) fn cancel(&self) {
        let row = &mut *locked(&self.session_port.ledger.row);
        let transition = requests::cancel(&row.head, self.session_port.ledger.now())
            .expect("native and open")
            .expect("something to cancel");
        row.write(transition).expect("no keys");
        self.signals.send_modify(|signals| signals.cancel = true);
    }

    pub(crate) fn time(&self, time: Time) {
        self.signals.send_modify(|signals| signals.time = time);
    }
}
