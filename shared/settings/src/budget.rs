//! H5: what all sessions of a tenant together may spend in a month.

use keel_kernel::budget::Budget;
use keel_kernel::event::micros;
use keel_kernel::{Fault, Millis};
use serde::{Deserialize, Serialize};

use crate::fault;

/// A budget, as it is written in the API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TenantBudget {
    /// Tokens, read and written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
}

impl TenantBudget {
    /// Checks what a client sent.
    pub fn check(&self) -> Result<(), Fault> {
        match self.max_cost_usd {
            Some(usd) if !(0.0..=1e9).contains(&usd) => {
                Err(fault("/maxCostUsd", "must be an amount from 0 to 1e9"))
            }
            _ => Ok(()),
        }
    }

    /// The budget, as the kernel counts it.
    pub fn budget(&self) -> Budget {
        Budget { tokens: self.max_tokens, micros: self.max_cost_usd.map(micros) }
    }
}

/// The calendar month of a moment, UTC: `2026-12`.
pub fn month(now: Millis) -> String {
    let text = now.to_string();
    text.get(..7).unwrap_or("1970-01").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h5_a_month_is_a_calendar_month() {
        assert_eq!(month(Millis(0)), "1970-01");
        assert_eq!(month(Millis(1_796_083_199_999)), "2026-11");
        assert_eq!(month(Millis(1_796_083_200_000)), "2026-12");
    }
}
