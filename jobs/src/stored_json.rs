//! The rule for stored JSON: arguments, params of callbacks, and outputs.
//!
//! Postgres can read JSON that keeps the rule as `jsonb`, and serde can read it as a `Value`. So JSON that was accepted is
//! not refused later, when it is passed to another job or shown in a list. JSON that serde writes from plain types keeps
//! the rule, except for NUL characters and deep nesting. A `Box<RawValue>` contains JSON that others wrote, which may break
//! the rule in any way.

use std::fmt;

use crate::redact;

/// The maximum depth of nested arrays and objects. serde reads 127 levels; an input that contains outputs needs a few more
/// levels than the outputs.
const MAX_NESTING: usize = 100;
/// The maximum number of digits after the decimal point that Postgres stores.
const MAX_SCALE: i64 = 16_383;

/// The reason why a JSON text cannot be stored, without the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotStorable {
    /// The path of the value, like `items[3].name`.
    pub place: String,
    /// The problem of the value.
    pub problem: JsonProblem,
}

/// The problem of a value that cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonProblem {
    /// The text contains NUL, the only character that Postgres cannot store.
    Nul,
    /// The text contains one half of a surrogate pair, such as `\ud83d`.
    LoneSurrogate,
    /// The number is outside the range that Postgres and serde read.
    NumberOutOfRange,
    /// Arrays and objects are nested too deep.
    TooDeep,
    /// The text is not JSON.
    NotJson,
}

impl fmt::Display for JsonProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nul => f.write_str(
                "a NUL character, which Postgres cannot store: remove it, or encode it",
            ),
            Self::LoneSurrogate => f.write_str(
                "one half of a surrogate pair, which is not a character: the text was cut inside a character; \
                 remove the half, or encode the text",
            ),
            Self::NumberOutOfRange => write!(
                f,
                "a number beyond ±1.8e308, or with more than {MAX_SCALE} digits after the decimal point: pass it \
                 as a string"
            ),
            Self::TooDeep => write!(
                f,
                "more than {MAX_NESTING} levels of arrays and objects: flatten it, or pass that part as a string"
            ),
            Self::NotJson => f.write_str("not JSON: let `Serialize` write a JSON value"),
        }
    }
}

/// Checks a JSON text against the rule for stored JSON.
///
/// # Errors
///
/// The first problem and its path.
pub fn check(json: &str) -> Result<(), NotStorable> {
    let mut scan = Scan {
        json,
        at: 0,
        open: Vec::new(),
    };
    scan.run().map_err(|problem| NotStorable {
        place: scan.place(),
        problem,
    })
}

/// An array or object that the scan has entered and not left.
enum Open<'j> {
    Array(usize),
    /// The key of the current value, escaped and without quotes.
    Object(&'j str),
}

struct Scan<'j> {
    json: &'j str,
    at: usize,
    open: Vec<Open<'j>>,
}

impl<'j> Scan<'j> {
    /// Scans the tokens of the text once. serde checks the grammar.
    fn run(&mut self) -> Result<(), JsonProblem> {
        let bytes = self.json.as_bytes();
        let mut is_key = false;
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'{' | b'[' => {
                    if self.open.len() == MAX_NESTING {
                        return Err(JsonProblem::TooDeep);
                    }
                    is_key = byte == b'{';
                    self.open.push(match byte {
                        b'{' => Open::Object(""),
                        _ => Open::Array(0),
                    });
                    self.at += 1;
                }
                b'}' | b']' => {
                    self.open.pop();
                    is_key = false;
                    self.at += 1;
                }
                b',' => {
                    is_key = match self.open.last_mut() {
                        Some(Open::Array(index)) => {
                            *index += 1;
                            false
                        }
                        Some(Open::Object(key)) => {
                            *key = "";
                            true
                        }
                        None => false,
                    };
                    self.at += 1;
                }
                b'"' => {
                    let text = self.string()?;
                    if let (true, Some(Open::Object(key))) = (is_key, self.open.last_mut()) {
                        *key = text;
                        is_key = false;
                    }
                }
                b'-' | b'0'..=b'9' => self.number()?,
                b'\0' => return Err(JsonProblem::Nul),
                _ => self.at += 1,
            }
        }
        Ok(())
    }

    /// Reads a string with its quotes, and returns the text between them.
    fn string(&mut self) -> Result<&'j str, JsonProblem> {
        let bytes = self.json.as_bytes();
        let begin = self.at + 1;
        let mut at = begin;
        // Whether the last escape was the first half of a surrogate pair.
        let mut high = false;
        loop {
            let escape = match bytes.get(at) {
                None => return Err(JsonProblem::NotJson),
                Some(b'"') => break,
                Some(b'\0') => return Err(JsonProblem::Nul),
                Some(b'\\') => bytes.get(at + 1),
                Some(_) if high => return Err(JsonProblem::LoneSurrogate),
                Some(_) => {
                    at += 1;
                    continue;
                }
            };
            if escape != Some(&b'u') {
                if high {
                    return Err(JsonProblem::LoneSurrogate);
                }
                at += 2;
                continue;
            }
            let digits = self.json.get(at + 2..at + 6).ok_or(JsonProblem::NotJson)?;
            let unit = u16::from_str_radix(digits, 16).map_err(|_| JsonProblem::NotJson)?;
            high = match (high, unit) {
                (false, 0) => return Err(JsonProblem::Nul),
                (false, 0xd800..=0xdbff) => true,
                (true, 0xdc00..=0xdfff) => false,
                (true, _) | (false, 0xdc00..=0xdfff) => return Err(JsonProblem::LoneSurrogate),
                (false, _) => false,
            };
            at += 6;
        }
        if high {
            return Err(JsonProblem::LoneSurrogate);
        }
        self.at = at + 1;
        self.json.get(begin..at).ok_or(JsonProblem::NotJson)
    }

    fn number(&mut self) -> Result<(), JsonProblem> {
        let rest = self.json.get(self.at..).unwrap_or_default();
        let is_part = |b: &u8| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let length = rest.bytes().take_while(|b| is_part(b)).count();
        let number = rest.get(..length).unwrap_or_default();
        // Short numbers without an exponent always fit.
        if (length > 300 || number.contains(['e', 'E'])) && !fits(number) {
            return Err(JsonProblem::NumberOutOfRange);
        }
        self.at += length;
        Ok(())
    }

    fn place(&self) -> String {
        let mut place = String::new();
        for open in &self.open {
            match open {
                Open::Array(index) => place.push_str(&format!("[{index}]")),
                Open::Object(key) => {
                    if !place.is_empty() {
                        place.push('.');
                    }
                    // Omit a key that cannot be the name of a field: the key is data.
                    place.push_str(if redact::is_field(key) { key } else { "*" });
                }
            }
        }
        if place.is_empty() {
            place.push('.');
        }
        place
    }
}

