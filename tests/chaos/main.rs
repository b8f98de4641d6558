//! Faults over real sockets: two Keels reach their DynamoDB through a proxy that loses answers after the write, throttles,
//! fails, resets, stalls and conflicts, while one of them is killed again and again. Then the network heals, and every
//! promise must have held.
//!
//! `KEEL_CHAOS_SECONDS` says how long; the counts are printed.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod checks;
mod proxy;
mod traffic;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keel_tests::local::Local;
use keel_tests::{KEY, Keel, TIMEOUT};
use tokio::time::{Instant, sleep, timeout};

use proxy::Proxy;
use traffic::{Addresses, Client};

/// Sessions that clients talk to at once.
const SESSIONS: usize = 24;
/// Between two kills of the second Keel.
const LIFE: Duration = Duration::from_secs(4);

/// A Keel behind the proxy. Its store may fail while it starts; it is tried again.
async fn behind(proxy: &Proxy) -> Local {
    let url = proxy.url();
    let arguments = [
        "--dynamodb",
        &url,
        "--lease-ms",
        "1500",
        "--sweep-ms",
        "300",
        "--log",
        "off",
        "--stream-ms",
        "3000",
    ];
    for _ in 0..50 {
        if let Some(local) = Local::try_start(&arguments).await {
            return local;
        }
    }
    panic!("fifty starts failed");
}

/// Kills the second Keel and starts it again until `stop` is set. How often it was killed.
async fn kill_repeatedly(
    proxy: Arc<Proxy>,
    addresses: Addresses,
    first: Local,
    stop: Arc<AtomicBool>,
) -> (u32, Local) {
    let (mut second, mut deaths) = (first, 0);
    while !stop.load(Ordering::Relaxed) {
        sleep(LIFE).await;
        second.kill().await;
        deaths += 1;
        second = behind(&proxy).await;
        addresses.replace_second(&second.base);
    }
    (deaths, second)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_i3_i6_c2_s4_r2_hold_over_a_network_that_fails() {
    let seconds = keel_tests::var("KEEL_CHAOS_SECONDS").map_or(30, |text| text.parse().unwrap());
    let port = proxy::free_port();
    // The store's own process reaches it without the proxy, and runs no worker.
    let store = Local::start(&["--no-worker", "--dynamodb-port", &port.to_string()]).await;
    let clean = Keel::connect(store.base.clone(), KEY);
    let proxy = Arc::new(Proxy::before(port).await);
    let (one, two) = (behind(&proxy).await, behind(&proxy).await);
    let addresses = Addresses::new(&one.base, &two.base);
    proxy.fail().await;

    let stop = Arc::new(AtomicBool::new(false));
    let deaths = tokio::spawn(kill_repeatedly(proxy.clone(), addresses.clone(), two, stop.clone()));
    let until = Instant::now() + Duration::from_secs(seconds);
    let clients: Vec<_> =
        (0..SESSIONS).map(|n| tokio::spawn(Client::new(n, addresses.clone()).talk_until(until))).collect();
    let mut records = Vec::new();
    for client in clients {
        records.push(client.await.unwrap());
    }
    stop.store(true, Ordering::Relaxed);
    let (deaths, _two) = deaths.await.unwrap();
    let fired = proxy.heal().await;

    futures_util::future::join_all(records.iter().map(|record| traffic::finish_session(&clean, record)))
        .await;
    let mut counts = checks::Counts::default();
    let count = records.len();
    let mut reading = Vec::new();
    for record in records {
        let events = clean.events(&record.session).await;
        counts.check(&record, &events);
        reading.push((record.session.clone(), events.len() as u64, record.read(events.len())));
    }
    for (session, events, seen) in reading {
        let seen = timeout(TIMEOUT, seen).await.expect("the reader comes to the end").unwrap();
        assert_eq!(seen, (1..=events).collect::<Vec<_>>(), "R2: {session}: what its reader saw");
    }
    println!("{seconds} s, {deaths} kills of a Keel, {count} sessions: {counts}");
    println!("faults: {fired}");
    assert!(
        deaths > 0 && counts.retries > 0 && counts.inputs > 100,
        "Keels were killed, calls were retried, and inputs were committed anyway"
    );
}
