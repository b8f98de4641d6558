//! Clients that send again until they are answered, readers that reconnect, and a record of what both received.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use keel_tests::{KEY, Keel, TIMEOUT};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant, sleep, timeout};

/// The addresses of the two Keels; the second one's changes.
#[derive(Clone)]
pub(crate) struct Addresses(Arc<RwLock<[String; 2]>>);

impl Addresses {
    pub(crate) fn new(one: &str, two: &str) -> Self {
        Self(Arc::new(RwLock::new([one.to_owned(), two.to_owned()])))
    }

    pub(crate) fn replace_second(&self, base: &str) {
        self.0.write().unwrap()[1] = base.to_owned();
    }

    fn get(&self, which: usize) -> Keel {
        Keel::connect(self.0.read().unwrap()[which % 2].clone(), KEY)
    }
}

/// What one client did and received.
pub(crate) struct ClientRecord {
    /// The session's path.
    pub(crate) session: String,
    /// The seq in the answer to each request id.
    pub(crate) acknowledged: BTreeMap<String, u64>,
    /// Calls that were not answered and sent again.
    pub(crate) retries: u64,
    /// What the reader saw, once it knows how many events there are.
    reader: JoinHandle<Vec<u64>>,
    events: watch::Sender<usize>,
}

impl ClientRecord {
    /// The seqs of every frame that the reader got. The reader is given the number of events, so that it can end.
    pub(crate) fn read(self, events: usize) -> JoinHandle<Vec<u64>> {
        let _ = self.events.send(events);
        self.reader
    }
}

/// R2: reads stream after stream, from where the last one ended, until it has `events` frames.
async fn read(addresses: Addresses, session: String, events: watch::Receiver<usize>) -> Vec<u64> {
    let mut seen: Vec<u64> = Vec::new();
    for n in 0.. {
        if seen.len() >= *events.borrow() {
            break;
        }
        let last = seen.last().copied().unwrap_or(0).to_string();
        let path = format!("{session}/events/stream");
        let Some(mut stream) = addresses.get(n).try_stream(&path, Some(&last)).await else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        while let Some(frame) = stream.next().await {
            if frame.event == "message" {
                seen.push(frame.id.parse().unwrap());
            }
        }
    }
    seen
}

/// What the inputs say.
const SCRIPTS: [&str; 7] = [
    "hello",
    "!stream 10 10",
    "!tool echo {\"x\":1}\n!tool clock",
    "!tool sleep {\"ms\":50}\n!then\n!stream 5 5",
    "!fail 1",
    "!say once\n!limit",
    "!delay 100",
];

/// One client of one session.
pub(crate) struct Client {
    number: usize,
    addresses: Addresses,
    retries: u64,
}

impl Client {
    pub(crate) fn new(number: usize, addresses: Addresses) -> Self {
        Self { number, addresses, retries: 0 }
    }

    /// Sends until one of the Keels accepts. Every retry sends the same body.
    async fn send_until_accepted(&mut self, path: &str, body: &Value) -> Value {
        let body = body.to_string().into_bytes();
        let insisting = async {
            for n in self.number.. {
                let keel = self.addresses.get(n);
                match keel.try_send(Method::POST, path, &[], body.clone()).await {
                    Some(answer) if answer.status < 300 => return answer.json(),
                    Some(answer) => assert!(answer.status >= 500, "{}: {}", answer.status, answer.text),
                    None => {}
                }
                self.retries += 1;
                sleep(Duration::from_millis(20)).await;
            }
            unreachable!("an endless loop")
        };
        timeout(TIMEOUT, insisting).await.expect("an answer comes")
    }

    /// Sends inputs, some as guides, and cancels now and then.
    pub(crate) async fn talk_until(mut self, until: Instant) -> ClientRecord {
        let id = format!("chaos-{}", self.number);
        let session = format!("/v1/sessions/{id}");
        self.send_until_accepted("/v1/sessions", &json!({ "sessionId": id, "maxAttempts": 20 })).await;
        let (events, wanted) = watch::channel(usize::MAX);
        let reader = tokio::spawn(read(self.addresses.clone(), session.clone(), wanted));
        let mut acknowledged = BTreeMap::new();
        for n in 0_usize.. {
            if Instant::now() >= until {
                break;
            }
            let request = format!("r{n}");
            let delivery = if (n + self.number).is_multiple_of(3) { "guide" } else { "queue" };
            let text = SCRIPTS[(n * 5 + self.number) % SCRIPTS.len()];
            let body = json!({ "requestId": request, "text": text, "delivery": delivery });
            let answer = self.send_until_accepted(&format!("{session}/input"), &body).await;
            acknowledged.insert(request, answer["seq"].as_u64().unwrap());
            if (n + self.number).is_multiple_of(11) {
                self.send_until_accepted(&format!("{session}/cancel"), &json!({})).await;
            }
            sleep(Duration::from_millis(((n * 37 + self.number * 61) % 300) as u64)).await;
        }
        ClientRecord { session, acknowledged, retries: self.retries, reader, events }
    }
}

/// Sends one more input past the proxy, so that what a cancel or a failed run left unanswered is answered too (S), and
/// waits until the run is settled.
pub(crate) async fn finish_session(clean: &Keel, record: &ClientRecord) {
    clean.settled(&record.session).await;
    clean
        .post(&format!("{}/input", record.session), json!({ "text": "the rest", "requestId": "last" }))
        .await
        .ok(201);
    let row = clean.settled(&record.session).await;
    assert_eq!(row["unanswered"], json!([]), "{}: {row}", record.session);
}
