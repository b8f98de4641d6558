//! V1–V5, I4a: a payload of any kind is read or refused with a place, and what is read reads the same again.
#![no_main]

use keel_kernel::event::Facts;
use keel_kernel::{Kind, Payload, Refusal};
use libfuzzer_sys::fuzz_target;

const KINDS: [&str; 8] = [
    "user.message",
    "assistant.message",
    "tool.result",
    "compaction",
    "run.finished",
    "external.event",
    "run.started",
    "run.failed",
];

fuzz_target!(|data: &[u8]| {
    let Some((kind, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let kind = Kind::parse(KINDS[usize::from(*kind) % KINDS.len()]).expect("it is in the vocabulary");
    match Payload::parse(text) {
        Ok(payload) => {
            let again = Payload::parse(payload.text()).expect("what was read reads again");
            assert_eq!(payload, again);
            assert_eq!(payload.digest(), again.digest());
            if let Err(Refusal::Invalid { fault, .. }) = Facts::read(kind, &payload) {
                assert!(fault.pointer.is_empty() || fault.pointer.starts_with('/'), "{fault:?}");
            }
        }
        Err(Refusal::Invalid { fault, .. }) => {
            assert!(fault.pointer.is_empty() || fault.pointer.starts_with('/'), "{fault:?}");
        }
        Err(_) => {}
    }
});
