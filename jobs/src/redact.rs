//! Texts about data that show no data: for log lines, stored errors and messages to callers.

use std::fmt;

use serde_json::error::Category;
use serde_path_to_error::Segment;

/// Stands for data of this many bytes in `Debug` output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Redacted(pub usize);

impl fmt::Debug for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

/// The decode error of an absent value of an input.
pub(crate) const ABSENT: &str =
    "the value is absent: the job that returns it was skipped or failed";

/// The kinds of values in serde's error texts, which name the kind before the value.
const KINDS: [&str; 18] = [
    "boolean",
    "integer",
    "floating point",
    "number",
    "character",
    "string",
    "byte array",
    "null",
    "unit value",
    "Option value",
    "newtype struct",
    "sequence",
    "map",
    "enum",
    "unit variant",
    "newtype variant",
    "tuple variant",
    "struct variant",
];

/// Returns why a JSON text does not decode: the text of serde's error without the values that it quotes.
pub fn reason(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let position = format!(" at line {line} column {column}");
    let text = text.strip_suffix(&position).unwrap_or(&text);
    let reason = match error.classify() {
        Category::Data => without_values(text),
        // The error of a text that is not JSON quotes no values.
        Category::Syntax | Category::Eof | Category::Io => text.to_owned(),
    };
    match line {
        0 => reason,
        _ => format!("{reason} (line {line}, column {column})"),
    }
}

/// Returns the path at which a JSON text does not decode. A key that cannot be the name of a field, or that no field
/// has, is data and shown as `*`.
pub fn path(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let segments: Vec<&Segment> = error.path().iter().collect();
    let is_unknown = error.inner().to_string().starts_with("unknown field");
    let mut path = String::new();
    for (at, segment) in segments.iter().enumerate() {
        let is_last = at + 1 == segments.len();
        let key = match segment {
            Segment::Seq { index } => {
                path.push_str(&format!("[{index}]"));
                continue;
            }
            Segment::Map { key } if is_field(key) && !(is_last && is_unknown) => key,
            Segment::Enum { variant } => variant,
            Segment::Map { .. } | Segment::Unknown => "*",
        };
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
    }
    if path.is_empty() {
        path.push('.');
    }
    path
}

/// Returns whether a key can be the name of a field; otherwise the key is data.
pub(crate) fn is_field(key: &str) -> bool {
    let rest = key.strip_prefix(|first: char| first.is_ascii_alphabetic() || first == '_');
    let is_in_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    key.len() <= 64 && rest.is_some_and(|rest| rest.chars().all(is_in_name))
}

/// Removes the values from the text of a serde error. A text that is not serde's own may quote data anywhere, so that
/// all of it is replaced.
fn without_values(text: &str) -> String {
    let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let is_field = |rest: &str| rest.strip_suffix('`').is_some_and(|it| !it.contains('`'));
    // These texts name only fields and types.
    let kept = text == ABSENT
        || ["missing field `", "duplicate field `"]
            .iter()
            .any(|said| text.strip_prefix(said).is_some_and(is_field))
        || text
            .strip_prefix("data did not match any variant of untagged enum ")
            .is_some_and(is_name);
    if kept {
        return text.to_owned();
    }
    for said in ["invalid type", "invalid value"] {
        if let Some(found) = text.strip_prefix(said).and_then(|it| it.strip_prefix(": ")) {
            let kind = KINDS.iter().find(|kind| found.starts_with(**kind));
            let kind = kind.map_or_else(String::new, |kind| format!(": {kind}"));
            return format!("{said}{kind}{}", expected(text));
        }
    }
    if let Some(rest) = text.strip_prefix("invalid length ") {
        let length: String = rest.chars().take_while(char::is_ascii_digit).collect();
        return format!("invalid length {length}{}", expected(text));
    }
    for said in ["unknown variant", "unknown field"] {
        if text.starts_with(said) {
            return format!("{said}{}", expected(text));
        }
    }
    "the type's decoder refused the value".to_owned()
}

