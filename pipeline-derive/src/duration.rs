//! Durations as they are written in attributes: `"30s"`, `"1m30s"`.

use std::time::Duration;

use proc_macro2::{Literal, TokenStream};
use quote::quote;

/// The forms of a duration, for error messages.
pub(crate) const FORMS: &str = "`500ms`, `30s`, `10m`, `2h`, `1d` or `1m30s`";

struct Unit {
    name: &'static str,
    milliseconds: u64,
}

/// The units, in the order in which they may follow each other.
const UNITS: [Unit; 5] = [
    unit("d", 86_400_000),
    unit("h", 3_600_000),
    unit("m", 60_000),
    unit("s", 1_000),
    unit("ms", 1),
];

const fn unit(name: &'static str, milliseconds: u64) -> Unit {
    Unit { name, milliseconds }
}

/// The maximum duration in milliseconds: 100 years. Added to a date of this century, it does not overflow.
const MAX_DURATION_MS: u64 = 36_500 * 86_400_000;

/// Parses a duration. The error is the reason why the text is none.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("it is empty".to_owned());
    }
    // The units that may still follow.
    let mut units = UNITS.iter();
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (number, after) = split_while(rest, |c| c.is_ascii_digit());
        if number.is_empty() {
            return Err(format!("`{rest}` does not begin with a whole number"));
        }
        let (name, after) = split_while(after.trim_start(), char::is_alphabetic);
        let unit = units
            .find(|unit| unit.name == name)
            .ok_or_else(|| wrong_unit(number, name))?;
        total = number
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(unit.milliseconds))
            .and_then(|part| part.checked_add(total))
            .filter(|sum| *sum <= MAX_DURATION_MS)
            .ok_or("it is longer than 36500d")?;
        rest = after.trim_start();
    }
    Ok(Duration::from_millis(total))
}

fn wrong_unit(number: &str, name: &str) -> String {
    if name.is_empty() {
        format!("no unit follows `{number}`")
    } else if UNITS.iter().any(|unit| unit.name == name) {
        format!("`{number}{name}` is out of order: the longest unit comes first, each at most once")
    } else {
        format!("there is no unit `{name}`")
    }
}

fn split_while(text: &str, wanted: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !wanted(c)).unwrap_or(text.len()))
}

/// Returns the expression that creates the duration.
pub(crate) fn tokens(duration: Duration) -> TokenStream {
    let milliseconds = Literal::u128_unsuffixed(duration.as_millis());
    quote!(::core::time::Duration::from_millis(#milliseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_and_their_sums_are_read() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("10m", 600_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("1m30s", 90_000),
            ("1d2h3m4s5ms", 93_784_005),
            (" 1 m 30 s ", 90_000),
            ("90s", 90_000),
            ("0s", 0),
            ("36500d", MAX_DURATION_MS),
        ] {
            assert_eq!(
                parse(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, why) in [
            ("", "it is empty"),
            ("  ", "it is empty"),
            ("30", "no unit follows `30`"),
            ("1.5s", "no unit follows `1`"),
            ("1 0s", "no unit follows `1`"),
            ("soon", "`soon` does not begin with a whole number"),
            ("-5s", "`-5s` does not begin with a whole number"),
            ("1m, 5s", "`, 5s` does not begin with a whole number"),
            ("10min", "there is no unit `min`"),
            ("10M", "there is no unit `M`"),
            ("5µs", "there is no unit `µs`"),
            (
                "30s1m",
                "`1m` is out of order: the longest unit comes first, each at most once",
            ),
            (
                "1s1s",
                "`1s` is out of order: the longest unit comes first, each at most once",
            ),
            ("36500d1ms", "it is longer than 36500d"),
            ("99999999999999d", "it is longer than 36500d"),
            ("99999999999999999999999ms", "it is longer than 36500d"),
        ] {
            assert_eq!(parse(text), Err(why.to_owned()), "{text}");
        }
    }
}
