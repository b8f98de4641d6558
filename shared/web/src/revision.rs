//! A description's revision in the headers of conditional requests.

/// A revision as the `ETag` and `If-Match` headers have it.
pub fn etag(revision: u64) -> String {
    format!("\"{revision}\"")
}

/// The revisions that an `If-Match` header names; `None`: any. What is no revision of ours matches none.
pub fn if_match(header: &str) -> Option<Vec<u64>> {
    let tags = header.trim();
    let revision = |tag: &str| tag.trim().strip_prefix('"')?.strip_suffix('"')?.parse().ok();
    (tags != "*").then(|| tags.split(',').filter_map(revision).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_match_names_revisions_or_any() {
        assert_eq!(etag(7), "\"7\"");
        assert_eq!(if_match("*"), None);
        assert_eq!(if_match("\"7\""), Some(vec![7]));
        assert_eq!(if_match(" \"1\", \"22\" "), Some(vec![1, 22]));
        for none in ["", "7", "W/\"7\"", "\"x\"", "\"-1\""] {
            assert_eq!(if_match(none), Some(Vec::new()), "{none}");
        }
    }
}
