//! The traits that apalis-board needs: lists of jobs, counts, and one job by its id.
//!
//! The backend returns no errors, because an error would end its worker. A query that fails is logged and returns an
//! empty result.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use apalis_core::backend::codec::Codec;
use apalis_core::backend::{
    FetchById, Filter, ListAllTasks, ListQueues, ListTasks, ListWorkers, Metrics, QueueInfo,
    RunningWorker, StatType, Statistic, TaskSink, TaskSinkError, WireFormatBackend,
};
use apalis_core::task::Task;
use apalis_core::task::builder::TaskBuilder;
use apalis_core::task::status::Status;
use apalis_core::task::task_id::TaskId;
use futures_util::{Stream, StreamExt as _};

use super::{JobsBackend, WithoutCodec};
use crate::attempt::{Claimed, Envelope};
use crate::engine::covers;
use crate::{Client, JobInfo, JobStatus, WorkerInfo};

/// The codec for apalis-board, which passes envelopes on unchanged.
#[derive(Debug, Clone, Copy, Default)]
pub struct EnvelopeCodec;

impl Codec<Envelope> for EnvelopeCodec {
    type Error = Infallible;
    type Compact = Envelope;

    fn encode(&self, value: &Envelope) -> Result<Envelope, Infallible> {
        Ok(value.clone())
    }

    fn decode(&self, value: &Envelope) -> Result<Envelope, Infallible> {
        Ok(value.clone())
    }
}

impl WireFormatBackend for JobsBackend {
    type Codec = EnvelopeCodec;
    type Compact = Envelope;

    fn codec(&self) -> &EnvelopeCodec {
        &self.codec
    }
}

impl JobsBackend {
    fn client(&self) -> Client {
        Client::new(self.engine.config.pool.clone())
    }

    /// Returns the queue that the board shows for this backend: the worker's first pattern without `*`.
    fn queue(&self) -> Option<String> {
        let exact = |pattern: &&str| !pattern.ends_with('*');
        self.engine
            .slots
            .iter()
            .map(|queue| queue.pattern.as_str())
            .find(exact)
            .map(str::to_owned)
    }

    async fn list(&self, filter: &Filter, queue: Option<String>) -> Vec<Task<Envelope>> {
        let size = filter.page_size.unwrap_or(10).clamp(1, 1_000);
        let skip = i64::from(filter.page.saturating_sub(1)) * i64::from(size);
        let statuses: Option<Vec<String>> = filter.status.as_ref().map(|status| {
            job_statuses(status)
                .iter()
                .map(|status| status.as_str().to_owned())
                .collect()
        });
        let ids = sqlx::query_file_scalar!(
            "src/sql/board_page.sql",
            statuses.as_deref(),
            queue,
            skip,
            i64::from(size)
        )
        .fetch_all(&self.engine.config.pool)
        .await;
        let Some(ids) = answered(ids) else {
            return Vec::new();
        };
        let mut tasks = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(Some(job)) = answered(self.client().job(id.into()).info().await) {
                tasks.push(task_of(job));
            }
        }
        tasks
    }

    async fn counts(&self, queue: Option<String>) -> Vec<Statistic> {
        let rows = sqlx::query_file!("src/sql/board_counts.sql", queue)
            .fetch_all(&self.engine.config.pool)
            .await;
        let title = |status: &str| match status {
            "running" => "RUNNING_JOBS",
            "failed" => "FAILED_JOBS",
            "discarded" => "DISCARDED_JOBS",
            "succeeded" => "DONE_JOBS",
            "scheduled" => "SCHEDULED_JOBS",
            _ => "PENDING_JOBS",
        };
        answered(rows)
            .unwrap_or_default()
            .into_iter()
            .map(|row| Statistic {
                title: title(&row.status).to_owned(),
                stat_type: StatType::Number,
                value: row.count.to_string(),
                priority: Some(1),
            })
            .collect()
    }

    /// Returns the workers that have not stopped.
    async fn workers(&self) -> Vec<WorkerInfo> {
        let mut workers = answered(self.client().workers().await).unwrap_or_default();
        workers.retain(|worker| worker.stopped_at.is_none());
        workers
    }
}

/// Returns the result of a query; logs an error and returns `None`.
fn answered<T, E: std::fmt::Display>(result: Result<T, E>) -> Option<T> {
    result
        .inspect_err(|error| tracing::warn!(%error, "board query failed"))
        .ok()
}

fn serves(worker: &WorkerInfo, queue: &str) -> bool {
    worker
        .queues
        .iter()
        .any(|served| covers(&served.queue, queue))
}

fn running_worker(worker: WorkerInfo) -> RunningWorker {
    let seconds = |at: chrono::DateTime<chrono::Utc>| u64::try_from(at.timestamp()).unwrap_or(0);
    RunningWorker {
        id: worker.name,
        queue: serde_json::to_string(&worker.queues).unwrap_or_default(),
        backend: "pipeline".to_owned(),
        started_at: seconds(worker.started_at),
        last_heartbeat: seconds(worker.seen_at),
        layers: String::new(),
    }
}

fn job_statuses(status: &Status) -> &'static [JobStatus] {
    match status {
        Status::Pending => &[JobStatus::Ready, JobStatus::Scheduled],
        Status::Running => &[JobStatus::Running],
        Status::Done => &[JobStatus::Succeeded],
        Status::Failed => &[JobStatus::Failed],
        Status::Killed => &[JobStatus::Discarded],
        _ => &[],
    }
}

