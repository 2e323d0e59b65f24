//! The jobs of the demo, its worker, and the cleanup.

use std::time::Duration;

use pipeline::IntoNewJob;
use pipeline::prelude::*;
use shop::studio::{self, Tell};
use shop::{
    FlakyWebhook, Mailer, PublishGallery, Reminder, SendInvoice, Thumbnail, Welcome, Working,
};

use crate::Result;
use crate::import::{Disk, Fetch, Load};

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
const PHOTOS: u64 = 12;

/// The client of the demo, and the names that it uses.
pub(crate) struct Scene {
    pub(crate) client: Client,
    /// The prefix of the queues, so that two demos on one database do not run each other's jobs.
    prefix: String,
    pub(crate) album: String,
    /// The disk, which is full at first.
    pub(crate) disk: Disk,
}

impl Scene {
    pub(crate) fn new(client: Client, shared: bool) -> Self {
        // The process id is not enough, because demos on several machines may share the database.
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let run = format!("{:x}-{:x}", std::process::id(), since.subsec_micros());
        Self {
            client,
            prefix: match shared {
                true => format!("demo-{run}."),
                false => String::new(),
            },
            album: format!("album-{run}"),
            disk: Disk::default(),
        }
    }

    pub(crate) fn describe(&self) -> String {
        let (default, media) = (self.queue("default"), self.queue("media"));
        format!("  worker    in this process: 4 slots on {default}, 4 on {media}, 2 for callbacks")
    }

    /// Returns the name of a queue in this demo.
    pub(crate) fn queue(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Returns the name of the worker in this demo.
    fn worker(&self) -> String {
        format!("demo-{}", self.album)
    }

    /// Returns the name of a queue without the prefix of this demo.
    pub(crate) fn short<'a>(&self, queue: &'a str) -> &'a str {
        queue.strip_prefix(&self.prefix).unwrap_or(queue)
    }

    /// Enqueues all mails in one transaction, then a batch.
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

    /// Returns the job with the name of its queue in this demo.
    fn here(&self, job: impl IntoNewJob + Job) -> NewJob {
        let queue = self.queue(queue_of(&job));
        job.into_new_job().queue(queue)
    }

    pub(crate) fn start_worker(&self) -> Working {
        Working::start(
            Worker::new(self.client.pool().clone())
                .name(self.worker())
                .data(Mailer)
                .data(self.disk.clone())
                .register::<(Welcome, SendInvoice, Reminder, FlakyWebhook)>()
                .register::<(Thumbnail, PublishGallery)>()
                .register::<(studio::Download, studio::Transcode, studio::Thumbnail)>()
                .register::<(studio::Publish, studio::Task, Tell, Fetch, Load)>()
                .queue(self.queue("default"), 4)
                .queue(self.queue("media"), 4)
                .queue(PublishGallery::OPTIONS.queue, 1)
                .queue(Tell::OPTIONS.queue, 1)
                .grace(Duration::from_secs(1))
                // By default, succeeded jobs are deleted, and the demo could not show them.
                .keep_succeeded(true),
        )
    }

    /// Takes away all that this run has left. Application code would call `JobHandle::delete`; this
    /// also removes history that is otherwise kept.
    pub(crate) async fn clear(&self) -> Result<()> {
        let mut tx = self.client.pool().begin().await?;
        let runs: Vec<i64> =
            sqlx::query_scalar("select id from pipeline.runs where tags @> array[$1]")
                .bind(&self.album)
                .fetch_all(&mut *tx)
                .await?;
        let queues = [self.queue("default"), self.queue("media")];
        sqlx::query(
            "with ours as (
                 delete from pipeline.jobs
                 where queue = any ($1) or args ->> 'album' = $2 or args ->> 'whom' = $2
                 returning id, batch
             ), attempts as (
                 delete from pipeline.attempts
                 where job in (select id from ours) or job % 2 = 0 and pipeline.run_of(job) = any ($4)
             ), workers as (
                 delete from pipeline.workers where name = $3
             ), steps as (
                 delete from pipeline.steps where run = any ($4)
             ), events as (
                 delete from pipeline.events where run = any ($4)
             ), fired as (
                 delete from pipeline.dispatched_callbacks where run = any ($4)
             ), chains as (
                 delete from pipeline.chains where upstream = any ($4) or downstream = any ($4)
             ), runs as (
                 delete from pipeline.runs where id = any ($4) returning graph
             ), graphs as (
                 delete from pipeline.graphs where $5 and id in (select graph from runs)
             )
             delete from pipeline.batch_sets where id in (select batch from ours)",
        )
        .bind(&queues[..])
        .bind(&self.album)
        .bind(self.worker())
        .bind(&runs)
        // The names of the queues are part of a graph: with a prefix, no other demo uses the graphs.
        .bind(!self.prefix.is_empty())
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }
}

fn queue_of<J: Job>(_: &J) -> &'static str {
    J::OPTIONS.queue
}
