//! The error of a job's attempt.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::error_class::class_of;
use crate::error_text::with_causes;

/// The error of an attempt: its class, its message, and whether the job is retried.
///
/// Any error becomes a `JobError` with `?`, and so does a text:
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
/// By default the job is retried after its backoff, while attempts remain.
/// [`retry_after`](Self::retry_after), [`discard`](Self::discard) and [`snooze`](Self::snooze) change that.
///
/// The class groups errors in lists, and the message describes one of them. The class of an error that was
/// converted by `?` is the name of its type. An `anyhow::Error` or a `Box<dyn Error>` hides that type; its class is
/// the name at the head of the `Debug` output of the error in it, like `BankDown`, or the type of a well-known error
/// of std, serde_json, sqlx or tokio among its causes. [`with_class`](Self::with_class) names the class yourself.
///
/// [`on_error`](crate::Perform::on_error) can read the original error with [`downcast_ref`](Self::downcast_ref).
pub struct JobError {
    class: Cow<'static, str>,
    message: String,
    disposition: Disposition,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The decision about a job whose attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// [`on_error`](crate::Perform::on_error) decides.
    Ask,
    Retry,
    RetryAfter(Duration),
    Discard,
    /// The job fails without further attempts, by our decision and not by its own, as with a discard.
    Fail,
    Snooze(Duration),
    Stopped,
}

impl JobError {
    /// Creates an error with a class and a message.
    pub fn new(class: impl Into<Cow<'static, str>>, message: impl fmt::Display) -> Self {
        Self {
            class: class.into(),
            message: message.to_string(),
            disposition: Disposition::Ask,
            source: None,
        }
    }

    /// Sets the class, by which lists group errors.
    ///
    /// ```
    /// # use jobs::JobError;
    /// fn charge() -> anyhow::Result<()> {
    ///     anyhow::bail!("no answer from 10.0.0.7")
    /// }
    ///
    /// # fn perform() -> Result<(), JobError> {
    /// charge().map_err(|error| JobError::from(error).with_class("BankDown"))?;
    /// # Ok(())
    /// # }
    /// # assert_eq!(perform().unwrap_err().to_string(), "BankDown: no answer from 10.0.0.7");
    /// ```
    #[must_use]
    pub fn with_class(mut self, class: impl Into<Cow<'static, str>>) -> Self {
        self.class = class.into();
        self
    }

    /// Puts a text in front of the message: what the job was doing.
    ///
    /// ```
    /// # use jobs::JobError;
    /// let error = JobError::new("BankDown", "no answer").context("charging order 7");
    /// assert_eq!(error.message(), "charging order 7: no answer");
    /// ```
    #[must_use]
    pub fn context(mut self, text: impl fmt::Display) -> Self {
        self.message = format!("{text}: {}", self.message);
        self
    }

    /// Retries the job after this time instead of its backoff, if attempts remain.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.disposition = Disposition::RetryAfter(wait);
        self
    }

    /// Ends the job without further attempts: it is kept as `discarded`.
    #[must_use]
    pub fn discard(mut self) -> Self {
        self.disposition = Disposition::Discard;
        self
    }

    /// Runs the job again after this time; the attempt is not counted.
    pub fn snooze(wait: Duration) -> Self {
        Self {
            class: "Snooze".into(),
            message: format!("snoozed for {wait:?}"),
            disposition: Disposition::Snooze(wait),
            source: None,
        }
    }

    /// Reports that the job stopped because it was asked to: see
    /// [`Context::cancelled`](crate::Context::cancelled). The attempt is not counted. From a job that was not
    /// asked to stop, this is an error like any other.
    pub fn stopped() -> Self {
        Self {
            class: "Stopped".into(),
            message: "the job stopped before it was done, although nothing asked it to: return \
                      `JobError::stopped()` only after `cx.cancelled()` has completed"
                .to_owned(),
            disposition: Disposition::Stopped,
            source: None,
        }
    }

    /// Returns the class, by which lists group errors.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// Returns the message, without the class.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the original error if it is an `E`, else the first of its causes that is one.
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

    /// Drops the original error, which only `on_error` may read.
    pub(crate) fn without_source(mut self) -> Self {
        self.source = None;
        self
    }

    pub(crate) fn disposition(&self) -> Disposition {
        self.disposition
    }

    pub(crate) fn with(mut self, disposition: Disposition) -> Self {
        self.disposition = disposition;
        self
    }
}

impl<E> From<E> for JobError
where
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    fn from(error: E) -> Self {
        let error = error.into();
        Self {
            class: class_of(std::any::type_name::<E>(), &*error),
            message: with_causes(&*error),
            disposition: Disposition::Ask,
            source: Some(error),
        }
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

impl fmt::Debug for JobError {
    /// Prints the same text as `Display`: `main` and tests that return a `Result` print `Debug`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Carries a [`JobError`] through tower layers, which return errors as boxes.
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
        assert_eq!(error.disposition(), Disposition::Ask);

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
