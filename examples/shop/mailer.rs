//! A mailer, as an example of a value that a worker gives to its jobs with `Worker::data`.

use std::time::Duration;

/// Pretends to send mails.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mailer;

/// Why a mail was not sent.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// No mail server will ever accept the address.
    #[error("`{0}` is not a mail address")]
    BadAddress(String),
    /// The mail server may accept the mail later.
    #[error("the mail server is busy")]
    Busy,
}

impl Mailer {
    /// Pretends to send a mail.
    ///
    /// # Errors
    ///
    /// Returns [`MailError::BadAddress`] for an address without an `@`.
    pub async fn send(&self, to: &str, _subject: &str) -> Result<(), MailError> {
        let spread = to.bytes().map(u64::from).sum::<u64>() * 37 % 300;
        tokio::time::sleep(Duration::from_millis(300 + spread)).await;
        if !to.contains('@') {
            return Err(MailError::BadAddress(to.to_owned()));
        }
        Ok(())
    }
}
