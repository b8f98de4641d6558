//! Many sessions at once, with clients that send twice.

use std::time::Instant;

use keel_tests::{Keel, of_kind};
use serde_json::json;

use crate::assert_whole;

const SESSIONS: usize = 50;
const INPUTS: usize = 20;

/// What one client saw: how many submissions were first, how many were replays, how often the session was busy.
#[derive(Default)]
struct Seen {
    created: usize,
    replayed: usize,
    busy: usize,
}

async fn client(keel: Keel, session: String) -> Seen {
    let mut seen = Seen::default();
    for n in 0..INPUTS {
        let body = json!({ "requestId": format!("r{n}"), "text": format!("input {n}") });
        let mut answers = Vec::new();
        if n % 2 == 0 {
            answers.push(keel.send_until_accepted(&session, &body).await);
        } else {
            let (one, two) = tokio::join!(
                keel.send_until_accepted(&session, &body),
                keel.send_until_accepted(&session, &body)
            );
            assert_eq!(one.0["seq"], two.0["seq"], "both answers name one event");
            answers.extend([one, two]);
        }
        let first = answers.iter().filter(|(answer, _)| answer["created"] == true).count();
        assert_eq!(first, 1, "exactly one of them made it");
        seen.created += first;
        seen.replayed += answers.len() - first;
        seen.busy += answers.iter().map(|(_, busy)| busy).sum::<usize>();
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_i3_a2_fifty_sessions_at_once_with_every_second_input_sent_twice() {
    let started = Instant::now();
    let keel = Keel::local(&[]).await;
    let mut clients = Vec::new();
    for _ in 0..SESSIONS {
        let session = keel.session().await;
        clients.push((session.clone(), tokio::spawn(client(keel.clone(), session))));
    }
    let (mut total, mut events, mut answers, mut runs) = (Seen::default(), 0, 0, 0);
    for (session, client) in clients {
        let seen = client.await.unwrap();
        total.created += seen.created;
        total.replayed += seen.replayed;
        total.busy += seen.busy;
        let row = keel.settled(&session).await;
        assert_eq!((&row["run"]["status"], &row["unanswered"]), (&json!("done"), &json!([])));
        let ledger = keel.events(&session).await;
        assert_whole(&ledger);
        assert_eq!(of_kind(&ledger, "user.message").len(), INPUTS, "one event for each key");
        events += ledger.len();
        answers += of_kind(&ledger, "assistant.message").len();
        runs += of_kind(&ledger, "run.finished").len();
    }
    assert_eq!((total.created, total.replayed), (SESSIONS * INPUTS, SESSIONS * INPUTS / 2));
    println!(
        "{SESSIONS} sessions: {} inputs created, {} duplicates replayed, {} times busy; {events} events, {answers} \
         answers, {runs} attempts settled; {:.1} s",
        total.created,
        total.replayed,
        total.busy,
        started.elapsed().as_secs_f64()
    );
}
