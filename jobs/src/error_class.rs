//! The class of an error that a job returned by `?`: the name by which lists group errors.

use std::any::type_name;
use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt::{self, Write as _};

/// The class of an error about which nothing more is known: a text.
const UNNAMED: &str = "Error";
/// The longest class that is read from the `Debug` output of an error.
const MAX_NAME: usize = 64;
/// How much of the `Debug` output of an error is read: enough for a name and the name of the first field.
const MAX_HEAD: usize = 2 * MAX_NAME;

/// Returns the class of an error that was converted from a type of this name: the name itself, unless the type
/// is a text or hides the type of another error.
pub(crate) fn class_of(
    type_name: &'static str,
    error: &(dyn StdError + 'static),
) -> Cow<'static, str> {
    match type_name {
        "&str" | "alloc::string::String" | "alloc::borrow::Cow<str>" => UNNAMED.into(),
        name if hides_its_type(name) => class_in_chain(error),
        name => name.into(),
    }
}

/// Returns whether values of this type are errors of any other type.
fn hides_its_type(name: &str) -> bool {
    name.starts_with("alloc::boxed::Box<dyn ") || ["anyhow::Error", "eyre::Report"].contains(&name)
}

/// Returns the class of the first error in the chain of causes whose class can be known. Contexts, which anyhow
/// and eyre put around errors, are only texts.
fn class_in_chain(error: &(dyn StdError + 'static)) -> Cow<'static, str> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(name) = well_known(error) {
            return name.into();
        }
        if let Some(name) = name_in_debug(error) {
            return name;
        }
        next = error.source();
    }
    UNNAMED.into()
}

/// Returns the type of an error if it is one of those that most programs meet.
fn well_known(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    macro_rules! first_of {
        ($($type:ty),* $(,)?) => {
            $(if error.is::<$type>() {
                return Some(type_name::<$type>());
            })*
        };
    }
    first_of!(
        std::io::Error,
        sqlx::Error,
        serde_json::Error,
        crate::Error,
        fmt::Error,
        std::env::VarError,
        std::net::AddrParseError,
        std::num::ParseFloatError,
        std::num::ParseIntError,
        std::num::TryFromIntError,
        std::str::ParseBoolError,
        std::str::Utf8Error,
        std::string::FromUtf8Error,
        std::time::SystemTimeError,
        chrono::ParseError,
        tokio::task::JoinError,
        tokio::time::error::Elapsed,
    );
    None
}

