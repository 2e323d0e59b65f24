//! What a job says when it could not do its work.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// Why an attempt failed, and what is to come of it.
///
/// Any error becomes one with `?`, and so does a text:
///
/// ```
/// # use jobs::JobError;
/// fn read() -> Result<String, JobError> {
///     let text = std::fs::read_to_string("/nowhere")?;
///     if text.is_empty() {
///         return Err("the file is empty".into());
///     }
///     Ok(text)
/// }
/// # assert!(read().is_err());
/// ```
///
/// By itself an error means that the job is tried again after its backoff, while attempts remain.
/// [`retry_after`](Self::retry_after), [`discard`](Self::discard) and [`snooze`](Self::snooze) say
/// otherwise.
///
/// The class and the message are kept apart: lists are grouped by the one and read by the other. The
/// class of an error that came by `?` is its type's name; the error itself is there for
/// [`on_error`](crate::Perform::on_error), with [`downcast_ref`](Self::downcast_ref).
pub struct JobError {
    class: Cow<'static, str>,
    message: String,
    then: Then,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// What [`on_error`](crate::Perform::on_error) says.
    Ask,
    Retry,
    RetryAfter(Duration),
    Discard,
    /// Failed for good, whatever attempts remain: not the job's own word, as a discard is.
    Fail,
    Snooze(Duration),
    Stopped,
}

impl JobError {
    /// An error of a class of your own.
    pub fn new(class: impl Into<Cow<'static, str>>, message: impl fmt::Display) -> Self {
        Self {
            class: class.into(),
            message: message.to_string(),
            then: Then::Ask,
            source: None,
        }
    }

    /// Tries again after this time, if attempts remain: "the server said: in a minute".
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.then = Then::RetryAfter(wait);
        self
    }

    /// Never tries again: no further attempt would end better.
    #[must_use]
    pub fn discard(mut self) -> Self {
        self.then = Then::Discard;
        self
    }

    /// Comes back after this time, as if this attempt had not been: "not yet". It costs none.
    pub fn snooze(wait: Duration) -> Self {
        Self {
            class: "Snooze".into(),
            message: format!("snoozed for {wait:?}"),
            then: Then::Snooze(wait),
            source: None,
        }
    }

    /// The job has stopped because it was asked to: see
    /// [`Context::cancelled`](crate::Context::cancelled). It costs no attempt. From a job that was not
    /// asked, it is an error like any other.
    pub fn stopped() -> Self {
        Self {
            class: "Stopped".into(),
            message:
                "the job stopped before it was done: where nobody asked it to, that is an error; \
                      return this only once `cx.cancelled()` has ended"
                    .to_owned(),
            then: Then::Stopped,
            source: None,
        }
    }

    /// What kind of error it is.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// What it says.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error that it was made of, if that is an `E`; else the first of its causes that is one.
    ///
    /// ```
    /// # use jobs::JobError;
    /// use std::io::{Error, ErrorKind};
    ///
    /// let error = JobError::from(Error::from(ErrorKind::NotFound));
    /// let kind = error.downcast_ref::<Error>().map(Error::kind);
    /// assert_eq!(kind, Some(ErrorKind::NotFound));
    /// ```
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        let mut next: Option<&(dyn StdError + 'static)> = Some(&**self.source.as_ref()?);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }

    /// The same without the error that it was made of: only `on_error` is shown that.
    pub(crate) fn without_source(mut self) -> Self {
        self.source = None;
        self
    }

    pub(crate) fn then(&self) -> Then {
        self.then
    }

    pub(crate) fn with(mut self, then: Then) -> Self {
        self.then = then;
        self
    }
}

impl<E> From<E> for JobError
where
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    fn from(error: E) -> Self {
        let error = error.into();
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // Many errors repeat their cause in their own text.
            if !message.contains(&cause_text) {
                message.push_str(": ");
                message.push_str(&cause_text);
            }
            source = cause.source();
        }
        Self {
            source: Some(error),
            ..Self::new(class_of::<E>(), message)
        }
    }
}

/// `std::io::error::Error` -> `std::io::Error` would be nicer, but only the compiler knows the short
/// way; texts have no class of their own.
fn class_of<E>() -> &'static str {
    let name = std::any::type_name::<E>();
    match name {
        "&str" | "alloc::string::String" | "alloc::borrow::Cow<str>" => "Error",
        _ => name,
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

impl fmt::Debug for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobError")
            .field("class", &self.class)
            .field("message", &self.message)
            .field("then", &self.then)
            .finish()
    }
}

/// Carries a [`JobError`] through tower layers, which pass errors on as boxes.
#[derive(Debug)]
pub(crate) struct Carried(pub(crate) JobError);

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Carried {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_type_as_class_and_its_causes_in_the_message() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot load the order")]
        struct Load(#[source] std::io::Error);

        let error: JobError = Load(std::io::Error::other("disk on fire")).into();
        assert!(error.class().ends_with("Load"), "{}", error.class());
        assert_eq!(error.message(), "cannot load the order: disk on fire");
        assert_eq!(error.then(), Then::Ask);

        assert!(error.downcast_ref::<Load>().is_some());
        let cause = error.downcast_ref::<std::io::Error>();
        assert_eq!(
            cause.map(ToString::to_string).as_deref(),
            Some("disk on fire")
        );
        assert!(error.downcast_ref::<fmt::Error>().is_none());
        assert!(!format!("{error:?}").contains("Load("), "{error:?}");
        let bare = error.discard().without_source();
        assert!(bare.downcast_ref::<Load>().is_none());
        assert_eq!(bare.message(), "cannot load the order: disk on fire");
    }

    #[test]
    fn a_text_is_an_error_of_no_special_class() {
        for error in [JobError::from("no"), JobError::from(String::from("no"))] {
            assert_eq!((error.class(), error.message()), ("Error", "no"));
        }
    }
}