fn task_of(job: JobInfo) -> Task<Envelope> {
    let status = match job.status {
        JobStatus::Scheduled | JobStatus::Ready => Status::Pending,
        JobStatus::Running => Status::Running,
        JobStatus::Succeeded => Status::Done,
        JobStatus::Failed => Status::Failed,
        JobStatus::Discarded => Status::Killed,
    };
    let (id, attempt, attempts) = (
        job.id,
        usize::from(job.attempt),
        usize::from(job.max_attempts),
    );
    let run_at = u64::try_from(job.run_at.timestamp()).unwrap_or(0);
    let done_at = job
        .ended_at
        .and_then(|at| u64::try_from(at.timestamp()).ok());
    let queue = job.queue.as_str().into();
    TaskBuilder::new(Envelope::listed(Claimed {
        id: id.get(),
        reserved: None,
        token: 0,
        queue: job.queue,
        job_type: job.job_type,
        attempt: job.attempt.cast_signed(),
        max_attempts: job.max_attempts.cast_signed(),
        priority: job.priority,
        run_at: job.run_at,
        waited_ms: 0,
        lease_ms: 0,
        batch: job.batch.map(crate::BatchId::get),
        args: job.args.to_string(),
        input: crate::input::Input::None,
        options: None,
        owner: None,
    }))
    .task_id(TaskId::from_int(id.get().cast_unsigned()))
    .attempt(attempt)
    .max_attempts(attempts)
    .status(status)
    .queue(queue)
    .run_at_timestamp(run_at)
    .done_at(done_at)
    .lock_by(job.worker.map(|worker| worker.to_string()))
    .build()
}

impl ListTasks for JobsBackend {
    async fn list_tasks(&self, filter: &Filter) -> Result<Vec<Task<Envelope>>, Infallible> {
        Ok(self.list(filter, self.queue()).await)
    }
}

impl ListAllTasks for JobsBackend {
    async fn list_all_tasks(&self, filter: &Filter) -> Result<Vec<Task<Envelope>>, Infallible> {
        Ok(self.list(filter, None).await)
    }
}

impl FetchById for JobsBackend {
    async fn fetch_by_id(&mut self, id: &TaskId) -> Result<Option<Task<Envelope>>, Infallible> {
        let Some(id) = id.as_int() else {
            return Ok(None);
        };
        let job = self.client().job(id.cast_signed().into()).info().await;
        Ok(answered(job).flatten().map(task_of))
    }
}

impl ListQueues for JobsBackend {
    async fn list_queues(&self) -> Result<Vec<QueueInfo>, Infallible> {
        let rows = sqlx::query_file_scalar!("src/sql/board_queues.sql")
            .fetch_all(&self.engine.config.pool)
            .await;
        let workers = self.workers().await;
        let mut queues = Vec::new();
        for name in answered(rows).unwrap_or_default() {
            queues.push(QueueInfo {
                stats: self.counts(Some(name.clone())).await,
                workers: workers
                    .iter()
                    .filter(|worker| serves(worker, &name))
                    .map(|worker| worker.name.clone())
                    .collect(),
                activity: Vec::new(),
                name,
            });
        }
        Ok(queues)
    }
}

impl ListWorkers for JobsBackend {
    async fn list_workers(&self) -> Result<Vec<RunningWorker>, Infallible> {
        let mut workers = self.workers().await;
        if let Some(queue) = self.queue() {
            workers.retain(|worker| serves(worker, &queue));
        }
        Ok(workers.into_iter().map(running_worker).collect())
    }

    async fn list_all_workers(&self) -> Result<Vec<RunningWorker>, Infallible> {
        Ok(self
            .workers()
            .await
            .into_iter()
            .map(running_worker)
            .collect())
    }
}

impl Metrics for JobsBackend {
    async fn global(&self) -> Result<Vec<Statistic>, Infallible> {
        Ok(self.counts(None).await)
    }

    async fn fetch_by_queue(&self) -> Result<Vec<Statistic>, Infallible> {
        Ok(self.counts(self.queue()).await)
    }
}

/// Refuses jobs from the board: the board knows no job type, so that no worker could decode its jobs.
impl TaskSink<Envelope, WithoutCodec> for JobsBackend {
    fn start_send(
        self: Pin<&mut Self>,
        _: Task<Envelope>,
    ) -> Result<(), TaskSinkError<Infallible>> {
        refused()
    }

    fn poll_ready(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Result<(), TaskSinkError<Infallible>>> {
        Poll::Ready(Ok(()))
    }

    fn poll_flush(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Result<(), TaskSinkError<Infallible>>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Result<(), TaskSinkError<Infallible>>> {
        Poll::Ready(Ok(()))
    }

    async fn push(&mut self, _: Envelope) -> Result<(), TaskSinkError<Infallible>> {
        refused()
    }

    async fn push_bulk(&mut self, tasks: Vec<Envelope>) -> Result<(), TaskSinkError<Infallible>> {
        if tasks.is_empty() { Ok(()) } else { refused() }
    }

    async fn push_stream(
        &mut self,
        mut tasks: impl Stream<Item = Envelope> + Unpin + Send,
    ) -> Result<(), TaskSinkError<Infallible>> {
        if tasks.next().await.is_none() {
            Ok(())
        } else {
            refused()
        }
    }

    async fn push_task(&mut self, _: Task<Envelope>) -> Result<(), TaskSinkError<Infallible>> {
        refused()
    }

    async fn push_all(
        &mut self,
        mut tasks: impl Stream<Item = Task<Envelope>> + Unpin + Send,
    ) -> Result<(), TaskSinkError<Infallible>> {
        if tasks.next().await.is_none() {
            Ok(())
        } else {
            refused()
        }
    }
}

fn refused() -> Result<(), TaskSinkError<Infallible>> {
    Err(TaskSinkError::CodecError(
        "the board cannot enqueue jobs: use `jobs::Client`".into(),
    ))
}
