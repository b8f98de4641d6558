//! Bytes as lower-case hex digits, and SHA-256 in that form.

use sha2::{Digest as _, Sha256};

/// Bytes as lower-case hex digits.
pub fn of(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(half.into(), 16).expect("four bits");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The first `bytes` bytes of a text's SHA-256, in hex.
///
/// # Panics
/// If `bytes` is more than 32.
pub fn sha256(text: &[u8], bytes: usize) -> String {
    of(&Sha256::digest(text)[..bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_lower_case_and_digests_are_cut() {
        assert_eq!(of(&[0x00, 0xaf, 0x10]), "00af10");
        assert_eq!(sha256(b"abc", 4), "ba7816bf");
        assert_eq!(sha256(b"abc", 32).len(), 64);
    }
}
