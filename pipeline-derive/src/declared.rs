//! The checked options of `#[job(..)]`.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use syn::{Attribute, LitInt, LitStr, Path};

use crate::attributes::{Entry, Mistakes, entries};
use crate::backoff::{self, Backoff};
use crate::{duration, name};

/// The keys, each with an example.
const KEYS: [(&str, &str); 9] = [
    ("name", r#"name = "media.transcode""#),
    ("version", "version = 2"),
    ("queue", r#"queue = "media""#),
    ("priority", "priority = 10"),
    ("max_attempts", "max_attempts = 5"),
    ("backoff", r#"backoff = "exponential(1s..60s)""#),
    ("timeout", r#"timeout = "10m""#),
    ("lease", r#"lease = "30s""#),
    ("crate", r#"crate = "path::to::jobs""#),
];

/// The options that the attributes of a type declare.
#[derive(Default)]
pub(crate) struct Declared {
    pub(crate) name: Given<String>,
    pub(crate) version: Given<u32>,
    pub(crate) queue: Given<String>,
    pub(crate) priority: Given<i16>,
    pub(crate) max_attempts: Given<u16>,
    pub(crate) backoff: Given<Backoff>,
    pub(crate) timeout: Given<Duration>,
    pub(crate) lease: Given<Duration>,
    pub(crate) jobs: Given<Path>,
}

/// The value of a key.
#[derive(Default)]
pub(crate) enum Given<T> {
    /// The key is absent: its default applies.
    #[default]
    Absent,
    /// The key has a wrong value; the mistake has been noted.
    Wrong,
    /// The key has this value.
    Value(T),
}

impl<T> Given<T> {
    fn set(&mut self, mistakes: &mut Mistakes, value: syn::Result<T>) {
        *self = mistakes.sift(value).map_or(Self::Wrong, Self::Value);
    }

    pub(crate) fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Wrong => None,
        }
    }
}

impl Declared {
    pub(crate) fn read(attrs: &[Attribute], mistakes: &mut Mistakes) -> Self {
        let mut declared = Self::default();
        let mut seen = Vec::new();
        for entry in entries(attrs, "job", mistakes) {
            let Some((key, example)) = KEYS.into_iter().find(|(key, _)| entry.key == key) else {
                mistakes.add(unknown_key(&entry));
                continue;
            };
            if seen.contains(&key) {
                let message = format!("`{key}` is given twice");
                mistakes.add(syn::Error::new(entry.key.span(), message));
                continue;
            }
            seen.push(key);
            declared.set(key, example, &entry, mistakes);
        }
        declared
    }

    fn set(&mut self, key: &str, example: &str, entry: &Entry, mistakes: &mut Mistakes) {
        let text = || entry.string(example);
        let number = || entry.integer(example);
        match key {
            "name" => self.name.set(mistakes, text().and_then(read_name)),
            "version" => self.version.set(mistakes, number().and_then(read_version)),
            "queue" => self.queue.set(mistakes, text().and_then(read_name)),
            "priority" => self
                .priority
                .set(mistakes, number().and_then(read_priority)),
            "max_attempts" => self
                .max_attempts
                .set(mistakes, number().and_then(read_max_attempts)),
            "backoff" => self.backoff.set(mistakes, text().and_then(read_backoff)),
            "timeout" => self.timeout.set(mistakes, text().and_then(read_timeout)),
            "lease" => self.lease.set(mistakes, text().and_then(read_lease)),
            "crate" => self.jobs.set(mistakes, text().and_then(read_path)),
            _ => mistakes.add(unknown_key(entry)),
        }
    }
}

fn unknown_key(entry: &Entry) -> syn::Error {
    let key = entry.key.to_string();
    let keys = KEYS.map(|(known, _)| format!("`{known}`")).join(", ");
    let meant = closest_key(&key)
        .map(|known| format!("; did you mean `{known}`?"))
        .unwrap_or_default();
    let message = format!("there is no key `{key}`{meant} (the keys are {keys})");
    syn::Error::new(entry.key.span(), message)
}

/// Returns the key that was probably meant: one that ends with the given key, or differs from it by few typing errors.
fn closest_key(key: &str) -> Option<&'static str> {
    let suffix = format!("_{key}");
    if let Some((known, _)) = KEYS.into_iter().find(|(known, _)| known.ends_with(&suffix)) {
        return Some(known);
    }
    KEYS.into_iter()
        .map(|(known, _)| (strsim::osa_distance(key, known), known))
        .filter(|(typos, known)| *typos <= known.len() / 3)
        .min_by_key(|(typos, _)| *typos)
        .map(|(_, known)| known)
}

pub(crate) fn read_name(literal: LitStr) -> syn::Result<String> {
    let value = literal.value();
    if name::is_valid(&value) {
        return Ok(value);
    }
    let message = format!("{value:?} cannot be a name: {}", name::RULE);
    Err(syn::Error::new(literal.span(), message))
}

fn read_version(literal: LitInt) -> syn::Result<u32> {
    read_integer(&literal, "version", 1..=u32::MAX)
}

fn read_priority(literal: LitInt) -> syn::Result<i16> {
    read_integer(&literal, "priority", i16::MIN..=i16::MAX)
}

fn read_max_attempts(literal: LitInt) -> syn::Result<u16> {
    if literal.base10_digits() == "0" {
        let message = "a job has at least one attempt: `max_attempts` is from 1 to 32767";
        return Err(syn::Error::new(literal.span(), message));
    }
    read_integer(&literal, "max_attempts", 1..=32767)
}

fn read_integer<T>(literal: &LitInt, key: &str, range: RangeInclusive<T>) -> syn::Result<T>
where
    T: FromStr + PartialOrd + Display,
{
    let digits = literal.base10_digits();
    digits
        .parse()
        .ok()
        .filter(|value| range.contains(value))
        .ok_or_else(|| {
            let (from, to) = (range.start(), range.end());
            let message = format!("`{key}` is from {from} to {to}, not {digits}");
            syn::Error::new(literal.span(), message)
        })
}

fn read_backoff(literal: LitStr) -> syn::Result<Backoff> {
    let value = literal.value();
    backoff::parse(&value).map_err(|why| {
        let forms = backoff::FORMS;
        let message = format!("{value:?} is not a backoff: {why}; write {forms}");
        syn::Error::new(literal.span(), message)
    })
}

fn read_timeout(literal: LitStr) -> syn::Result<Duration> {
    let timeout = read_duration(&literal)?;
    if timeout.is_zero() {
        let message =
            "a timeout of zero ends every attempt at once; leave `timeout` out for no limit";
        return Err(syn::Error::new(literal.span(), message));
    }
    Ok(timeout)
}

fn read_lease(literal: LitStr) -> syn::Result<Duration> {
    let lease = read_duration(&literal)?;
    let message = if lease < Duration::from_secs(1) {
        "lease is too short to be renewed in time; at least 1s"
    } else if lease > Duration::from_secs(86_400) {
        "lease is too long: when a worker dies, its jobs wait until their leases expire; at most 1d"
    } else {
        return Ok(lease);
    };
    Err(syn::Error::new(literal.span(), message))
}

fn read_duration(literal: &LitStr) -> syn::Result<Duration> {
    let value = literal.value();
    duration::parse(&value).map_err(|why| {
        let forms = duration::FORMS;
        let message = format!("{value:?} is not a duration: {why}; write {forms}");
        syn::Error::new(literal.span(), message)
    })
}

pub(crate) fn read_path(literal: LitStr) -> syn::Result<Path> {
    literal.parse_with(Path::parse_mod_style).map_err(|_| {
        let value = literal.value();
        let message = format!("{value:?} is not a path to the crate `jobs`");
        syn::Error::new(literal.span(), message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn mistakes(attrs: &[Attribute]) -> Vec<String> {
        let mut mistakes = Mistakes::default();
        Declared::read(attrs, &mut mistakes);
        mistakes.messages()
    }

    fn mistake(entry: &str) -> String {
        let entry: proc_macro2::TokenStream = entry.parse().unwrap_or_default();
        mistakes(&[parse_quote!(#[job(#entry)])]).join(" | ")
    }

    #[test]
    fn every_key_is_known_as_its_example_shows_it() {
        for (_, example) in KEYS {
            assert_eq!(mistake(example), "");
        }
    }

    #[test]
    fn an_unknown_key_is_told_the_keys_and_the_closest() {
        let keys = "(the keys are `name`, `version`, `queue`, `priority`, `max_attempts`, `backoff`, \
                    `timeout`, `lease`, `crate`)";
        for (key, meant) in [
            ("max_atempts", "; did you mean `max_attempts`?"),
            ("attempts", "; did you mean `max_attempts`?"),
            ("max_attmepts", "; did you mean `max_attempts`?"),
            ("max_attempt", "; did you mean `max_attempts`?"),
            ("queu", "; did you mean `queue`?"),
            ("Name", "; did you mean `name`?"),
            ("time_out", "; did you mean `timeout`?"),
            ("retries", ""),
            ("x", ""),
        ] {
            let message = format!("there is no key `{key}`{meant} {keys}");
            assert_eq!(mistake(&format!("{key} = 5")), message);
        }
    }

    #[test]
    fn integers_have_their_ranges() {
        for (entry, message) in [
            ("max_attempts = 1", ""),
            ("max_attempts = 32_767", ""),
            (
                "max_attempts = 0",
                "a job has at least one attempt: `max_attempts` is from 1 to 32767",
            ),
            (
                "max_attempts = 32768",
                "`max_attempts` is from 1 to 32767, not 32768",
            ),
            (
                "max_attempts = -1",
                "`max_attempts` is from 1 to 32767, not -1",
            ),
            ("priority = -32768", ""),
            (
                "priority = 40000",
                "`priority` is from -32768 to 32767, not 40000",
            ),
            ("version = 4294967295", ""),
            ("version = 0", "`version` is from 1 to 4294967295, not 0"),
            (
                "max_attempts = \"5\"",
                "`max_attempts` takes an integer, as in `max_attempts = 5`",
            ),
        ] {
            assert_eq!(mistake(entry), message, "{entry}");
        }
    }

    #[test]
    fn strings_say_what_is_wrong_and_what_is_right() {
        for (entry, message) in [
            (
                "queue = \"my queue\"",
                "\"my queue\" cannot be a name: a name has from 1 to 128 of the characters \
                 a-z, A-Z, 0-9, `.`, `_` and `-`",
            ),
            (
                "timeout = \"10 minutes\"",
                "\"10 minutes\" is not a duration: there is no unit `minutes`; \
                 write `500ms`, `30s`, `10m`, `2h`, `1d` or `1m30s`",
            ),
            (
                "timeout = \"0s\"",
                "a timeout of zero ends every attempt at once; leave `timeout` out for no limit",
            ),
            (
                "timeout = 10m",
                "`timeout` takes a string, as in `timeout = \"10m\"`",
            ),
            (
                "lease = \"999ms\"",
                "lease is too short to be renewed in time; at least 1s",
            ),
            ("lease = \"1s\"", ""),
            ("lease = \"1d\"", ""),
            (
                "lease = \"1d1ms\"",
                "lease is too long: when a worker dies, its jobs wait until their leases expire; at most 1d",
            ),
            (
                "backoff = \"exponential\"",
                "\"exponential\" is not a backoff: it does not have the form `growth(..)`; \
                 write `fixed(5s)`, `linear(1s..60s)` or `exponential(1s..60s)`, \
                 each with a jitter from 0 to 1 if you like: `fixed(5s, jitter 0.2)`",
            ),
            (
                "crate = \"a b\"",
                "\"a b\" is not a path to the crate `jobs`",
            ),
            ("crate = \"\"", "\"\" is not a path to the crate `jobs`"),
        ] {
            assert_eq!(mistake(entry), message, "{entry}");
        }
    }

    #[test]
    fn all_mistakes_are_found_at_once_in_their_order() {
        let found = mistakes(&[
            parse_quote!(#[job(max_attempts = 0, queue = "media", colour = 1)]),
            parse_quote!(#[job(queue = "other", timeout)]),
        ]);
        assert_eq!(found.len(), 4);
        assert!(found[0].starts_with("a job has at least one attempt"));
        assert!(found[1].starts_with("there is no key `colour`"));
        assert_eq!(found[2], "`queue` is given twice");
        assert!(found[3].starts_with("`timeout` takes a string"));
    }
}
