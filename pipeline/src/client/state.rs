//! Where a run and its steps stand.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use chrono::{DateTime, Utc};
use jobs::{JobId, JobStatus};
use serde::{Serialize, Serializer};

use super::{Client, Run};
use crate::{Error, Failure, Result, RunId, RunStatus, StepStatus};

/// A run, without its steps.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct RunInfo {
    /// Its id.
    pub id: RunId,
    /// The name of its pipeline.
    pub pipeline: String,
    /// Where it stands.
    pub status: RunStatus,
    /// Which opening of the run this is; the first is 1.
    pub round: u32,
    /// On whose behalf it runs.
    pub actor: Option<String>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// The key it was started with.
    pub key: Option<String>,
    /// The run of which it is a re-run.
    pub rerun_of: Option<RunId>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When this round started.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// When it has to be over.
    pub deadline_at: Option<DateTime<Utc>>,
    /// Whether it was not: its deadline is why it ends, or has ended.
    pub deadline_exceeded: bool,
}

/// A run with its steps, as they stood at one moment. It has the fields of [`RunInfo`], too,
/// also in JSON.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct RunState {
    /// The run.
    #[serde(flatten)]
    pub run: RunInfo,
    /// The steps of the run, each after the steps that it depends on.
    pub steps: Vec<StepState>,
    /// The runs that this run comes directly after in its chain.
    pub upstream: Vec<RunId>,
    /// The runs that come directly after this run in its chain.
    pub chained: Vec<RunId>,
}

impl RunState {
    /// The step of this key.
    pub fn step(&self, key: &str) -> Option<&StepState> {
        self.steps.iter().find(|step| step.key == key)
    }
}

impl Deref for RunState {
    type Target = RunInfo;

    fn deref(&self) -> &RunInfo {
        &self.run
    }
}

/// Where a step stands.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct StepState {
    /// Its key.
    pub key: String,
    /// What it is.
    pub kind: NodeKind,
    /// The name of its job's type, where it has a job.
    pub job: Option<String>,
    /// The queue of its job.
    pub queue: Option<String>,
    /// Where it stands.
    pub status: StepStatus,
    /// Where its job stands while it is in the queue: it waits for its time, or for a worker, or
    /// runs.
    pub in_queue: Option<JobStatus>,
    /// How many attempts have begun.
    pub attempt: u16,
    /// How many may.
    pub attempts: Option<u16>,
    /// StepReason it is as it is, where that is not its own doing.
    pub reason: Option<StepReason>,
    /// StepReason it failed; while it may still be tried again, why its last attempt did.
    pub error: Option<Failure>,
    /// The arm it chose, where it is a branch.
    pub arm: Option<String>,
    /// When its job was enqueued.
    pub enqueued_at: Option<DateTime<Utc>>,
    /// When its last attempt began; known once that has ended.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// How long its last attempt took. In JSON, `ran_ms`.
    #[serde(rename = "ran_ms", serialize_with = "as_millis")]
    pub ran: Option<Duration>,
    /// The id of its job, where it has one.
    pub job_id: JobId,
}

jobs::text_enum! {
    /// What a step is.
    NodeKind, "kind of a step";
    /// A job.
    Job = "job",
    /// A job whose output says which arm runs.
    Branch = "branch",
    /// Where the arms of a branch meet.
    Merge = "merge",
    /// The end of a phase.
    Barrier = "barrier",
    /// A job for each element of a list.
    Each = "each",
    /// A pipeline of its own.
    Child = "child",
    /// A wait for a time.
    Timer = "timer",
    /// A wait for a signal.
    Signal = "signal",
}

/// StepReason a step is as it is, where that is not its own doing. The names are keys of steps.
///
/// In JSON, an object whose `kind` is the `reason` of the view `pipeline.run_steps`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepReason {
    /// It came after any of several, and this one succeeded first.
    First {
        /// The step before it.
        upstream: String,
    },
    /// A step before it failed, or did not run itself.
    Broken {
        /// The step before it.
        by: String,
    },
    /// A branch chose another arm.
    NotChosen {
        /// The branch.
        branch: String,
    },
    /// It comes after a failure that did not happen.
    NoFailure {
        /// The step that did not fail.
        of: String,
    },
    /// It came after any of several, and none of them succeeded.
    NoneSucceeded,
    /// It came after any of several, and all of them were left out.
    NoneTaken,
    /// A step failed, and halted the run.
    HaltedBy {
        /// The step that failed.
        step: String,
    },
    /// A step ended the run early.
    EndedBy {
        /// The step that did.
        step: String,
    },
    /// The run was cancelled.
    Cancelled,
    /// The run's deadline has passed.
    Deadline,
    /// The run was skipped.
    RunSkipped,
}

impl StepReason {
    fn of(reason: &str, cause: Option<String>) -> Option<Self> {
        let step = cause.unwrap_or_default();
        Some(match reason {
            "first" => Self::First { upstream: step },
            "broken" => Self::Broken { by: step },
            "not_chosen" => Self::NotChosen { branch: step },
            "no_failure" => Self::NoFailure { of: step },
            "none_succeeded" => Self::NoneSucceeded,
            "none_taken" => Self::NoneTaken,
            "halted_by" => Self::HaltedBy { step },
            "ended_by" => Self::EndedBy { step },
            "cancelled" => Self::Cancelled,
            "deadline" => Self::Deadline,
            "run_skipped" => Self::RunSkipped,
            _ => return None,
        })
    }
}

