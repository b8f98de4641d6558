//! I4: the canonical form is what another implementation makes of the same document, and its own canonical form.
#![no_main]

use keel_kernel::json::{Document, canonical};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(document) = Document::read(text) else { return };
    let form = canonical(document.value());
    assert_eq!(form, json_canon::to_string(document.value()).expect("a value serialises"));
    let again = Document::read(&form).expect("the canonical form of an accepted document is accepted");
    assert_eq!(canonical(again.value()), form);
    assert_eq!(again.digest(), document.digest());
});
