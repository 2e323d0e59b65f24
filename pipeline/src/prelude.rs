//! Everything that an application needs to declare jobs and pipelines, start runs and run workers.
//!
//! ```
//! use pipeline::prelude::*;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, Job)]
//! #[job(queue = "media")]
//! struct Download {
//!     video: i64,
//! }
//!
//! impl Perform for Download {
//!     type Input = ();
//!     type Output = u64;
//!
//!     async fn perform(self, (): (), cx: &Context) -> Result<u64, JobError> {
//!         println!("run {:?}, step {:?}: video {}", cx.run(), cx.step(), self.video);
//!         Ok(7)
//!     }
//! }
//!
//! async fn download(client: &Client, video: i64) -> pipeline::Result<u64> {
//!     let pipeline = Pipeline::configure("download", |p| p.step("download", Download { video }))?;
//!     client.start(pipeline).await?.result().await
//! }
//!
//! async fn work(pool: pipeline::sqlx::PgPool) -> pipeline::Result<()> {
//!     let worker = Worker::new(pool).register::<Download>().queue("media", 8);
//!     worker.run_until(shutdown_signal()).await
//! }
//! ```
//!
//! `Result` and `Error` are not part of the prelude, because an application has its own: name them
//! [`pipeline::Result`](crate::Result) and [`pipeline::Error`](crate::Error).

pub use crate::{
    Backoff, Batch, BatchEnded, BatchId, Branch, Client, Context, Continue, Define, EventLevel,
    Failure, Halt, Ignore, IgnoredStep, Job, JobError, JobFilter, JobId, JobStatus, NewJob, NewRun,
    OptionalStep, Perform, Pipeline, PipelineBuilder, Run, RunEnded, RunFilter, RunId, RunStatus,
    Step, StepContext as _, StepStatus, Worker, shutdown_signal,
};
