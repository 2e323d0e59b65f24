//! Backoffs as they are written in attributes: `"exponential(1s..60s, jitter 0.2)"`.

use std::time::Duration;

use proc_macro2::{Literal, TokenStream};
use quote::quote;
use syn::Path;

use crate::duration;

/// The forms of a backoff, for error messages.
pub(crate) const FORMS: &str = "`fixed(5s)`, `linear(1s..60s)` or `exponential(1s..60s)`, \
    each with a jitter from 0 to 1 if you like: `fixed(5s, jitter 0.2)`";

/// A parsed backoff, with the fields of `jobs::Backoff`.
#[derive(Debug, PartialEq)]
pub(crate) struct Backoff {
    growth: Growth,
    jitter: Option<f32>,
}

#[derive(Debug, PartialEq)]
enum Growth {
    Fixed(Duration),
    Linear(Duration, Duration),
    Exponential(Duration, Duration),
}

/// Parses a backoff. The error is the reason why the text is none.
pub(crate) fn parse(text: &str) -> Result<Backoff, String> {
    let (growth, arguments) = text
        .trim()
        .strip_suffix(')')
        .and_then(|text| text.split_once('('))
        .ok_or("it does not have the form `growth(..)`")?;
    let (waits, jitter) = match arguments.split_once(',') {
        Some((waits, jitter)) => (waits.trim(), Some(parse_jitter(jitter.trim())?)),
        None => (arguments.trim(), None),
    };
    let growth = match growth.trim() {
        "fixed" => Growth::Fixed(parse_wait(waits)?),
        "linear" => parse_range(waits).map(|(base, max)| Growth::Linear(base, max))?,
        "exponential" => parse_range(waits).map(|(base, max)| Growth::Exponential(base, max))?,
        other => return Err(format!("there is no growth `{other}`")),
    };
    Ok(Backoff { growth, jitter })
}

fn parse_range(waits: &str) -> Result<(Duration, Duration), String> {
    let (base, max) = waits
        .split_once("..")
        .ok_or_else(|| format!("`{waits}` is not a range from the first wait to the longest"))?;
    let (base_wait, max_wait) = (parse_wait(base)?, parse_wait(max)?);
    if base_wait.is_zero() {
        return Err("a wait that begins at zero never grows".to_owned());
    }
    if max_wait < base_wait {
        return Err(format!(
            "the longest wait, `{}`, is shorter than the first, `{}`",
            max.trim(),
            base.trim()
        ));
    }
    Ok((base_wait, max_wait))
}

fn parse_wait(wait: &str) -> Result<Duration, String> {
    let wait = wait.trim();
    duration::parse(wait).map_err(|why| format!("`{wait}` is not a duration ({why})"))
}

fn parse_jitter(jitter: &str) -> Result<f32, String> {
    // Only digits and a point are allowed: `f32` would also parse `-0`, `1e-3` and `nan`.
    jitter
        .strip_prefix("jitter")
        .map(str::trim_start)
        .filter(|share| share.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
        .and_then(|share| share.parse().ok())
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("`{jitter}` is not a jitter from 0 to 1"))
}

