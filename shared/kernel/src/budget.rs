//! Budgets (H5): the most tokens and the most money that a session, or a tenant in a month, may spend.

use serde::{Deserialize, Serialize};

use crate::event::Spent;

/// The most that may be spent. A limit that is `None` is never reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Tokens, read and written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Millionths of a US dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micros: Option<u64>,
}

impl Budget {
    /// Whether `spent` has reached one of the limits: a limit of 10 is reached at 10.
    pub fn is_reached(self, spent: Spent) -> bool {
        self.tokens.is_some_and(|most| spent.tokens >= most)
            || self.micros.is_some_and(|most| spent.micros >= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h5_a_budget_is_reached_at_its_number() {
        let spent = Spent { tokens: 10, micros: 2_500 };
        let tokens = |most| Budget { tokens: Some(most), micros: None };
        assert!(tokens(10).is_reached(spent) && !tokens(11).is_reached(spent));
        assert!(Budget { tokens: None, micros: Some(2_500) }.is_reached(spent));
        assert!(!Budget::default().is_reached(spent));
    }
}
