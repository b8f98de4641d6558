//! Cursors: in a session's events, and in a tenant's lists.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use keel_kernel::{Seq, TenantId};

use crate::error::Problem;
use crate::params::{Query, SEQ_MAX};

/// R2: `Last-Event-ID` wins over `after`. An empty one is what a browser sends before it has seen an id. Also returns the
/// name of the one that was used, for a refusal to name.
pub fn resume(query: &Query, headers: &HeaderMap) -> Result<(Seq, &'static str), Problem> {
    let Some(value) = headers.get("last-event-id").filter(|value| !value.is_empty()) else {
        return Ok((query.after()?, "after"));
    };
    let seq = value.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    match seq.and_then(|text| text.parse::<u64>().ok()).filter(|seq| *seq <= SEQ_MAX) {
        Some(seq) => Ok((Seq(seq), "Last-Event-ID")),
        None => Err(Problem::parameter("Last-Event-ID", "must be the id of a frame")),
    }
}

/// A list's cursor, opaque to clients: the tenant, and the sort key of the last row that was read.
pub fn write_list(tenant: &TenantId, sk: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{tenant}/{sk}"))
}

/// The sort key in the cursor of a list of sessions. Another tenant's cursor is refused, although it could only read the
/// caller's own rows.
pub fn read_list(tenant: &TenantId, cursor: &str) -> Result<String, Problem> {
    read_list_of(tenant, "s#", cursor)
}

/// The same for a list whose rows' sort keys begin with `prefix`.
pub fn read_list_of(tenant: &TenantId, prefix: &str, cursor: &str) -> Result<String, Problem> {
    let decoded = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    decoded
        .as_deref()
        .and_then(|text| text.split_once('/'))
        .filter(|(of, sk)| *of == tenant.as_str() && sk.starts_with(prefix) && sk.len() <= 128)
        .map(|(_, sk)| sk.to_owned())
        .ok_or_else(|| Problem::parameter("cursor", "is not a cursor of this list"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).expect("a name")
    }

    proptest! {
        #[test]
        fn c3_a_list_cursor_is_read_by_its_tenant_alone(sk in "s#[0-9a-zA-Z_#-]{0,100}", of in "[a-z]{1,8}", other in "[a-z]{1,8}") {
            let cursor = write_list(&tenant(&of), &sk);
            prop_assert_eq!(read_list(&tenant(&of), &cursor).ok(), Some(sk));
            prop_assert_eq!(read_list(&tenant(&other), &cursor).is_ok(), of == other);
        }

        #[test]
        fn v6_whatever_is_sent_as_a_cursor_is_read_or_refused(text in "\\PC{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let encoded = URL_SAFE_NO_PAD.encode(&bytes);
            for cursor in [text.as_str(), &encoded] {
                if let Ok(sk) = read_list(&tenant("acme"), cursor) {
                    prop_assert_eq!(write_list(&tenant("acme"), &sk), cursor);
                }
            }
        }

        #[test]
        fn r2_whatever_is_sent_as_a_place_is_a_seq_or_refused(
            query in "(after=)?[0-9+a-z%&=.-]{0,24}", header in prop::collection::vec(any::<u8>(), 0..24)
        ) {
            let mut headers = HeaderMap::new();
            if let Ok(value) = HeaderValue::from_bytes(&header) {
                headers.insert("last-event-id", value);
            }
            let Ok(query) = Query::parse(&query) else { return Ok(()) };
            if let Ok((seq, given_by)) = resume(&query, &headers) {
                prop_assert!(seq.0 <= SEQ_MAX);
                let sent = String::from_utf8_lossy(&header);
                let text = if given_by == "after" { query.text("after").unwrap_or("0").to_owned() } else { sent.into_owned() };
                prop_assert_eq!(text.trim_start_matches('0').to_owned(), if seq.0 == 0 { String::new() } else { seq.to_string() });
            }
        }
    }
}
