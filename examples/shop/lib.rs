//! A small shop: the jobs that the demo runs, and the code that the examples share, such as the drawing of a run as a
//! tree.
//!
//! The jobs do not send mails or draw pictures; they only sleep.

mod home;
mod mailer;
mod stage;
pub mod studio;
mod tree;

/// The Rust blocks of the README and of the guides, as doc tests. `build.rs` writes them.
#[cfg(doctest)]
mod guides {
    include!(concat!(env!("OUT_DIR"), "/guides.rs"));
}

use std::time::Duration;

use jobs::{BatchEnded, Context, Job, JobError, Perform};
use serde::{Deserialize, Serialize};

pub use home::Home;
pub use mailer::{MailError, Mailer};
pub use stage::{Working, tell};
pub use tree::{Drawn, Tree};

/// The result of an example.
pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Greets a new customer.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
pub struct Welcome {
    /// The customer's address.
    pub to: String,
}

impl Perform for Welcome {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        cx.data::<Mailer>()?.send(&self.to, "Welcome!").await?;
        Ok(())
    }
}

/// Sends an invoice. Discards itself if the address is not valid.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
pub struct SendInvoice {
    /// The customer's address.
    pub to: String,
}

impl Perform for SendInvoice {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        let sent = cx.data::<Mailer>()?.send(&self.to, "Your invoice").await;
        sent.map_err(|error| match error {
            MailError::BadAddress(_) => JobError::new("BadAddress", error).discard(),
            MailError::Busy => error.into(),
        })
    }
}

/// Asks a customer for an opinion, some time later.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
pub struct Reminder {
    /// The customer's address.
    pub to: String,
}

impl Perform for Reminder {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        cx.data::<Mailer>()?.send(&self.to, "How was it?").await?;
        Ok(())
    }
}

/// Sends an order to a partner, whose server answers only the third call.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(max_attempts = 5, backoff = "exponential(1s..1m)", timeout = "10s")]
pub struct FlakyWebhook {
    /// The number of the order.
    pub order: u64,
}

impl Perform for FlakyWebhook {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        tokio::time::sleep(Duration::from_millis(300)).await;
        if cx.attempt() < 3 {
            return Err(JobError::new("Unavailable", "partner.example said 503"));
        }
        Ok(())
    }
}

/// Draws the thumbnail of a photo.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(queue = "media", max_attempts = 3, timeout = "30s")]
pub struct Thumbnail {
    /// The number of the photo.
    pub photo: u64,
}

impl Perform for Thumbnail {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _cx: &Context) -> Result<(), JobError> {
        let work = Duration::from_millis(400 + self.photo * 173 % 300);
        tokio::time::sleep(work).await;
        Ok(())
    }
}

/// Publishes an album when all of its thumbnails are drawn. This job is the callback of a batch.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(queue = "demo.galleries")]
pub struct PublishGallery {
    /// The name of the album.
    pub album: String,
}

impl Perform for PublishGallery {
    type Input = BatchEnded;
    type Output = u32;

    /// Returns the number of pictures in the gallery.
    async fn perform(self, batch: BatchEnded, _cx: &Context) -> Result<u32, JobError> {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(batch.total - batch.failed)
    }
}