/// Returns whether serde reads the number as finite, and Postgres stores it.
fn fits(number: &str) -> bool {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let Ok(exponent) = exponent.parse::<i64>() else {
        return false;
    };
    let fraction = mantissa
        .split_once('.')
        .map_or(0, |(_, digits)| digits.len());
    let fraction = i64::try_from(fraction).unwrap_or(i64::MAX);
    // Check the exponent of a zero, too: Postgres refuses large ones.
    exponent.abs() <= 4 * MAX_SCALE
        && fraction.saturating_sub(exponent) <= MAX_SCALE
        && number.parse::<f64>().is_ok_and(f64::is_finite)
        && serde_json::from_str::<f64>(number).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(json: &str) -> Option<(String, JsonProblem)> {
        check(json).err().map(|it| (it.place, it.problem))
    }

    #[test]
    fn what_serde_writes_of_plain_types_can_be_stored() {
        for value in [
            serde_json::json!({"a": [1, -2.5, null, true, "é\u{1f600}\"\\\n\u{1}"], "b": {}, "": []}),
            serde_json::json!([
                f64::MAX,
                f64::MIN,
                f64::MIN_POSITIVE,
                5e-324,
                u64::MAX,
                i64::MIN
            ]),
            serde_json::json!("\\u0000 and \\ud83d are text"),
        ] {
            assert_eq!(problem(&value.to_string()), None, "{value}");
        }
        let wide = [i128::MIN, i128::MAX];
        assert_eq!(
            problem(&serde_json::to_string(&wide).unwrap_or_default()),
            None
        );
    }

    #[test]
    fn the_place_of_a_problem_is_named_without_data() {
        let json = r#"{"ok":[1,{"x":"\u00e9"}],"items":[{"n":1},{"a b":{"name":["","\ud83d"]}}]}"#;
        let place = "items[1].*.name[1]".to_owned();
        assert_eq!(problem(json), Some((place, JsonProblem::LoneSurrogate)));
        assert_eq!(
            problem(r#""a\u0000""#),
            Some((".".to_owned(), JsonProblem::Nul))
        );
        // A key that is wrong itself is not named: the place is that of its object.
        let place = problem(r#"{"a":1,"b":{"c":1,"\u0000":2}}"#).map(|(place, _)| place);
        assert_eq!(place.as_deref(), Some("b.*"));
    }

    #[test]
    fn surrogates_come_in_pairs() {
        for good in [
            r#""\ud83d\ude00""#,
            r#""\\ud83d""#,
            r#""\ud83d\ude00\ud83d\ude00""#,
        ] {
            assert_eq!(problem(good), None, "{good}");
        }
        for bad in [
            r#""\ud83d""#,
            r#""\ude00""#,
            r#""\ud83d\ud83d\ude00""#,
            r#""\ud83dx""#,
            r#""\ud83d\n""#,
            r#""\ud83d\u0041""#,
            r#"{"\ude00":1}"#,
            r#""\uD83D""#,
        ] {
            let problem = problem(bad).map(|(_, problem)| problem);
            assert_eq!(problem, Some(JsonProblem::LoneSurrogate), "{bad}");
        }
    }

    #[test]
    fn numbers_have_a_range() {
        let long = "9".repeat(308);
        let small = format!("0.{}1", "0".repeat(16_382));
        for good in [
            "1e308",
            "-1.7976931348623157e308",
            "1e-16383",
            "0e100",
            "0.0",
            &long,
            &small,
        ] {
            assert_eq!(problem(good), None, "{good}");
        }
        let long = "9".repeat(310);
        let small = format!("0.{}1", "0".repeat(16_383));
        for bad in [
            "1e309",
            "1e999999",
            "-1e400",
            "1e-16384",
            "0e999999999",
            "0e-20000",
            "1e99999999999999999999",
            &long,
            &small,
        ] {
            let problem = problem(bad).map(|(_, problem)| problem);
            assert_eq!(problem, Some(JsonProblem::NumberOutOfRange), "{bad}");
        }
    }

    #[test]
    fn nesting_has_a_limit() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(problem(&nested(MAX_NESTING)), None);
        let too_deep = problem(&nested(MAX_NESTING + 1)).map(|(_, problem)| problem);
        assert_eq!(too_deep, Some(JsonProblem::TooDeep));
    }
}
