//! W3C trace context, `00-<trace>-<parent>-<flags>`: accepted or begun at the edge, carried in a hint, named in log lines
//! and metrics. It finds lines that belong together; nothing is ever decided by it.

use std::fmt;

tokio::task_local! {
    static CURRENT: Trace;
}

/// A trace, and the step in it that others continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    id: u128,
    step: u64,
    flags: u8,
}

/// So many lower-case hex digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let good = text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    good.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

impl Trace {
    /// A trace of our own.
    pub fn begin() -> Self {
        Self { id: rand::random::<u128>().max(1), step: rand::random::<u64>().max(1), flags: 0 }
    }

    /// What a caller says, if it is well-formed. A later version may have more behind the four fields; `ff` is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.splitn(5, '-');
        let version =
            fields.next().filter(|version| hex(version, 2).is_some_and(|version| version < 0xff))?;
        let id = hex(fields.next()?, 32).filter(|id| *id != 0)?;
        let step = hex(fields.next()?, 16).filter(|step| *step != 0)?;
        let flags = hex(fields.next()?, 2)?;
        let more = fields.next().is_some();
        if version == "00" && more {
            return None;
        }
        // Of the flags version 00 knows one: sampled.
        Some(Self { id, step: u64::try_from(step).ok()?, flags: u8::try_from(flags & 1).ok()? })
    }

    /// What was sent, continued by a step of ours; or a trace of our own.
    pub fn continued(sent: Option<&str>) -> Self {
        match sent.and_then(Self::parse) {
            Some(trace) => Self { step: rand::random::<u64>().max(1), ..trace },
            None => Self::begin(),
        }
    }

    /// The trace's id, 32 hex digits.
    pub fn id(&self) -> String {
        format!("{:032x}", self.id)
    }

    /// Runs something as a part of this trace.
    pub async fn within<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// The trace that this is a part of.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|trace| *trace).ok()
    }
}

/// As the header reads.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.id, self.step, self.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_well_formed_one_is_read_and_continued_by_a_step_of_ours() {
        let read = Trace::parse(SENT).expect("the specification's own example");
        assert_eq!(read.to_string(), SENT);
        let next = Trace::continued(Some(SENT));
        assert_eq!(next.id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_ne!(next.step, read.step);
        assert_eq!(Trace::parse(&next.to_string()), Some(next));
        let later = Trace::parse("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03-more");
        assert_eq!(later.expect("a later version's four fields").to_string(), SENT);
    }

    #[test]
    fn what_is_not_well_formed_begins_a_trace_of_our_own() {
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473+-00f067aa0ba902b7-01",
        ] {
            assert_eq!(Trace::parse(bad), None, "{bad}");
        }
        assert_ne!(Trace::continued(Some("nonsense")), Trace::continued(None));
    }
}
