//! R2: whatever a client sends as its place is a seq that every JSON reader holds, or refused.
#![no_main]

use http::{HeaderMap, HeaderValue};
use keel_web::cursor::resume;
use keel_web::params::{Query, SEQ_MAX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &[u8])| {
    let (query, header) = input;
    let Ok(query) = Query::parse(query) else { return };
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(header) {
        headers.insert("last-event-id", value);
    }
    if let Ok((seq, _)) = resume(&query, &headers) {
        assert!(seq.0 <= SEQ_MAX);
    }
});
