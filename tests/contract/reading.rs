//! R: reading pages and streams.

use std::collections::BTreeMap;

use keel_tests::sse::Frame;
use keel_tests::{Keel, assistant_message, kinds, of_kind, text};
use serde_json::{Value, json};

/// Reads a stream's bytes until they hold `wanted`, or to their end.
async fn read_until(response: &mut reqwest::Response, wanted: &str) -> String {
    let mut bytes = Vec::new();
    loop {
        let chunk =
            tokio::time::timeout(keel_tests::TIMEOUT, response.chunk()).await.expect("bytes or the end");
        let Some(chunk) = chunk.unwrap() else { break };
        bytes.extend_from_slice(&chunk);
        if !wanted.is_empty() && String::from_utf8_lossy(&bytes).contains(wanted) {
            break;
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn ids(frames: &[Frame]) -> Vec<u64> {
    frames.iter().filter(|frame| frame.event == "message").map(|frame| frame.id.parse().unwrap()).collect()
}

/// A session with inputs that no worker answers.
async fn unanswered(keel: &Keel, count: usize) -> String {
    let session = keel.session().await;
    for n in 0..count {
        keel.say(&session, &format!("input {n}")).await;
    }
    session
}

/// R3, R3a: the partials of each generation: their text, joined, and why it ended without an answer, if it did.
fn generations(frames: &[Frame]) -> BTreeMap<String, (String, Option<String>)> {
    let mut read: BTreeMap<String, (String, Option<String>)> = BTreeMap::new();
    let mut next: BTreeMap<String, u64> = BTreeMap::new();
    for frame in frames.iter().filter(|frame| frame.event == "partial") {
        let id = frame.data["generationId"].as_str().expect("every partial names its generation").to_owned();
        let expected = next.entry(id.clone()).or_default();
        assert_eq!(frame.data["index"], *expected, "in order, none missed");
        *expected += 1;
        let (joined, dead) = read.entry(id).or_default();
        assert!(dead.is_none(), "nothing comes after its death");
        joined.push_str(frame.data["delta"].as_str().unwrap());
        *dead = frame.data["dead"].as_str().map(str::to_owned);
    }
    read
}

#[tokio::test]
async fn r1_pages_are_in_order_and_say_how_to_go_on() {
    let keel = Keel::without_worker().await;
    let session = unanswered(&keel, 5).await;
    let page = async |query: &str| keel.get(&format!("{session}/events?{query}")).await.ok(200);
    let seqs = |page: &Value| -> Vec<u64> {
        page["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect()
    };
    for (query, expected, next, more) in [
        ("", vec![1, 2, 3, 4, 5], 5, false),
        ("limit=2", vec![1, 2], 2, true),
        ("after=2&limit=2", vec![3, 4], 4, true),
        ("after=4&limit=2", vec![5], 5, false),
        ("after=3&limit=2", vec![4, 5], 5, false),
        ("after=5", vec![], 5, false),
        ("after=5&wait=0", vec![], 5, false),
        ("kinds=user.message&limit=1", vec![1], 1, true),
        ("kinds=assistant.message,run.finished", vec![], 5, false),
    ] {
        let page = page(query).await;
        assert_eq!(seqs(&page), expected, "{query}");
        assert_eq!((&page["nextAfter"], &page["hasMore"]), (&json!(next), &json!(more)), "{query}");
    }
    // Only the kinds that were asked for.
    let lease = keel.claim(&session, "me").await;
    keel.commit(&session, &lease, assistant_message("g", "x", &[1])).await.ok(200);
    keel.say(&session, "late").await;
    assert_eq!(seqs(&page("kinds=assistant.message").await), [6]);
    assert_eq!(page("kinds=assistant.message").await["nextAfter"], 7);
}

#[tokio::test]
async fn r1_a_wait_holds_the_call_until_something_is_there() {
    let keel = Keel::without_worker().await;
    let session = unanswered(&keel, 1).await;
    let held = tokio::spawn({
        let (keel, session) = (keel.clone(), session.clone());
        async move { keel.get(&format!("{session}/events?after=1&wait=20")).await.ok(200) }
    });
    assert_eq!(keel.say(&session, "come").await["seq"], 2);
    let page = held.await.unwrap();
    assert_eq!((&page["events"][0]["seq"], &page["nextAfter"]), (&json!(2), &json!(2)));
    // It also waits for one kind, past events of other kinds.
    let held = tokio::spawn({
        let (keel, session) = (keel.clone(), session.clone());
        async move { keel.get(&format!("{session}/events?wait=20&kinds=assistant.message")).await.ok(200) }
    });
    let lease = keel.claim(&session, "me").await;
    keel.commit(&session, &lease, assistant_message("g", "x", &[1, 2])).await.ok(200);
    assert_eq!(held.await.unwrap()["events"][0]["seq"], 3);
    // And it ends by itself.
    let page = keel.get(&format!("{session}/events?after=3&wait=1")).await.ok(200);
    assert_eq!((&page["events"], &page["nextAfter"]), (&json!([]), &json!(3)));
}

#[tokio::test]
async fn r2_a_stream_resumes_where_it_is_told_and_last_event_id_wins() {
    let keel = Keel::without_worker().await;
    let session = unanswered(&keel, 5).await;
    let path = format!("{session}/events/stream");
    for (query, last_event_id, expected) in [
        ("", None, vec![1, 2, 3, 4, 5]),
        ("?after=2", None, vec![3, 4, 5]),
        ("", Some("3"), vec![4, 5]),
        ("?after=0", Some("4"), vec![5]),
        ("?after=4", Some("0"), vec![1, 2, 3, 4, 5]),
        ("?after=3", Some(""), vec![4, 5]), // what a browser sends before it has seen an id
    ] {
        let mut stream = keel.stream(&format!("{path}{query}"), last_event_id).await;
        let frames = stream.committed(expected.len()).await;
        assert_eq!(ids(&frames), expected, "{query} {last_event_id:?}");
        let events = keel.events(&session).await;
        for frame in &frames {
            assert_eq!(
                frame.data,
                events[frame.data["seq"].as_u64().unwrap() as usize - 1],
                "as in the pages"
            );
            assert_eq!(frame.id, frame.data["seq"].to_string());
        }
    }
}

#[tokio::test]
async fn r2_nothing_is_missed_or_repeated_across_many_reconnects() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    let writer = tokio::spawn({
        let (keel, session) = (keel.clone(), session.clone());
        async move {
            for n in 0..30 {
                keel.say(&session, &format!("input {n}")).await;
            }
        }
    });
    let mut seen: Vec<u64> = Vec::new();
    let mut connections = 0;
    while !writer.is_finished() || seen.len() < 30 {
        let last = seen.last().map(u64::to_string);
        let mut stream = keel.stream(&format!("{session}/events/stream"), last.as_deref()).await;
        connections += 1;
        // One frame more than the last time, then the connection breaks.
        seen.extend(ids(&stream.committed(1 + connections % 3).await));
    }
    writer.await.unwrap();
    keel.settled(&session).await;
    let all = keel.events(&session).await.len() as u64;
    let last = seen.last().unwrap().to_string();
    let rest = keel.stream(&format!("{session}/events/stream?until=settled"), Some(&last)).await.rest().await;
    seen.extend(ids(&rest));
    assert_eq!(seen, (1..=all).collect::<Vec<_>>(), "in {connections} connections");
}

#[tokio::test]
async fn r3_r3a_partials_of_the_worker_are_a_prefix_and_have_no_id() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    let path = format!("{session}/events/stream");
    let (mut frames, mut plain) =
        (keel.stream(&format!("{path}?partials=1"), None).await, keel.stream(&path, None).await);
    let mut raw = keel.raw_stream(&format!("{path}?partials=1"), None).await;
    keel.say(&session, "!stream 20 20\n!tool echo {}\n!then\n!stream 10 20").await;
    let mut read = Vec::new();
    while !read.iter().any(|frame: &Frame| frame.data["kind"] == "run.finished") {
        read.push(frames.next().await.expect("more frames"));
    }
    let events = keel.events(&session).await;
    assert_eq!(ids(&read), (1..=events.len() as u64).collect::<Vec<_>>());
    let answers = of_kind(&events, "assistant.message");
    let partials = generations(&read);
    assert!(!partials.is_empty(), "there were partials");
    for (generation, (joined, dead)) in partials {
        let message = answers.iter().find(|answer| answer["payload"]["generationId"] == generation.as_str());
        assert!(text(message.expect("it was committed")).starts_with(&joined), "{joined:?}");
        assert_eq!(dead, None);
    }
    // As bytes: a partial's frame has no id, and a reader that did not ask for partials gets none.
    let raw = read_until(&mut raw, "run.finished").await;
    let partials: Vec<&str> = raw.split("\n\n").filter(|frame| frame.contains("event: partial")).collect();
    assert!(!partials.is_empty());
    assert!(partials.iter().all(|frame| !frame.lines().any(|line| line.starts_with("id"))), "{raw}");
    let committed = plain.committed(events.len()).await;
    assert_eq!(
        kinds(&events),
        committed.iter().map(|f| f.data["kind"].as_str().unwrap()).collect::<Vec<_>>()
    );
    assert!(events.iter().all(|event| event["kind"] != "partial"));
}

#[tokio::test]
async fn r3a_a_generation_that_dies_says_so_last() {
    let keel = Keel::start().await;
    let session = keel.session_with(json!({ "maxAttempts": 1 })).await;
    let mut stream = keel.stream(&format!("{session}/events/stream?partials=1"), None).await;
    for (script, full_text, why) in [
        ("!stream 3 150\n!error no", "word0 word1 word2 ", "error"),
        ("!say so far\n!hang", "so far", "aborted"),
    ] {
        keel.say(&session, script).await;
        let mut frames = Vec::new();
        let mut cancelled = false;
        while !frames.iter().any(|frame: &Frame| frame.data["kind"] == "run.finished") {
            frames.push(stream.next().await.expect("more frames"));
            if why == "aborted" && !cancelled && frames.last().unwrap().event == "partial" {
                keel.post(&format!("{session}/cancel"), json!({})).await.ok(200);
                cancelled = true;
            }
        }
        let partials = generations(&frames);
        assert_eq!(partials.len(), 1);
        let (prefix, dead) = partials.values().next().unwrap();
        assert!(full_text.starts_with(prefix), "{prefix:?}");
        assert_eq!(dead.as_deref(), Some(why));
    }
}

#[tokio::test]
async fn r3_partials_of_an_owner_are_told_once_and_never_replayed() {
    let keel = Keel::without_worker().await;
    let session = unanswered(&keel, 1).await;
    let lease = keel.claim(&session, "me").await;
    let path = format!("{session}/events/stream?partials=1");
    let mut stream = keel.stream(&path, Some("1")).await;
    let publish = async |generation: &str, index: u64, delta: &str, dead: Option<&str>| {
        let mut body = json!({ "lease": lease, "generationId": generation, "index": index, "delta": delta });
        if let Some(dead) = dead {
            body["dead"] = json!(dead);
        }
        keel.post(&format!("{session}/partials"), body).await.ok(200);
    };
    publish("g1", 0, "ne", None).await;
    publish("g1", 1, "ver", None).await;
    publish("g1", 1, "ver", None).await; // sent again
    publish("g1", 2, "", Some("out of time")).await;
    publish("g2", 0, "fi", None).await;
    publish("g2", 1, "nal", None).await;
    let mut frames = Vec::new();
    while frames.len() < 5 {
        frames.push(stream.next().await.expect("more frames"));
    }
    let partials = generations(&frames);
    assert_eq!(partials["g1"], ("never".to_owned(), Some("out of time".to_owned())));
    assert_eq!(partials["g2"], ("final".to_owned(), None));
    // A reader that comes later sees neither; it sees what is committed.
    let mut late = keel.stream(&path, None).await;
    keel.commit(&session, &lease, assistant_message("g2", "final", &[1])).await.ok(200);
    let first = late.next().await.unwrap();
    let second = late.next().await.unwrap();
    assert_eq!((first.id.as_str(), second.id.as_str()), ("1", "2"));
    assert_eq!(second.event, "message");
    let events = keel.events(&session).await;
    assert_eq!(kinds(&events), ["user.message", "assistant.message"], "no partial is an event");
    assert!(keel.ledger(&session).await.find("never").is_none());
}

/// R4, with streams so short that only a local Keel has them.
#[tokio::test]
async fn r4_a_stream_that_ends_drains_and_the_next_one_begins_at_cursor_plus_one() {
    if !Keel::is_ours() {
        return;
    }
    let keel = Keel::local(&["--no-worker", "--stream-ms", "300"]).await;
    let session = unanswered(&keel, 3).await;
    let path = format!("{session}/events/stream");
    let frames = keel.stream(&path, None).await.rest().await;
    assert_eq!(ids(&frames), [1, 2, 3], "what is unread comes first");
    let last = frames.last().unwrap();
    assert_eq!((last.event.as_str(), &last.data), ("drain", &json!({ "retry_after_ms": 3000 })));
    assert_eq!(last.retry, Some(3000));
    assert_eq!(frames.len(), 4, "and nothing after it");
    keel.say(&session, "between").await;
    let next = keel.stream(&path, Some(&last.id)).await.rest().await;
    assert_eq!(ids(&next), [4]);
}

#[tokio::test]
async fn r4_r5_short_streams_carry_a_whole_run_between_them() {
    if !Keel::is_ours() {
        return;
    }
    let keel = Keel::local(&["--stream-ms", "150"]).await;
    let session = keel.session().await;
    keel.say(&session, &"!tool sleep {\"ms\":100}\n!then\n".repeat(8)).await;
    let mut seen = Vec::new();
    let mut connections = 0;
    loop {
        let last = seen.last().map(u64::to_string);
        let mut raw = keel.raw_stream(&format!("{session}/events/stream"), last.as_deref()).await;
        connections += 1;
        let raw = read_until(&mut raw, "").await;
        assert!(raw.starts_with("retry: 1000\n\n"), "{raw}");
        assert!(raw.ends_with("retry: 3000\nevent: drain\ndata: {\"retry_after_ms\":3000}\n\n"), "{raw}");
        for id in raw.lines().filter_map(|line| line.strip_prefix("id:")) {
            seen.push(id.trim().parse().expect("never an empty id"));
        }
        if raw.contains("run.finished") {
            break;
        }
    }
    assert!(connections > 1);
    let all = keel.events(&session).await.len() as u64;
    assert_eq!(seen, (1..=all).collect::<Vec<u64>>());
}

#[tokio::test]
async fn r5_a_quiet_stream_has_heartbeats_and_never_an_empty_id() {
    let keel = Keel::without_worker().await;
    let session = unanswered(&keel, 1).await;
    let mut raw = keel.raw_stream(&format!("{session}/events/stream"), None).await;
    let raw = read_until(&mut raw, "\n:").await;
    let frames: Vec<&str> = raw.split_terminator("\n\n").collect();
    assert_eq!(frames.len(), 3, "{raw}");
    assert_eq!(frames[0], "retry: 1000");
    assert!(frames[1].starts_with("id: 1\ndata: {"));
    assert!(frames[2].starts_with(':') && !frames[2].contains('\n'), "a comment");
    for id in raw.lines().filter(|line| line.starts_with("id")) {
        assert_eq!(id, "id: 1");
    }
}

#[tokio::test]
async fn r5a_a_client_that_disconnects_cancels_nothing() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    let mut stream = keel.stream(&format!("{session}/events/stream?partials=1"), None).await;
    keel.say(&session, "!stream 20 30").await;
    while stream.next().await.expect("more frames").event != "partial" {}
    drop(stream);
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    assert_eq!(kinds(&events), ["user.message", "assistant.message", "run.finished"]);
    assert_eq!(events[1]["payload"]["stopReason"], "end_turn");
    assert!(text(&events[1]).ends_with("word19 "));
}

#[tokio::test]
async fn r6_what_commits_reaches_every_open_stream() {
    let keel = Keel::without_worker().await;
    let session = keel.session().await;
    let path = format!("{session}/events/stream");
    let mut streams = Vec::new();
    for _ in 0..5 {
        streams.push(keel.stream(&path, None).await);
    }
    for n in 1..=3_u64 {
        keel.say(&session, &n.to_string()).await;
        for stream in &mut streams {
            assert_eq!(ids(&stream.committed(1).await), [n]);
        }
    }
}

#[tokio::test]
async fn r2_until_settled_a_stream_ends_when_nothing_runs() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    let path = format!("{session}/events/stream?until=settled");
    keel.say(&session, "!tool echo {}\n!then\n!say ok").await;
    let frames = keel.stream(&path, None).await.rest().await;
    assert_eq!(ids(&frames), [1, 2, 3, 4, 5]);
    let last = frames.last().unwrap();
    assert_eq!((last.event.as_str(), &last.data["status"]), ("settled", &json!("done")));
    // If no run is live it ends at once.
    let frames = keel.stream(&path, Some("4")).await.rest().await;
    assert_eq!((ids(&frames), frames.len()), (vec![5], 2));
}
