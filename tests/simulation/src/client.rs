//! Clients: each sends inputs, loses answers and sends the inputs again, sends another payload under a used key, cancels,
//! and asks for a run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use keel_fn_edge::{Edge, Features};
use keel_ledger::SessionKey;
use keel_plugins::EgressPolicy;
use keel_settings::Settings;
use keel_settings::secrets::NoSecrets;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::fate::{Fate, Fated};
use crate::history::Ack;
use crate::rng::Rng;
use crate::world::{KEY, World};

/// How often a client sends an input that gets no answer. Then it gives up, and the input may or may not be committed.
const TRIES: u64 = 5;

/// The texts of inputs: scripts for the fake model.
const SCRIPTS: [&str; 20] = [
    "hello",
    "and then?",
    "!say one two three",
    "!stream 6 300",
    "!stream 3 1500",
    "!tool echo {\"x\":1}",
    "!tool echo {\"x\":1}\n!tool sleep {\"ms\":700}\n!then\n!say done with both",
    "!say let me see\n!tool sleep {\"ms\":4000}\n!tool fail {}\n!tool nothing\n!then\n!tool echo\n!then\n!say so",
    "!delay 3000\n!say late",
    "!delay 25000\n!say very late",
    "!fail 1\n!say at last",
    "!error not today",
    "!tool echo {\"cut\":true}\n!limit",
    "!limit\n!say cut short",
    "!tool pay {\"n\":\"N\"}\n!then\n!say paid or not",
    "!tool pay {\"n\":\"N\"}\n!tool echo {\"x\":1}\n!tool pay {\"n\":\"N, too\"}",
    "!tool agent {\"task\":\"!say from below\"}\n!then\n!say heard it",
    "!tool agent {\"task\":\"!stream 3 900\"}\n!tool agent {\"task\":\"!tool sleep {\\\"ms\\\":3000}\\n!then\\n!say late\"}",
    "!tool agent {\"task\":\"!error not today\"}\n!tool sleep {\"ms\":500}",
    "!tool agent {\"task\":\"!tool agent {\\\"task\\\":\\\"!tool pay {}\\\"}\\n!then\\n!say back\"}",
];

/// An input as a client remembers it.
#[derive(Clone)]
struct Input {
    key: String,
    text: String,
    guide: bool,
    seq: Option<u64>,
}

impl Input {
    /// The body, in one of three spellings of the same payload (I4).
    fn body(&self, spelling: u64) -> String {
        let text = serde_json::to_string(&self.text).expect("a text");
        let (key, delivery) = (&self.key, if self.guide { "guide" } else { "queue" });
        match spelling % 3 {
            0 => format!(
                r#"{{"text":{text},"requestId":"{key}","delivery":"{delivery}","n":1,"of":{{"a":[1,2],"b":"é"}}}}"#
            ),
            1 => format!(
                r#"{{"of": {{"b":"\u00e9", "a":[1.0,2]}}, "n":1.0, "delivery":"{delivery}", "requestId":"{key}", "text":{text}}}"#
            ),
            _ => format!(
                "{{ \"n\":1e0,\n \"requestId\":\"{key}\", \"text\":{text}, \"of\":{{\"a\":[1,2e0],\"b\":\"é\"}}, \"delivery\":\"{delivery}\" }}"
            ),
        }
    }
}

struct Client {
    world: Arc<World>,
    at: SessionKey,
    name: String,
    router: Router,
    rng: Rng,
    said: Vec<Input>,
}

/// C6, H4: a client that closes a session, and tries again until it is told that the session is closed.
pub(crate) async fn close(world: Arc<World>, at: SessionKey) {
    let process = world.process("closer", 0);
    let mut rng = world.rng.fork("closer");
    tokio::time::sleep(Duration::from_millis(rng.pick(100..=40_000))).await;
    world.closing.store(true, Ordering::Relaxed);
    loop {
        match process.ledger.close(&at).await {
            Ok(_) => break world.history.mark("a session was closed", &at),
            Err(error) => world.history.mark("a close is tried again", format_args!("{at}: {error}")),
        }
        tokio::time::sleep(Duration::from_millis(rng.pick(10..=3_000))).await;
    }
}

/// A client's whole life.
pub(crate) async fn live(world: Arc<World>, at: SessionKey, number: u64) {
    let process = world.process("edge", number);
    let mut rng = world.rng.fork(&format!("client-{number}"));
    let router = keel_fn_edge::router(Edge {
        ledger: process.ledger,
        settings: Settings::new(process.tenants.clone()),
        secrets: Arc::new(NoSecrets),
        egress: EgressPolicy::default(),
        tenants: process.tenants,
        auth: world.auth.clone(),
        features: Features { stream: true, owners: true },
    });
    let steps = rng.pick(3..=7);
    let mut client = Client { world, at, name: format!("client-{number}"), router, rng, said: Vec::new() };
    for _ in 0..steps {
        match client.rng.pick(0..=9) {
            0..5 => client.react().await,
            5..7 => client.pause(400).await,
            _ => client.pause(12_000).await,
        }
        client.step().await;
    }
}

impl Client {
    /// C6: the session of this client is closed or being closed.
    fn is_closing(&self) -> bool {
        self.world.closing.load(Ordering::Relaxed) && self.world.sessions.first() == Some(&self.at)
    }

