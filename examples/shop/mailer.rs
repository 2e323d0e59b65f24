//! The application's own state: what a worker gives its jobs with `Worker::data`.

use std::time::Duration;

/// Sends mails, or would.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mailer;

/// Why a mail was not sent.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// No server will ever take it.
    #[error("`{0}` is not a mail address")]
    BadAddress(String),
    /// Another time it may.
    #[error("the mail server is busy")]
    Busy,
}

impl Mailer {
    /// Sends a mail.
    ///
    /// # Errors
    ///
    /// [`MailError::BadAddress`] for an address without an `@`.
    pub async fn send(&self, to: &str, _subject: &str) -> Result<(), MailError> {
        let spread = to.bytes().map(u64::from).sum::<u64>() * 37 % 300;
        tokio::time::sleep(Duration::from_millis(300 + spread)).await;
        if !to.contains('@') {
            return Err(MailError::BadAddress(to.to_owned()));
        }
        Ok(())
    }
}
