//! A list's cursor is read or refused; what is read is what would be written.
#![no_main]

use keel_kernel::TenantId;
use keel_web::cursor::{read_list, write_list};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|cursor: &str| {
    let tenant = TenantId::parse("acme").expect("a name");
    if let Ok(sk) = read_list(&tenant, cursor) {
        assert_eq!(write_list(&tenant, &sk), cursor);
    }
});