/// Returns the end of the text, which says what the type expects. The last match counts, because the quoted value may
/// contain the same words.
fn expected(text: &str) -> &str {
    for none in [", there are no variants", ", there are no fields"] {
        if text.ends_with(none) {
            return none;
        }
    }
    text.rfind(", expected ").map_or("", |at| &text[at..])
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde::Deserialize;
    use serde::de::{DeserializeOwned, Error as _};

    use super::*;

    fn said<T: DeserializeOwned>(json: &str) -> String {
        let error = serde_json::from_str::<T>(json).map(|_| ()).err();
        error.map_or_else(String::new, |error| reason(&error))
    }

    fn at<T: DeserializeOwned>(json: &str) -> String {
        let mut from = serde_json::Deserializer::from_str(json);
        let error = serde_path_to_error::deserialize::<_, T>(&mut from).map(|_| ());
        error.err().map_or_else(String::new, |error| path(&error))
    }

    #[test]
    fn a_path_names_fields_and_no_keys_that_are_data() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[allow(dead_code, reason = "only decoded")]
        struct Order {
            items: Vec<HashMap<String, u8>>,
        }
        assert_eq!(at::<Order>(r#"{"items": [{"a@b.c": "x"}]}"#), "items[0].*");
        assert_eq!(at::<Order>(r#"{"items": [{"7": "x"}]}"#), "items[0].*");
        assert_eq!(at::<Order>(r#"{"items": 7}"#), "items");
        assert_eq!(at::<Order>(r#"{"secret": 1}"#), "*");
        assert_eq!(at::<u8>(r#""x""#), ".");
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only decoded")]
    enum Size {
        Small,
        Large,
    }

    #[derive(Debug, Deserialize)]
    enum Never {}

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Thumb {
        #[allow(dead_code, reason = "only decoded")]
        width: u32,
    }

    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    #[allow(dead_code, reason = "only decoded")]
    enum Either {
        Number(u32),
        Flag(bool),
    }

    #[derive(Debug)]
    struct Picky;

    impl<'de> Deserialize<'de> for Picky {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            let text = String::deserialize(from)?;
            Err(D::Error::custom(format!("`{text}` will not do")))
        }
    }

    #[test]
    fn a_reason_says_what_was_expected_and_not_what_was_there() {
        let cases = [
            (
                said::<u32>(r#""secret""#),
                "invalid type: string, expected u32 (line 1, column 8)",
            ),
            (
                said::<u32>(r#""secret, expected secret""#),
                "invalid type: string, expected u32 (line 1, column 25)",
            ),
            (
                said::<u8>("4711"),
                "invalid value: integer, expected u8 (line 1, column 4)",
            ),
            (
                said::<u8>("4711.25"),
                "invalid type: floating point, expected u8 (line 1, column 7)",
            ),
            (
                said::<Size>(r#""secret""#),
                "unknown variant, expected `Small` or `Large` (line 1, column 8)",
            ),
            (
                said::<Never>(r#""secret, expected secret""#),
                "unknown variant, there are no variants (line 1, column 25)",
            ),
            (
                said::<Thumb>(r#"{"secret": 1}"#),
                "unknown field, expected `width` (line 1, column 9)",
            ),
            (
                said::<Thumb>("{}"),
                "missing field `width` (line 1, column 2)",
            ),
            (
                said::<(u8, u8)>("[1]"),
                "invalid length 1, expected a tuple of size 2 (line 1, column 3)",
            ),
            (
                said::<Either>(r#""secret""#),
                "data did not match any variant of untagged enum Either",
            ),
            (
                said::<HashMap<u8, u8>>(r#"{"secret": 1}"#),
                "invalid value: expected key to be a number in quotes (line 1, column 2)",
            ),
            (
                said::<Picky>(r#""secret""#),
                "the type's decoder refused the value",
            ),
            (
                said::<u8>(r#""secret"#),
                "EOF while parsing a string (line 1, column 7)",
            ),
        ];
        for (said, wanted) in cases {
            assert_eq!(said, wanted);
        }
    }

    #[test]
    fn what_only_looks_like_serdes_own_words_is_not_kept() {
        for text in [
            "missing field `a` in `secret`",
            "missing field a: secret",
            "data did not match any variant of untagged enum A: secret",
            "the secret is wrong",
        ] {
            assert_eq!(without_values(text), "the type's decoder refused the value");
        }
        assert_eq!(without_values(ABSENT), ABSENT);
    }
}
