//! The limits of names, keys and data, checked before anything is written.

use std::time::Duration;

pub use crate::stored_json::{JsonProblem, NotStorable, check as json};
use crate::{Error, Result, stored_json};

/// The maximum length of the name of a queue or a job type, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// The maximum size of the arguments, the input or the output of a job as JSON, in bytes.
pub const MAX_DATA_BYTES: usize = 1 << 20;
/// The maximum length of a job's key, in bytes.
pub const MAX_KEY_BYTES: usize = 512;
/// The maximum length of a stored error message, in bytes; longer ones are truncated.
pub(crate) const MAX_MESSAGE_BYTES: usize = 8 << 10;
/// The maximum number of slots of a queue in one worker.
pub(crate) const MAX_SLOTS: u32 = 100_000;
/// The maximum number of jobs of one call.
pub const MAX_JOBS_PER_CALL: usize = 100_000;

/// The maximum number of bytes that are sent to the server, counted without the overhead of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    /// The maximum of one statement. A larger call is split into several statements of one transaction. The server
    /// needs about seven times as much memory: 115 MB were measured for a statement of 16 MiB.
    pub page: usize,
    /// The maximum of one call.
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

/// The maximum duration that is stored: 100 years. Longer ones are shortened to it, or refused.
pub const MAX_DURATION: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// The minimum of a worker's poll interval.
pub(crate) const MIN_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The maximum of a worker's poll interval: the worker writes its heartbeat with each poll.
pub(crate) const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Returns a duration in milliseconds, as the database stores it.
pub fn millis(time: Duration) -> i64 {
    i64::try_from(time.min(MAX_DURATION).as_millis()).unwrap_or(i64::MAX)
}

/// Checks a name, which consists of letters, digits, `.`, `_` and `-`.
pub(crate) fn name(what: &'static str, value: &str) -> Result<()> {
    if !value.is_empty() && value.len() <= MAX_NAME_BYTES && value.bytes().all(in_name) {
        return Ok(());
    }
    Err(Error::InvalidName {
        what,
        value: shortened(value),
    })
}

/// Checks a pattern: a name, or the beginning of a name followed by `*`.
pub(crate) fn pattern(what: &'static str, value: &str) -> Result<()> {
    let beginning = value.strip_suffix('*').unwrap_or(value);
    let valid = beginning.len() <= MAX_NAME_BYTES
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

/// Checks the size of JSON, and that Postgres can store it.
pub(crate) fn data(job_type: &'static str, what: &'static str, json: &str) -> Result<()> {
    if json.len() > MAX_DATA_BYTES {
        return Err(Error::TooLarge {
            job_type,
            what,
            size: json.len(),
            limit: MAX_DATA_BYTES,
        });
    }
    stored_json::check(json).map_err(|found| Error::NotStorable {
        job_type,
        what,
        place: found.place,
        problem: found.problem,
    })
}

/// Checks the key of a job.
pub(crate) fn key(job_type: &'static str, value: &str) -> Result<()> {
    let what = "key";
    if value.is_empty() {
        return Err(Error::EmptyKey { job_type });
    }
    if value.len() > MAX_KEY_BYTES {
        return Err(Error::TooLong {
            job_type,
            what,
            size: value.len(),
            limit: MAX_KEY_BYTES,
        });
    }
    if value.contains('\0') {
        return Err(Error::HasNul { job_type, what });
    }
    Ok(())
}

/// Returns an error message as it can be stored: without NUL characters, and truncated.
pub(crate) fn message(text: &str) -> String {
    let mut text = text.replace('\0', "\u{fffd}");
    let mut end = text.len().min(MAX_MESSAGE_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// Returns the beginning of a value, escaped, for an error message.
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
        assert!(data("job", "arguments", &text(MAX_DATA_BYTES)).is_ok());
        assert!(data("job", "arguments", &text(MAX_DATA_BYTES + 1)).is_err());
    }

    #[test]
    fn a_message_is_cut_between_characters() {
        let long = "ä".repeat(MAX_MESSAGE_BYTES);
        assert_eq!(message(&long).len(), MAX_MESSAGE_BYTES);
        assert_eq!(message("a\0b"), "a\u{fffd}b");
        assert!(message(&"\0".repeat(MAX_MESSAGE_BYTES)).len() <= MAX_MESSAGE_BYTES);
    }
}
