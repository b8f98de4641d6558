//! Reads the parts of a context that every protocol needs.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The longest call id that every provider accepts.
const ID_MAX: usize = 40;

/// A message's blocks, whichever way its owner wrote them.
pub(crate) fn blocks_of(payload: &Value) -> Vec<Value> {
    match &payload["content"] {
        Value::Array(blocks) => blocks.clone(),
        Value::String(text) => vec![json!({ "type": "text", "text": text })],
        _ => Vec::new(),
    }
}

/// An image that came with an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Image<'a> {
    /// In the payload itself: its media type, and its bytes in base64.
    Inline(&'a str, &'a str),
    /// At an address, which the provider fetches.
    Url(&'a str),
}

/// The media types that every provider accepts.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// An input's images: its payload's `images`, each `{mediaType, data}` or `{url}`. Anything else is left out.
pub(crate) fn images_of(payload: &Value) -> Vec<Image<'_>> {
    payload["images"]
        .as_array()
        .map(|images| images.iter().filter_map(image_of).collect())
        .unwrap_or_default()
}

fn image_of(image: &Value) -> Option<Image<'_>> {
    match (image["mediaType"].as_str(), image["data"].as_str(), image["url"].as_str()) {
        (Some(kind), Some(data), None) if IMAGES.contains(&kind) => Some(Image::Inline(kind, data)),
        (_, None, Some(url)) if url.starts_with("https://") => Some(Image::Url(url)),
        _ => None,
    }
}

/// A call's id in a form that every provider accepts: the ledger's own if possible, else its digest.
pub(crate) fn call_id(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !id.is_empty() && id.len() <= ID_MAX && id.bytes().all(plain) {
        return id.to_owned();
    }
    let digest = Sha256::digest(id.as_bytes());
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("call_{hex}")
}

/// A call's arguments as the model wrote them. A text that is not JSON is kept as a string: the loop refuses it, and the model
/// sees why.
pub(crate) fn arguments(text: &str) -> Value {
    if text.trim().is_empty() {
        return json!({});
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn v2_call_ids_fit_every_provider_and_stay_apart(one in "[!-~]{1,100}", two in "[!-~]{1,100}") {
            let (first, second) = (call_id(&one), call_id(&two));
            for id in [&first, &second] {
                prop_assert!(id.len() <= ID_MAX && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
            }
            prop_assert_eq!(first == second, one == two);
        }
    }
}