impl fmt::Display for StepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First { upstream } => write!(f, "`{upstream}` was the first to succeed"),
            Self::Broken { by } => write!(f, "`{by}` before it did not succeed"),
            Self::NotChosen { branch } => write!(f, "`{branch}` chose another arm"),
            Self::NoFailure { of } => write!(f, "`{of}` did not fail"),
            Self::NoneSucceeded => f.write_str("none of the steps before it succeeded"),
            Self::NoneTaken => f.write_str("all steps before it were left out"),
            Self::HaltedBy { step } => write!(f, "`{step}` failed and halted the run"),
            Self::EndedBy { step } => write!(f, "`{step}` ended the run early"),
            Self::Cancelled => f.write_str("the run was cancelled"),
            Self::Deadline => f.write_str("the run's deadline has passed"),
            Self::RunSkipped => f.write_str("the run was skipped"),
        }
    }
}

/// The columns of a run in a row of any query that has them.
macro_rules! run_info {
    ($row:ident) => {
        $crate::client::state::RunInfo {
            id: $row.id.into(),
            pipeline: $row.pipeline,
            status: $row.status.parse().map_err(sqlx::Error::from)?,
            round: u32::try_from($row.round).unwrap_or(1),
            actor: $row.actor,
            tags: $row.tags.unwrap_or_default(),
            key: $row.key,
            rerun_of: $row.rerun_of.map($crate::RunId::from),
            created_at: $row.created_at,
            started_at: $row.started_at,
            ended_at: $row.ended_at,
            deadline_at: $row.deadline_at,
            deadline_exceeded: $row.deadline_exceeded,
        }
    };
}
pub(super) use run_info;

impl<O> Run<O> {
    /// Where the run stands.
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`]; when the database cannot be asked.
    pub async fn status(&self) -> Result<RunStatus> {
        self.client().status(self.id()).await
    }

    /// Where the run and each of its steps stand, and why.
    ///
    /// ```no_run
    /// # async fn example(run: pipeline::Run) -> pipeline::Result<()> {
    /// let state = run.state().await?;
    /// println!("{} is {}", state.pipeline, state.status);
    /// for step in &state.steps {
    ///     match &step.reason {
    ///         Some(reason) => println!("  {} is {}: {reason}", step.key, step.status),
    ///         None => println!("  {} is {}", step.key, step.status),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`]; when the database cannot be asked.
    pub async fn state(&self) -> Result<RunState> {
        let rows = sqlx::query_file!("src/sql/run_state.sql", self.id().get())
            .fetch_all(self.client().pool())
            .await?;
        let mut run = None;
        let (mut upstream, mut chained) = (Vec::new(), Vec::new());
        let mut steps = Vec::with_capacity(rows.len());
        for row in rows {
            let ran = row.ran_ms.and_then(|ms| u64::try_from(ms).ok());
            let ran = ran.map(Duration::from_millis);
            steps.push(StepState {
                error: failure(&row.step, row.error_class, row.error_message),
                key: row.step,
                kind: row.kind.parse().map_err(sqlx::Error::from)?,
                job: row.job_type,
                queue: row.queue,
                status: row.step_status.parse().map_err(sqlx::Error::from)?,
                in_queue: row
                    .in_queue
                    .map(|it| it.parse())
                    .transpose()
                    .map_err(sqlx::Error::from)?,
                attempt: count(row.attempt),
                attempts: row.max_attempts.map(count),
                reason: row
                    .reason
                    .and_then(|reason| StepReason::of(&reason, row.cause)),
                arm: row.arm,
                enqueued_at: row.enqueued_at,
                started_at: row.step_ended_at.zip(ran).map(|(ended, ran)| ended - ran),
                ended_at: row.step_ended_at,
                ran,
                job_id: row.batch.into(),
            });
            upstream.extend(row.upstream.into_iter().flatten().map(RunId::from));
            chained.extend(row.chained.into_iter().flatten().map(RunId::from));
            if run.is_none() {
                run = Some(run_info!(row));
            }
        }
        let run = run.ok_or(Error::NoRun(self.id()))?;
        Ok(RunState {
            run,
            steps,
            upstream,
            chained,
        })
    }
}

impl Client {
    pub(super) async fn status(&self, run: RunId) -> Result<RunStatus> {
        let status = sqlx::query_scalar!(
            r#"select status::text as "status!" from pipeline.runs where id = $1"#,
            run.get()
        )
        .fetch_optional(self.pool())
        .await?
        .ok_or(Error::NoRun(run))?;
        Ok(status.parse().map_err(sqlx::Error::from)?)
    }
}

fn as_millis<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
        .serialize(to)
}

pub(super) fn count(number: i16) -> u16 {
    u16::try_from(number).unwrap_or(0)
}

fn failure(step: &str, class: Option<String>, message: Option<String>) -> Option<Failure> {
    Some(Failure {
        step: step.to_owned(),
        class: class?,
        message: message.unwrap_or_default(),
    })
}
