//! The statuses of all jobs of the demo, read from the database.

use chrono::{DateTime, TimeDelta, Utc};
use pipeline::prelude::*;
use pipeline::{BatchState, JobInfo};
use shop::{PublishGallery, SendInvoice};

use crate::Result;
use crate::scene::Scene;
use crate::screen::{Line, Screen};

/// The jobs of the demo at one moment.
pub(crate) struct Snapshot {
    /// The jobs by queue and type, in the order in which they were enqueued.
    groups: Vec<Group>,
    batch: BatchState,
    now: DateTime<Utc>,
}

/// The jobs of one type.
struct Group {
    kind: String,
    queue: String,
    jobs: Vec<JobInfo>,
}

impl Snapshot {
    pub(crate) async fn take(scene: &Scene, batch: &Batch) -> Result<Self> {
        let client = &scene.client;
        let mut groups: Vec<Group> = Vec::new();
        for queue in ["default", "media"] {
            let of_queue = JobFilter::new().queue(scene.queue(queue)).limit(1_000);
            gather(&mut groups, client.jobs(&of_queue).await?.items, scene);
        }
        let mut callbacks = client
            .jobs(&JobFilter::new().job_type(PublishGallery::NAME))
            .await?
            .items;
        // Callbacks of another demo may be in the same queue.
        callbacks.retain(|job| job.args["album"] == scene.album.as_str());
        gather(&mut groups, callbacks, scene);
        Ok(Self {
            groups,
            batch: batch.state().await?,
            // All times are those of the database.
            now: sqlx::query_scalar("select pipeline.now()")
                .fetch_one(client.pool())
                .await?,
        })
    }

    /// Returns whether the batch has enqueued its callback.
    pub(crate) fn has_callback(&self) -> bool {
        self.groups.iter().any(|it| it.kind == PublishGallery::NAME)
    }

    /// Returns whether all jobs have ended, including the callback.
    pub(crate) fn is_over(&self) -> bool {
        self.batch.finished
            && self.has_callback()
            && self.groups.iter().all(|it| it.ended() == it.jobs.len())
    }

    /// Returns one line for each job type.
    pub(crate) fn picture(&self, screen: &Screen) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::new();
        let mut queue = "";
        for group in &self.groups {
            let shown = if group.queue == queue {
                ""
            } else {
                &group.queue
            };
            queue = &group.queue;
            let dots = group.jobs.iter().map(|job| {
                let (mark, colour) = dot(job);
                screen.paint(colour, mark)
            });
            let (kind, words) = (&group.kind, self.words(group));
            lines.push(Line {
                of: kind.clone(),
                drawn: format!(
                    "{shown:<14}  {kind:<15}  {}  {words}",
                    dots.collect::<String>()
                ),
                said: format!("{queue:<14}  {kind:<15}  {words}"),
                news: Some(group.news()),
            });
        }
        if !self.has_callback() {
            let (queue, kind) = (PublishGallery::OPTIONS.queue, PublishGallery::NAME);
            lines.push(Line {
                of: kind.to_owned(),
                drawn: format!(
                    "{queue:<14}  {kind:<15}  {}  is enqueued with the end of the last thumbnail ({} of {})",
                    screen.paint("2", "·"),
                    self.batch.ended,
                    self.batch.total,
                ),
                said: String::new(),
                news: None,
            });
        }
        lines
    }

    /// Checks that all jobs have the expected statuses.
    pub(crate) fn check(&self) -> Result<()> {
        for group in &self.groups {
            let expected = match group.kind.as_str() {
                SendInvoice::NAME => JobStatus::Discarded,
                _ => JobStatus::Succeeded,
            };
            if let Some(job) = group.jobs.iter().find(|job| job.status != expected) {
                return Err(format!("a {} is {}, not {expected}", job.job_type, job.status).into());
            }
        }
        Ok(())
    }

    /// Describes a group in a few words.
    fn words(&self, group: &Group) -> String {
        match group.jobs.as_slice() {
            [job] => self.state(job),
            jobs => format!("{} of {} ended", group.ended(), jobs.len()),
        }
    }

    fn state(&self, job: &JobInfo) -> String {
        let attempt = format!("attempt {} of {}", job.attempt, job.max_attempts);
        match job.status {
            JobStatus::Scheduled if job.attempt == 0 => {
                format!("due in {}", self.until(job.run_at))
            }
            JobStatus::Scheduled => {
                let again = self.until(job.run_at);
                format!("again in {again}; {attempt}: {}", error(job))
            }
            JobStatus::Ready => "waits for a slot".to_owned(),
            JobStatus::Running => format!("{attempt} runs"),
            JobStatus::Succeeded if job.attempt > 1 => format!("succeeded: {attempt}"),
            JobStatus::Failed | JobStatus::Discarded => format!("{}: {}", job.status, error(job)),
            other => other.to_string(),
        }
    }

    fn until(&self, moment: DateTime<Utc>) -> String {
        seconds((moment - self.now).max(TimeDelta::zero()))
    }
}

/// Groups the jobs of a queue by type. The jobs come newest first.
fn gather(groups: &mut Vec<Group>, jobs: Vec<JobInfo>, scene: &Scene) {
    for job in jobs.into_iter().rev() {
        let queue = scene.short(&job.queue);
        match groups
            .iter_mut()
            .find(|group| group.kind == job.job_type && group.queue == queue)
        {
            Some(group) => group.jobs.push(job),
            None => groups.push(Group {
                kind: job.job_type.clone(),
                queue: queue.to_owned(),
                jobs: vec![job],
            }),
        }
    }
}

fn dot(job: &JobInfo) -> (&'static str, &'static str) {
    match job.status {
        JobStatus::Succeeded => ("●", "32"),
        JobStatus::Running => ("◐", "33"),
        JobStatus::Failed | JobStatus::Discarded => ("✗", "31"),
        JobStatus::Scheduled if job.attempt > 0 => ("○", "31"),
        _ => ("○", "2"),
    }
}

impl Group {
    /// Returns a text that changes when the group is worth a new line: one job is followed, several are counted.
    fn news(&self) -> String {
        match self.jobs.as_slice() {
            [job] => format!("{} {}", job.status, job.attempt),
            jobs => (self.ended() == jobs.len()).to_string(),
        }
    }

    fn ended(&self) -> usize {
        self.jobs.iter().filter(|job| is_ended(job)).count()
    }
}

fn is_ended(job: &JobInfo) -> bool {
    job.ended_at.is_some()
}

/// Returns the class and the message of the last error of a job.
fn error(job: &JobInfo) -> String {
    match (&job.error_class, &job.error_message) {
        (Some(class), Some(message)) => format!("{class}: {message}"),
        _ => String::new(),
    }
}

/// Formats a duration in seconds.
fn seconds(time: TimeDelta) -> String {
    let tenths = (time.num_milliseconds().max(0) + 50) / 100;
    format!("{}.{} s", tenths / 10, tenths % 10)
}
