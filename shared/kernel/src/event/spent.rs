//! What a request to a model cost (H5). The ledger holds it: every answer says what it cost, so the sum needs no write of
//! its own.

use serde_json::Value;

use super::{Payload, whole};

/// Tokens and money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Tokens read and written.
    pub tokens: u64,
    /// Millionths of a US dollar.
    pub micros: u64,
}

impl Spent {
    /// What an event's `usage` says: `input` and `output` tokens, `costUsd`. What is missing or no such number
    /// counts as 0, for an owner may leave it out.
    pub fn read(payload: &Payload) -> Self {
        let Some(usage) = payload.get("usage") else { return Self::default() };
        let tokens = |member: &str| usage.get(member).and_then(whole).unwrap_or(0);
        let usd = usage.get("costUsd").and_then(Value::as_f64).unwrap_or(0.0);
        Self { tokens: tokens("input").saturating_add(tokens("output")), micros: micros(usd) }
    }

    /// Adds tokens and money. A sum that would overflow stays at the largest number.
    pub fn add(&mut self, other: Spent) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.micros = self.micros.saturating_add(other.micros);
    }

    /// The money in US dollars.
    #[expect(clippy::cast_precision_loss, reason = "exact up to nine billion dollars")]
    pub fn usd(self) -> f64 {
        self.micros as f64 / 1e6
    }
}

/// US dollars in millionths, rounded. 0 where it is no amount; at most nine billion dollars.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounded on both sides before it"
)]
pub fn micros(usd: f64) -> u64 {
    if usd.is_finite() { (usd.clamp(0.0, 9e9) * 1e6).round() as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h5_usage_is_read_leniently() {
        let read = |text: &str| Spent::read(&Payload::parse(text).unwrap());
        let spent = read(r#"{"usage":{"input":7,"output":3.0,"costUsd":0.0025}}"#);
        assert_eq!(spent, Spent { tokens: 10, micros: 2_500 });
        for nothing in ["{}", r#"{"usage":7}"#, r#"{"usage":{"input":-1,"output":"x","costUsd":-4}}"#] {
            assert_eq!(read(nothing), Spent::default(), "{nothing}");
        }
    }
}
