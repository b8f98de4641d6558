//! The frames of a stream, as bytes. A committed event's frame has its seq as `id:` and no name, so that a plain
//! `EventSource` takes it as a message. Every other frame has a name and no id, so that it never moves `Last-Event-ID`
//! (R3). An empty `id:` is never sent (R5).

use bytes::{BufMut as _, BytesMut};
use keel_kernel::decision::Decision;
use keel_kernel::partial::PartialChunk;
use keel_kernel::{Event, Millis};
use serde_json::json;

/// How long a client that lost its stream waits before it comes back, in milliseconds.
const RETRY_MS: u64 = 1_000;
/// How long a client that was drained waits before it comes back, in milliseconds (R4).
const DRAIN_RETRY_MS: u64 = 3_000;

/// R5: the first frame, with `retry:`.
pub(crate) fn hello(out: &mut BytesMut) {
    out.put_slice(format!("retry: {RETRY_MS}\n\n").as_bytes());
}

/// A committed event. Its payload has no line break: white space between tokens was dropped when it came in.
pub(crate) fn committed(out: &mut BytesMut, event: &Event) {
    let data = serde_json::to_string(event).expect("an event that was read serialises");
    out.put_slice(format!("id: {}\ndata: {data}\n\n", event.seq).as_bytes());
}

/// A partial (R3, R3a).
pub(crate) fn partial(out: &mut BytesMut, chunk: &PartialChunk) {
    let mut data = json!({ "generationId": chunk.generation, "index": chunk.index, "delta": chunk.text });
    if let Some(dead) = &chunk.dead {
        data["dead"] = json!(dead);
    }
    out.put_slice(format!("event: partial\ndata: {data}\n\n").as_bytes());
}

/// H2: a call waits for a person.
pub(crate) fn decision(out: &mut BytesMut, decision: &Decision, now: Millis) {
    let data = keel_web::decision::view(decision, now);
    out.put_slice(format!("event: decision.opened\ndata: {data}\n\n").as_bytes());
}

/// R5: a comment that says that the stream is alive.
pub(crate) fn heartbeat(out: &mut BytesMut) {
    out.put_slice(b": still here\n\n");
}

/// R4: the last frame of a stream that must end; the next stream begins at cursor + 1. `retry:` makes a plain `EventSource`
/// wait.
pub(crate) fn drain(out: &mut BytesMut) {
    let data = json!({ "retry_after_ms": DRAIN_RETRY_MS });
    out.put_slice(format!("retry: {DRAIN_RETRY_MS}\nevent: drain\ndata: {data}\n\n").as_bytes());
}

/// The last frame of a stream with `until=settled`: no run is live, and every event was sent.
pub(crate) fn settled(out: &mut BytesMut, status: &str) {
    out.put_slice(format!("event: settled\ndata: {}\n\n", json!({ "status": status })).as_bytes());
}

#[cfg(test)]
mod tests {
    use keel_kernel::event::CommitPlace;
    use keel_kernel::{CommitId, Epoch, Kind, Payload, Seq};

    use super::*;

    fn text(write: impl FnOnce(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        write(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn r2_a_committed_frame_has_its_seq_as_id_and_one_data_line() {
        let event = Event {
            seq: Seq(4),
            kind: Kind::UserMessage,
            payload: Payload::parse("{\n \"text\": \"a\\nb\"}").unwrap(),
            ts: Millis(0),
            commit: CommitPlace { id: CommitId::parse("c").unwrap(), index: 0, size: 1 },
            epoch: None,
            watermark: None,
        };
        assert_eq!(
            text(|out| committed(out, &event)),
            "id: 4\ndata: {\"seq\":4,\"kind\":\"user.message\",\"payload\":{\"text\":\"a\\nb\"},\
             \"ts\":\"1970-01-01T00:00:00.000Z\"}\n\n"
        );
    }

    #[test]
    fn r3_r4_r5_other_frames_have_no_id() {
        let chunk = PartialChunk {
            epoch: Epoch(1),
            generation: "g".into(),
            index: 2,
            text: "x\ny".into(),
            dead: Some("aborted".into()),
        };
        let partial = text(|out| partial(out, &chunk));
        assert_eq!(
            partial,
            "event: partial\ndata: {\"dead\":\"aborted\",\"delta\":\"x\\ny\",\"generationId\":\"g\",\"index\":2}\n\n"
        );
        let drain = text(drain);
        assert_eq!(drain, "retry: 3000\nevent: drain\ndata: {\"retry_after_ms\":3000}\n\n");
        for frame in [partial, drain, text(hello), text(heartbeat), text(|out| settled(out, "done"))] {
            assert!(!frame.contains("id:") && frame.ends_with("\n\n"), "{frame:?}");
        }
    }
}
