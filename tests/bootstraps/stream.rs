//! The stream: its frames come one by one, and SIGTERM ends it with its drain frame.

use std::time::Duration;

use serde_json::json;

use crate::{Frames, World, request};

/// Opens a stream and reads its status, its headers and its first frame.
async fn open(
    world: &World,
    session: &str,
) -> (keel_tests::runtime::Bootstrap, Frames, keel_tests::runtime::RuntimeApi) {
    let (bootstrap, mut api) = world.environment("keel-stream", &[]).await;
    let event = request("GET", &format!("{session}/events/stream?after=0"), &[], None);
    let (prelude, mut frames) = Frames::of(api.invoke(event, Duration::from_secs(320))).await;
    assert_eq!(prelude["statusCode"], 200);
    assert_eq!(prelude["headers"]["content-type"], "text/event-stream");
    assert_eq!(frames.next().await.unwrap(), "retry: 1000");
    (bootstrap, frames, api)
}

/// The next frame that is not a heartbeat.
async fn next(frames: &mut Frames) -> Option<String> {
    loop {
        let frame = frames.next().await?;
        if !frame.starts_with(':') {
            return Some(frame);
        }
    }
}

/// Without a clock: an event is committed only after the frame of the event before it has come.
#[tokio::test]
async fn r2_r6_frames_come_one_by_one_while_the_stream_is_open() {
    let world = World::new().await;
    let session = world.keel.session().await;
    let (_bootstrap, mut frames, _api) = open(&world, &session).await;
    for seq in 1..=5 {
        assert_eq!(world.keel.say(&session, &format!("input {seq}")).await["seq"], seq);
        let frame = next(&mut frames).await.expect("the stream is open");
        assert!(frame.starts_with(&format!("id: {seq}\ndata: ")), "{frame}");
        assert!(frame.contains(&format!("input {seq}")), "{frame}");
    }
}

#[tokio::test]
async fn r4_a_terminated_environment_drains_its_stream() {
    let world = World::new().await;
    let session = world.keel.session().await;
    let (mut bootstrap, mut frames, api) = open(&world, &session).await;
    assert_eq!(api.extensions(), ["keel-shutdown"], "else Lambda would not send SIGTERM");
    world.keel.say(&session, "before").await;
    assert!(next(&mut frames).await.unwrap().starts_with("id: 1\n"));
    bootstrap.terminate().await;
    let drain = next(&mut frames).await.expect("a last frame");
    assert_eq!(drain, format!("retry: 3000\nevent: drain\ndata: {}", json!({ "retry_after_ms": 3000 })));
    assert_eq!(frames.next().await, None, "the answer has ended, and not broken off");
    assert!(bootstrap.ended().await, "it ends well");
}

#[tokio::test]
async fn r4_an_environment_with_nothing_open_ends_at_once() {
    let world = World::new().await;
    for program in ["keel-stream", "keel-worker"] {
        let (mut bootstrap, mut api) = world.environment(program, &[]).await;
        api.asked().await;
        bootstrap.terminate().await;
        let line = bootstrap.logged(|line| line["message"] == "the environment ends").await;
        assert_eq!(line["busy"], false);
        assert!(bootstrap.ended().await);
    }
}
