//! Pages of lists, and the cursor that leads from one page to the next.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One page of a list.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Page<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// The cursor of the next page; `None` if this page is the last one.
    pub next: Option<Cursor>,
}

impl<T> Page<T> {
    /// Makes a page of the first `limit` items. Of `limit + 1` items, the last one only shows that there is a next
    /// page.
    #[doc(hidden)]
    pub fn of(mut items: Vec<T>, limit: u16, cursor: impl Fn(&T) -> Cursor) -> Self {
        let limit = usize::from(limit);
        let has_next = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| has_next).map(cursor);
        Self { items, next }
    }
}

/// A position in a list, from which the next page continues. [`Page::next`] returns it.
///
/// A cursor is opaque. Its text consists of digits, `-` and `_`, and needs no escaping in a URL; in JSON, a cursor is
/// this text.
///
/// ```
/// # use jobs::Cursor;
/// let cursor: Cursor = "1700000000000000_7".parse()?;
/// assert_eq!(cursor.to_string(), "1700000000000000_7");
/// # Ok::<(), jobs::BadCursor>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    created_at: DateTime<Utc>,
    id: i64,
}

impl Cursor {
    #[doc(hidden)]
    pub fn new(created_at: DateTime<Utc>, id: i64) -> Self {
        Self { created_at, id }
    }

    #[doc(hidden)]
    pub fn created_at(self) -> DateTime<Utc> {
        self.created_at
    }

    #[doc(hidden)]
    pub fn id(self) -> i64 {
        self.id
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.created_at.timestamp_micros(), self.id)
    }
}

/// The error of parsing a text that is not a [`Cursor`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a cursor: pass the text of `Page::next` unchanged, or list the first page"
)]
pub struct BadCursor {
    text: String,
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let parts = text.split_once('_').and_then(|(time, id)| {
            Some(Self {
                created_at: DateTime::from_timestamp_micros(time.parse().ok()?)?,
                id: id.parse().ok()?,
            })
        });
        parts.ok_or_else(|| BadCursor {
            text: crate::limits::shortened(text),
        })
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text() -> Result<(), BadCursor> {
        let created_at = DateTime::from_timestamp_micros(-1_234_567).unwrap_or_default();
        for id in [0, 7, i64::MAX] {
            let cursor = Cursor { created_at, id };
            assert_eq!(cursor.to_string().parse::<Cursor>()?, cursor);
            let json = serde_json::json!(cursor);
            assert_eq!(json, cursor.to_string());
            assert_eq!(serde_json::from_value(json).ok(), Some(cursor));
        }
        for text in ["", "_", "1", "1_x", "99999999999999999999_1", "1_2_3"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
        Ok(())
    }

    #[test]
    fn only_a_page_with_items_after_it_has_a_next_one() {
        let cursor = |id: &i64| Cursor::new(DateTime::UNIX_EPOCH, *id);
        let full = Page::of(vec![1, 2], 2, cursor);
        assert_eq!((full.items, full.next), (vec![1, 2], None));
        let cut = Page::of(vec![1, 2, 3], 2, cursor);
        assert_eq!((cut.items, cut.next), (vec![1, 2], Some(cursor(&2))));
    }
}
