//! What is enqueued, and the worker that runs it.

use std::time::Duration;

use jobs::{Batch, Client, IntoNewJob, Job, NewJob, Worker};
use shop::{FlakyWebhook, Mailer, PublishGallery, Reminder, SendInvoice, Thumbnail, Welcome};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Result;
use crate::screen::Screen;

const CUSTOMERS: [&str; 12] = [
    "ada",
    "barbara",
    "charles",
    "dennis",
    "edsger",
    "frances",
    "grace",
    "hedy",
    "ivan",
    "jean",
    "katherine",
    "leslie",
];
const PHOTOS: u64 = 16;

/// The demo's jobs on their queues.
pub(crate) struct Scene {
    pub(crate) client: Client,
    /// Two demos on one database must not take each other's jobs.
    prefix: String,
    pub(crate) album: String,
}

impl Scene {
    pub(crate) fn new(client: Client, shared: bool) -> Self {
        // The process's number is not enough: the database may be another machine's too.
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let run = format!("{:x}-{:x}", std::process::id(), since.subsec_micros());
        Self {
            client,
            prefix: match shared {
                true => format!("demo-{run}."),
                false => String::new(),
            },
            album: format!("album-{run}"),
        }
    }

    pub(crate) fn describe(&self, screen: &mut Screen) -> Result<()> {
        let (default, media) = (self.queue("default"), self.queue("media"));
        screen.line(&format!(
            "  worker    in this process: 4 slots on {default}, 3 on {media}, 1 for callbacks\n"
        ))
    }

    /// A queue's name in this run.
    pub(crate) fn queue(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The worker's name in this run.
    fn worker(&self) -> String {
        format!("demo-{}", self.album)
    }

    /// A queue's name as people know it.
    pub(crate) fn short<'a>(&self, queue: &'a str) -> &'a str {
        queue.strip_prefix(&self.prefix).unwrap_or(queue)
    }

    /// One transaction: all of the mails, or none. Then a batch.
    pub(crate) async fn enqueue(&self) -> Result<Batch> {
        let to = |name: &str| format!("{name}@example.org");
        let welcomes = CUSTOMERS.map(|name| self.here(Welcome { to: to(name) }));
        let invoice = SendInvoice {
            to: "ada".to_owned(),
        };
        let reminder = Reminder { to: to("ada") };

        let mut tx = self.client.pool().begin().await?;
        self.client.enqueue_many_in(&mut tx, welcomes).await?;
        let client = &self.client;
        let first = |job: NewJob| job.priority(1);
        client
            .enqueue_in(&mut tx, first(self.here(FlakyWebhook { order: 7 })))
            .await?;
        client
            .enqueue_in(&mut tx, first(self.here(invoice)))
            .await?;
        client
            .enqueue_in(&mut tx, self.here(reminder))
            .delay(Duration::from_secs(2))
            .await?;
        tx.commit().await?;

        let thumbnails = (1..=PHOTOS).map(|photo| self.here(Thumbnail { photo }));
        let publish = PublishGallery {
            album: self.album.clone(),
        };
        Ok(self
            .client
            .batch()
            .on_finish(publish)
            .jobs(thumbnails)
            .await?)
    }

    /// The job on its queue, as that is called in this run.
    fn here(&self, job: impl IntoNewJob + Job) -> NewJob {
        let queue = self.queue(queue_of(&job));
        job.into_new_job().queue(queue)
    }

    pub(crate) fn start_worker(&self) -> Running {
        let worker = Worker::new(self.client.pool().clone())
            .name(self.worker())
            .data(Mailer)
            .register::<(Welcome, SendInvoice, Reminder, FlakyWebhook)>()
            .register::<(Thumbnail, PublishGallery)>()
            .queue(self.queue("default"), 4)
            .queue(self.queue("media"), 3)
            .queue(PublishGallery::OPTIONS.queue, 1)
            .grace(Duration::from_secs(1))
            // Else they are deleted with their end, and there were nothing to show.
            .keep_succeeded(true);
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(worker.run_until(async move {
            let _ = stopped.await;
        }));
        Running { stop, task }
    }

    /// Takes away all that this run has left. Application code would call `Client::discard`; this
    /// also removes history that is otherwise kept.
    pub(crate) async fn clear(&self) -> Result<()> {
        let queues = [self.queue("default"), self.queue("media")];
        sqlx::query(
            "with ours as (
                 delete from pipeline.jobs
                 where queue = any ($1) or (kind = $2 and args ->> 'album' = $3)
                 returning id, batch
             ), attempts as (
                 delete from pipeline.attempts where job in (select id from ours)
             ), workers as (
                 delete from pipeline.workers where name = $4
             )
             delete from pipeline.batch_sets where id in (select batch from ours)",
        )
        .bind(&queues[..])
        .bind(PublishGallery::NAME)
        .bind(&self.album)
        .bind(self.worker())
        .execute(self.client.pool())
        .await?;
        Ok(())
    }
}

fn queue_of<J: Job>(_: &J) -> &'static str {
    J::OPTIONS.queue
}

/// A worker that runs beside us. Dropped, it stops as well.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<jobs::Result<()>>,
}

impl Running {
    /// Ends when the worker does, which it should not: with the reason.
    pub(crate) async fn failed(&mut self) -> Result<()> {
        (&mut self.task).await??;
        Err("the worker stopped by itself".into())
    }

    /// Stops it and waits until it has, but not for ever: the database may be gone.
    pub(crate) async fn stop(self) -> Result<()> {
        let _ = self.stop.send(());
        match tokio::time::timeout(Duration::from_secs(5), self.task).await {
            Ok(ended) => Ok(ended??),
            Err(_) => Err("the worker could not bring its work home within 5 s".into()),
        }
    }
}