impl Backoff {
    /// Returns the expression that creates the backoff.
    pub(crate) fn tokens(&self, jobs: &Path) -> TokenStream {
        let growth = match self.growth {
            Growth::Fixed(wait) => {
                let wait = duration::tokens(wait);
                quote!(fixed(#wait))
            }
            Growth::Linear(base, max) => {
                let (base, max) = (duration::tokens(base), duration::tokens(max));
                quote!(linear(#base, #max))
            }
            Growth::Exponential(base, max) => {
                let (base, max) = (duration::tokens(base), duration::tokens(max));
                quote!(exponential(#base, #max))
            }
        };
        let jitter = self.jitter.map(|share| {
            let share = Literal::f32_unsuffixed(share);
            quote!(.jitter(#share))
        });
        quote!(#jobs::Backoff::#growth #jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn read(growth: Growth, jitter: Option<f32>) -> Result<Backoff, String> {
        Ok(Backoff { growth, jitter })
    }

    #[test]
    fn each_growth_is_read_with_and_without_jitter() {
        for (text, backoff) in [
            ("fixed(5s)", read(Growth::Fixed(s(5)), None)),
            ("fixed(0s)", read(Growth::Fixed(s(0)), None)),
            ("linear(1s..60s)", read(Growth::Linear(s(1), s(60)), None)),
            ("linear(5s..5s)", read(Growth::Linear(s(5), s(5)), None)),
            (
                "exponential(1s..1m30s)",
                read(Growth::Exponential(s(1), s(90)), None),
            ),
            (
                "exponential(1s..60s, jitter 0.2)",
                read(Growth::Exponential(s(1), s(60)), Some(0.2)),
            ),
            ("fixed(5s, jitter 1)", read(Growth::Fixed(s(5)), Some(1.0))),
            ("fixed(5s, jitter 0)", read(Growth::Fixed(s(5)), Some(0.0))),
            (
                "  linear ( 1s .. 1 m , jitter  .5 ) ",
                read(Growth::Linear(s(1), s(60)), Some(0.5)),
            ),
        ] {
            assert_eq!(parse(text), backoff, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, why) in [
            ("", "it does not have the form `growth(..)`"),
            ("exponential", "it does not have the form `growth(..)`"),
            ("fixed(5s", "it does not have the form `growth(..)`"),
            (
                "fixed(5s) jitter 0.2",
                "it does not have the form `growth(..)`",
            ),
            ("random(1s..2s)", "there is no growth `random`"),
            ("(1s)", "there is no growth ``"),
            ("fixed()", "`` is not a duration (it is empty)"),
            ("fixed(5)", "`5` is not a duration (no unit follows `5`)"),
            (
                "fixed((5s))",
                "`(5s)` is not a duration (`(5s)` does not begin with a whole number)",
            ),
            (
                "linear(1s)",
                "`1s` is not a range from the first wait to the longest",
            ),
            ("exponential(1s..)", "`` is not a duration (it is empty)"),
            (
                "exponential(0s..60s)",
                "a wait that begins at zero never grows",
            ),
            (
                "exponential(2m..60s)",
                "the longest wait, `60s`, is shorter than the first, `2m`",
            ),
            ("fixed(5s,)", "`` is not a jitter from 0 to 1"),
            ("fixed(5s, 0.2)", "`0.2` is not a jitter from 0 to 1"),
            ("fixed(5s, jitter)", "`jitter` is not a jitter from 0 to 1"),
            (
                "fixed(5s, jitter 1.1)",
                "`jitter 1.1` is not a jitter from 0 to 1",
            ),
            (
                "fixed(5s, jitter -0)",
                "`jitter -0` is not a jitter from 0 to 1",
            ),
            (
                "fixed(5s, jitter nan)",
                "`jitter nan` is not a jitter from 0 to 1",
            ),
            (
                "fixed(5s, jitter 20%)",
                "`jitter 20%` is not a jitter from 0 to 1",
            ),
            (
                "fixed(5s, jitter 0.1, jitter 0.2)",
                "`jitter 0.1, jitter 0.2` is not a jitter from 0 to 1",
            ),
        ] {
            assert_eq!(parse(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn the_expression_calls_the_builders() {
        let jobs: Path = syn::parse_quote!(::jobs);
        let tokens = |text| parse(text).map(|backoff| backoff.tokens(&jobs).to_string());
        assert_eq!(
            tokens("fixed(5s)"),
            Ok(
                quote!(::jobs::Backoff::fixed(::core::time::Duration::from_millis(
                    5000
                )))
                .to_string()
            )
        );
        assert_eq!(
            tokens("linear(1s..2s, jitter 0)"),
            Ok(quote! {
                ::jobs::Backoff::linear(
                    ::core::time::Duration::from_millis(1000),
                    ::core::time::Duration::from_millis(2000)
                ).jitter(0.0)
            }
            .to_string())
        );
    }
}