/// Returns the name at the head of a derived `Debug` output: the name of a struct, or of a variant of an enum.
///
/// The alternate form shows the error inside of an `anyhow::Error`; the other form is only its message. Output in
/// any other form, like a message or a quoted text, has no name.
fn name_in_debug(error: &(dyn StdError + 'static)) -> Option<Cow<'static, str>> {
    let head = Head::of(format_args!("{error:#?}"));
    let is_in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = head.find(|c| !is_in_name(c)).unwrap_or(head.len());
    let (name, rest) = head.split_at(end);
    if !name.starts_with(|c: char| c.is_ascii_uppercase()) || name.len() > MAX_NAME {
        return None;
    }
    let field = |prefix| rest.strip_prefix(prefix).map(str::trim_start);
    let is_io_error = match name {
        "Os" => field(" {").is_some_and(|field| field.starts_with("code:")),
        "Custom" => field(" {").is_some_and(|field| field.starts_with("kind:")),
        "Kind" => field("(").is_some(),
        _ => false,
    };
    if is_io_error {
        return Some(type_name::<std::io::Error>().into());
    }
    let is_context =
        name == "Error" && field(" {").is_some_and(|field| field.starts_with("context:"));
    let is_derived = match rest {
        // A message of one word is no name.
        "" => Head::of(format_args!("{error}")) != head,
        rest => rest.starts_with(" {") || rest.starts_with('('),
    };
    (is_derived && !is_context).then(|| name.to_owned().into())
}

/// The beginning of a formatted text; the rest is not formatted.
struct Head(String);

impl Head {
    fn of(text: fmt::Arguments<'_>) -> String {
        let mut head = Self(String::with_capacity(MAX_HEAD));
        // The only error is our own: enough was written.
        let _ = head.write_fmt(text);
        head.0
    }
}

impl fmt::Write for Head {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.0.len() >= MAX_HEAD {
                return Err(fmt::Error);
            }
            self.0.push(c);
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::io;

    use super::UNNAMED;
    use crate::JobError;

    type Boxed = Box<dyn std::error::Error + Send + Sync>;

    const IO: &str = "std::io::error::Error";

    #[derive(Debug, thiserror::Error)]
    enum Bank {
        #[error("the bank does not answer")]
        Down,
        #[error("refused with code {code}")]
        Refused { code: u32 },
        #[error("the line is dead")]
        Line(#[from] io::Error),
    }

    #[derive(Debug, thiserror::Error)]
    #[error("no cover on account {account}")]
    struct NoCover {
        account: String,
    }

    fn class(error: impl Into<JobError>) -> String {
        error.into().class().to_owned()
    }

    fn missing() -> io::Error {
        io::Error::from(io::ErrorKind::NotFound)
    }

    #[test]
    fn a_concrete_error_has_its_type_as_class() {
        assert!(
            class(Bank::Down).ends_with("::Bank"),
            "{}",
            class(Bank::Down)
        );
        assert_eq!(class(missing()), IO);
        assert_eq!(class(sqlx::Error::RowNotFound), "sqlx_core::error::Error");
    }

    #[test]
    fn a_boxed_error_has_the_class_of_the_error_in_the_box() {
        assert_eq!(class(Boxed::from(missing())), IO);
        assert_eq!(
            class(Boxed::from(sqlx::Error::PoolTimedOut)),
            "sqlx_core::error::Error"
        );
        assert_eq!(
            class(Boxed::from("abc".parse::<u32>().unwrap_err())),
            "core::num::error::ParseIntError"
        );
        assert_eq!(class(Boxed::from(Bank::Down)), "Down");
        assert_eq!(class(Boxed::from(Bank::Refused { code: 7 })), "Refused");
        assert_eq!(class(Boxed::from(Bank::from(missing()))), "Line");
        assert_eq!(class(Boxed::from("Swordfish")), UNNAMED);
        let account = "Swordfish".to_owned();
        assert_eq!(class(Boxed::from(NoCover { account })), "NoCover");
    }

    #[test]
    fn an_anyhow_error_has_the_class_of_the_error_in_it_with_or_without_context() {
        assert_eq!(class(anyhow::Error::new(Bank::Down)), "Down");
        assert_eq!(
            class(anyhow::Error::new(Bank::Down).context("charging order 7")),
            "Down"
        );
        let twice = anyhow::Error::new(missing())
            .context("reading")
            .context("charging order 7");
        assert_eq!(class(twice), IO);
        let kinds = [
            missing(),
            io::Error::other("dead"),
            io::Error::from_raw_os_error(2),
        ];
        for error in kinds {
            assert_eq!(class(anyhow::Error::new(error)), IO);
        }
        let error = anyhow::Error::new(sqlx::Error::RowNotFound);
        assert_eq!(class(error.context("order 7")), "sqlx_core::error::Error");
        assert_eq!(
            class(anyhow::Error::from_boxed(Boxed::from(Bank::Down))),
            "Down"
        );
    }

    #[test]
    fn a_text_has_no_class_of_its_own_however_it_is_wrapped() {
        use anyhow::Context as _;

        assert_eq!(class(anyhow::anyhow!("Swordfish")), UNNAMED);
        assert_eq!(class(anyhow::anyhow!("order {}", 7)), UNNAMED);
        let none: Option<()> = None;
        assert_eq!(class(none.context("Swordfish").unwrap_err()), UNNAMED);
        assert_eq!(class(none.context("no such order").unwrap_err()), UNNAMED);
    }

    #[test]
    fn a_class_can_be_given_and_a_context_goes_into_the_message() {
        let error = JobError::from(missing())
            .with_class("Disk")
            .context("reading");
        assert_eq!(error.class(), "Disk");
        assert!(
            error.message().starts_with("reading: "),
            "{}",
            error.message()
        );
        assert!(error.downcast_ref::<io::Error>().is_some());
    }
}
