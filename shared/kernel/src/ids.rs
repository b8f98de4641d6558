//! Ids and numbers with a meaning of their own. Each is checked once, where it comes in; from then on its type says so.

use std::fmt;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// Why a text is not an id. `Display` is fit for a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be {must}")]
pub struct BadId {
    what: &'static str,
    must: &'static str,
}

fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn is_visible(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|b| (0x21..=0x7e).contains(&b))
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $check:ident, $what:literal, $must:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Reads the id, or says what it must be.
            pub fn parse(text: impl Into<String>) -> Result<Self, BadId> {
                let text = text.into();
                if $check(&text) { Ok(Self(text)) } else { Err(BadId { what: $what, must: $must }) }
            }

            /// The id's text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;
            fn try_from(text: String) -> Result<Self, BadId> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

text_id! {
    /// Who owns sessions. Comes from the verified credential alone.
    TenantId, is_name, "a tenant id", "1 to 64 characters of A-Z a-z 0-9 _ -"
}
text_id! {
    /// One conversation and its ledger, unique within its tenant.
    SessionId, is_name, "a session id", "1 to 64 characters of A-Z a-z 0-9 _ -"
}
text_id! {
    /// A dedupe key (I1): a client's, a loop's or a model's name for one event, so that the event may be sent again.
    DedupeKey, is_visible, "a dedupe key", "1 to 128 visible ASCII characters"
}
text_id! {
    /// The process that holds a session's lease.
    OwnerId, is_visible, "an owner", "1 to 128 visible ASCII characters"
}
text_id! {
    /// A commit's id, which the caller of the kernel makes for each commit. By it a commit whose answer was lost is found
    /// again (I6).
    CommitId, is_visible, "a commit id", "1 to 128 visible ASCII characters"
}

impl DedupeKey {
    /// I1: the one key that several places of a request name; `None`: no place names one.
    ///
    /// # Errors
    /// The first place that names another key than an earlier place.
    pub fn agreed<'a>(
        places: impl IntoIterator<Item = (&'a str, Option<DedupeKey>)>,
    ) -> Result<Option<DedupeKey>, &'a str> {
        let mut agreed: Option<DedupeKey> = None;
        for (place, key) in places {
            match (&agreed, key) {
                (Some(before), Some(key)) if *before != key => return Err(place),
                (None, Some(key)) => agreed = Some(key),
                (_, _) => {}
            }
        }
        Ok(agreed)
    }
}

/// An event's position in its session: 1, 2, 3 … without a gap (L2). 0 stands before the first event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first event.
    pub const ZERO: Seq = Seq(0);

    /// The position after this one.
    #[must_use]
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a session's lease, +1 at every claim. 0: the session was never claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch that the next claim makes.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A moment, in milliseconds since 1970-01-01 UTC. On the wire: RFC 3339 with milliseconds and `Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

const RFC3339_MILLIS: &[BorrowedFormatItem<'static>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

impl Millis {
    /// This moment and `ms` milliseconds more.
    #[must_use]
    pub fn plus(self, ms: u64) -> Millis {
        Millis(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this moment; 0 when it is not earlier.
    pub fn since(self, earlier: Millis) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000)
            .unwrap_or(OffsetDateTime::UNIX_EPOCH);
        f.write_str(&at.format(RFC3339_MILLIS).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Millis {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_refuse_what_could_break_a_key() {
        for bad in ["", "a#b", "..", "a/b", "a b", "é", &"x".repeat(65), "a\0"] {
            assert!(SessionId::parse(bad).is_err(), "{bad:?}");
            assert!(TenantId::parse(bad).is_err(), "{bad:?}");
        }
        assert!(SessionId::parse("A-z_09").is_ok());
        for bad in ["", " ", "a b", "é", "a\n", &"x".repeat(129)] {
            assert!(DedupeKey::parse(bad).is_err(), "{bad:?}");
        }
        assert!(DedupeKey::parse("call_0#~").is_ok());
    }

    #[test]
    fn a_moment_prints_as_rfc3339() {
        assert_eq!(Millis(1_764_547_200_007).to_string(), "2025-12-01T00:00:00.007Z");
        assert_eq!(Millis(0).to_string(), "1970-01-01T00:00:00.000Z");
    }
}
