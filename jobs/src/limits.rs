//! What input may be: every bound on what others give us, checked before any write.

use std::time::Duration;

pub use crate::stored_json::{JsonProblem, NotStorable, check as json};
use crate::{Error, Result, stored_json};

/// The longest name of a queue or a job type.
pub const NAME: usize = 128;
/// The largest arguments, input or output of a job, as JSON.
pub const DATA: usize = 1 << 20;
/// The longest unique key.
pub const KEY: usize = 512;
/// The longest stored error message; what is beyond is cut off.
pub(crate) const MESSAGE: usize = 8 << 10;
/// The most slots of a queue in one process.
pub(crate) const SLOTS: u32 = 100_000;
/// The most jobs in one call.
pub const BULK: usize = 100_000;

/// How many bytes go to the server: of what is stored, without what the protocol adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    /// In one statement. What is larger is cut into several statements of one transaction. The server
    /// was seen to need seven times as much memory for a statement: 115 MB for 16 MiB.
    pub page: usize,
    /// In one call.
    pub call: usize,
}

impl Default for Bytes {
    fn default() -> Self {
        Self {
            page: 8 << 20,
            call: 256 << 20,
        }
    }
}

/// The longest time that is kept; longer ones are taken for it where they do no harm.
pub const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// The limits of a worker's poll interval.
pub(crate) const MIN_POLL_INTERVAL: Duration = Duration::from_millis(10);
pub(crate) const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// A time as the database has it.
pub fn millis(time: Duration) -> i64 {
    i64::try_from(time.min(LONGEST).as_millis()).unwrap_or(i64::MAX)
}

/// A name of letters, digits, `.`, `_` and `-`.
pub(crate) fn name(what: &'static str, value: &str) -> Result<()> {
    if !value.is_empty() && value.len() <= NAME && value.bytes().all(in_name) {
        return Ok(());
    }
    Err(Error::InvalidName {
        what,
        value: shortened(value),
    })
}

/// A name, or the beginning of one followed by `*`; `*` alone is every name.
pub(crate) fn pattern(what: &'static str, value: &str) -> Result<()> {
    let beginning = value.strip_suffix('*').unwrap_or(value);
    let valid = beginning.len() <= NAME
        && beginning.bytes().all(in_name)
        && (value.ends_with('*') || !beginning.is_empty());
    if valid {
        return Ok(());
    }
    Err(Error::InvalidPattern {
        what,
        value: shortened(value),
    })
}

fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// JSON of a bearable size that keeps the rule for what is stored.
pub(crate) fn data(kind: &'static str, what: &'static str, json: &str) -> Result<()> {
    if json.len() > DATA {
        return Err(Error::TooLarge {
            job_type: kind,
            what,
            size: json.len(),
            limit: DATA,
        });
    }
    stored_json::check(json).map_err(|found| Error::NotStorable {
        job_type: kind,
        what,
        place: found.place,
        problem: found.problem,
    })
}

/// A unique key.
pub(crate) fn key(kind: &'static str, value: &str) -> Result<()> {
    let what = "key";
    if value.is_empty() {
        return Err(Error::EmptyKey { job_type: kind });
    }
    if value.len() > KEY {
        return Err(Error::TooLong {
            job_type: kind,
            what,
            size: value.len(),
            limit: KEY,
        });
    }
    if value.contains('\0') {
        return Err(Error::HasNul {
            job_type: kind,
            what,
        });
    }
    Ok(())
}

/// Text as it can be stored: without NUL, and not without end.
pub(crate) fn message(text: &str) -> String {
    let mut text = text.replace('\0', "\u{fffd}");
    let mut end = text.len().min(MESSAGE);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// What a message shows of a value that may be long or strange.
pub fn shortened(value: &str) -> String {
    let shown: String = value
        .chars()
        .take(64)
        .flat_map(char::escape_debug)
        .collect();
    if value.chars().count() > 64 {
        format!("{shown}…")
    } else {
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for good in ["default", "media.hd", "a-b_c", "X", &"x".repeat(128)] {
            assert!(name("queue", good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "ä", "a/b", "a*", "\0", &"x".repeat(129)] {
            assert!(name("queue", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn patterns_are_names_or_beginnings() {
        for good in ["media", "media.*", "*", "m*"] {
            assert!(pattern("queue", good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "*.media", "a**", "a*b", "%"] {
            assert!(pattern("queue", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_escaped_nul_is_found_and_an_escaped_backslash_is_not_one() {
        let text = |value: &str| serde_json::to_string(value).unwrap_or_default();
        assert!(data("job", "arguments", &text("a\0b")).is_err());
        assert!(data("job", "arguments", &text("a\\\0")).is_err());
        assert!(data("job", "arguments", &text("\\u0000")).is_ok());
        assert!(data("job", "arguments", &text("\\\\u0000")).is_ok());
    }

    #[test]
    fn data_is_bounded() {
        let text = |size: usize| format!("\"{}\"", "x".repeat(size - 2));
        assert!(data("job", "arguments", &text(DATA)).is_ok());
        assert!(data("job", "arguments", &text(DATA + 1)).is_err());
    }

    #[test]
    fn a_message_is_cut_between_characters() {
        let long = "ä".repeat(MESSAGE);
        assert_eq!(message(&long).len(), MESSAGE);
        assert_eq!(message("a\0b"), "a\u{fffd}b");
        assert!(message(&"\0".repeat(MESSAGE)).len() <= MESSAGE);
    }
}