    async fn pause(&mut self, at_most: u64) {
        let ms = self.rng.pick(0..=at_most);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// Waits until something is written, and up to 3 ms more. So clients often write while a worker settles (S4).
    async fn react(&mut self) {
        let history = self.world.history.clone();
        for _ in 0..self.rng.pick(1..=5) {
            let _ = tokio::time::timeout(Duration::from_secs(12), history.written.notified()).await;
        }
        self.pause(3).await;
    }

    async fn step(&mut self) {
        let used = !self.said.is_empty();
        match self.rng.pick(0..=99) {
            0..12 if used => {
                self.world.history.count("an input was sent again");
                let index = usize::try_from(self.rng.pick(0..=self.said.len() as u64 - 1)).expect("an index");
                self.say(index).await;
            }
            12..22 if used => self.contradict().await,
            22..34 => self.ask("cancel", "a client cancelled").await,
            34..42 => self.ask("run", "a client asked for a run").await,
            _ => {
                let key = format!("{}-{}", self.name, self.said.len());
                let text = self.rng.one_of(&SCRIPTS).replace("\"N", &format!("\"{key}"));
                let guide = self.rng.chance(350);
                self.said.push(Input { key, text, guide, seq: None });
                self.say(self.said.len() - 1).await;
            }
        }
    }

    /// Sends an input until it is acknowledged, or gives up.
    async fn say(&mut self, index: usize) {
        for attempt in 0..self.rng.pick(1..=TRIES) {
            if attempt > 0 {
                self.world.history.count("a client tried again");
                self.pause(3_000).await;
            }
            let input = self.said[index].clone();
            let body = input.body(self.rng.pick(0..=2));
            let Some((status, answer)) = self.post("input", body).await else { continue };
            match status {
                StatusCode::OK | StatusCode::CREATED => {
                    let seq = answer["seq"].as_u64().unwrap_or(0);
                    let created = answer["created"] == true;
                    let ack = Ack { at: self.at.to_string(), key: input.key, seq, created, text: input.text };
                    self.world.history.note(format_args!("{}: {ack:?}", self.name));
                    if ack.created && input.seq.is_some() || input.seq.is_some_and(|known| known != seq) {
                        self.world
                            .history
                            .violated("I3", format!("{ack:?}, acknowledged before as {:?}", input.seq));
                    }
                    self.said[index].seq = Some(seq);
                    self.world.history.records().acks.push(ack);
                    return;
                }
                status if status.is_server_error() => {}
                StatusCode::CONFLICT if self.is_closing() => {
                    self.world.history.mark("a closed session refused an input", &input.key);
                    return;
                }
                status => {
                    let what = format!("{}: {status} to input {}: {answer}", self.name, input.key);
                    self.world.history.violated("I4", what);
                    return;
                }
            }
        }
        self.world.history.mark("a client gave up", format_args!("{} {}", self.name, self.said[index].key));
    }

    /// Sends another payload under a key that is known to be taken (I5).
    async fn contradict(&mut self) {
        let Some(input) = self.said.iter().rev().find(|input| input.seq.is_some()).cloned() else { return };
        let other = Input { text: format!("{} (no, otherwise)", input.text), ..input.clone() };
        let Some((status, answer)) = self.post("input", other.body(0)).await else { return };
        if status.is_server_error() || (status == StatusCode::CONFLICT && self.is_closing()) {
            return;
        }
        self.world.history.mark("a key was contradicted", &self.name);
        let names = answer.to_string().contains(&format!("event {} ", input.seq.unwrap_or(0)))
            || answer["seq"].as_u64() == input.seq;
        if status != StatusCode::UNPROCESSABLE_ENTITY || !names {
            let what = format!("{status} to another payload under {}: {answer}", input.key);
            self.world.history.violated("I5", what);
        }
    }

    async fn ask(&mut self, path: &str, what: &'static str) {
        if let Some((status, answer)) = self.post(path, String::new()).await {
            self.world.history.mark(what, format_args!("{} {status} {}", self.name, answer["run"]["status"]));
            let closed = status == StatusCode::CONFLICT && self.is_closing();
            if !status.is_success() && !status.is_server_error() && !closed {
                self.world.history.violated("S", format!("{status} to {path}: {answer}"));
            }
        }
    }

    /// One call. `None`: the edge's process was killed, and the answer is lost.
    async fn post(&mut self, path: &str, body: String) -> Option<(StatusCode, Value)> {
        let mut request = Request::post(format!("/v1/sessions/{}/{path}", self.at.session))
            .header("authorization", format!("Bearer {KEY}"));
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(Body::from(body)).expect("a request");
        let router = self.router.clone();
        let call = async move {
            let response = router.oneshot(request).await.expect("a router answers");
            let status = response.status();
            let bytes = response.into_body().collect().await.expect("a body").to_bytes();
            (status, serde_json::from_slice(&bytes).unwrap_or_default())
        };
        let frozen = Duration::from_millis(self.rng.pick(100..=20_000));
        let fate = match self.rng.pick(0..=99) {
            0..8 if !self.world.is_calm() => Fate::Killed { polls: self.rng.pick(1..=8) },
            8..14 if !self.world.is_calm() => Fate::Frozen { polls: self.rng.pick(1..=8) },
            _ => Fate::Lives,
        };
        let end = Fated::new(call, fate, async move { tokio::time::sleep(frozen).await }).await;
        if end.met && end.output.is_none() {
            self.world.history.count("an edge was killed");
        }
        end.output
    }
}
