//! A little shop: the jobs that the demo runs and that the guides in `docs/guides/` talk about; and what
//! the examples share: a place to run, and a run drawn as a tree.
//!
//! Nothing here sends a mail or draws a picture; what takes time sleeps.

mod home;
mod mailer;
mod stage;
pub mod studio;
mod tree;
pub mod video;

/// Every code block of the readme and the guides is compiled with the tests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../README.md")]
    mod readme {}
    #[doc = include_str!("../../docs/guides/batches.md")]
    mod batches {}
    #[doc = include_str!("../../docs/guides/branches-and-barriers.md")]
    mod branches_and_barriers {}
    #[doc = include_str!("../../docs/guides/callbacks.md")]
    mod callbacks {}
    #[doc = include_str!("../../docs/guides/cancelling-and-deadlines.md")]
    mod cancelling_and_deadlines {}
    #[doc = include_str!("../../docs/guides/chaining.md")]
    mod chaining {}
    #[doc = include_str!("../../docs/guides/data-between-steps.md")]
    mod data_between_steps {}
    #[doc = include_str!("../../docs/guides/failure-strategies.md")]
    mod failure_strategies {}
    #[doc = include_str!("../../docs/guides/first-job.md")]
    mod first_job {}
    #[doc = include_str!("../../docs/guides/first-pipeline.md")]
    mod first_pipeline {}
    #[doc = include_str!("../../docs/guides/operating.md")]
    mod operating {}
    #[doc = include_str!("../../docs/guides/retries-and-errors.md")]
    mod retries_and_errors {}
    #[doc = include_str!("../../docs/guides/retry-and-rerun.md")]
    mod retry_and_rerun {}
    #[doc = include_str!("../../docs/guides/testing-your-pipelines.md")]
    mod testing_your_pipelines {}
    #[doc = include_str!("../../docs/guides/transactions.md")]
    mod transactions {}
    #[doc = include_str!("../../docs/guides/workers-and-shutdown.md")]
    mod workers_and_shutdown {}
}

use std::time::Duration;

use jobs::{BatchEnded, Context, Job, JobError, Perform};
use serde::{Deserialize, Serialize};

pub use home::Home;
pub use mailer::{MailError, Mailer};
pub use stage::{Working, tell};
pub use tree::{Drawn, Tree};

/// What an example returns.
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

/// Sends an invoice. An address that is none is nothing to try again.
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

/// Asks a customer how it was, some time later.
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

/// Tells a partner of an order. The partner's server is not at its best: it answers the third call.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(max_attempts = 5, backoff = "exponential(1s..1m)", timeout = "10s")]
pub struct FlakyWebhook {
    /// The order.
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
    /// The photo.
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

/// Opens an album to the public when all of its thumbnails are drawn: the callback of a batch.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(queue = "demo.galleries")]
pub struct PublishGallery {
    /// The album.
    pub album: String,
}

impl Perform for PublishGallery {
    type Input = BatchEnded;
    type Output = u32;

    /// Returns how many pictures the gallery shows.
    async fn perform(self, batch: BatchEnded, _cx: &Context) -> Result<u32, JobError> {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(batch.total - batch.failed)
    }
}
