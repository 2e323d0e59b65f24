//! The state of a run and of its steps.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use chrono::{DateTime, Utc};
use jobs::{JobId, JobStatus};
use serde::{Serialize, Serializer};

use super::{Client, Run};
use crate::{Error, Failure, Result, RunId, RunStatus, StepStatus};

/// Information about a run, without its steps.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct RunInfo {
    /// The run's id.
    pub id: RunId,
    /// The name of the run's pipeline.
    pub pipeline: String,
    /// The run's status.
    pub status: RunStatus,
    /// The round of the run: 1, and one more for each reopening.
    pub round: u32,
    /// The actor on whose behalf the run runs.
    pub actor: Option<String>,
    /// The run's tags.
    pub tags: Vec<String>,
    /// The key with which the run was started.
    pub key: Option<String>,
    /// The run of which this run is a [rerun](Run::rerun).
    pub rerun_of: Option<RunId>,
    /// The time at which the run was created.
    pub created_at: DateTime<Utc>,
    /// The time at which the current round of the run started.
    pub started_at: Option<DateTime<Utc>>,
    /// The time at which the run ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// The run's deadline.
    pub deadline_at: Option<DateTime<Utc>>,
    /// Whether the run fails, or has failed, because its deadline has passed.
    pub deadline_exceeded: bool,
}

/// A run with its steps and the runs before and after it, all from one snapshot of the database.
///
/// The state dereferences to [`RunInfo`], whose fields are also part of its JSON.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct RunState {
    /// Information about the run.
    #[serde(flatten)]
    pub run: RunInfo,
    /// The steps of the run in topological order: each step comes after its upstream steps.
    pub steps: Vec<StepState>,
    /// The runs that this run comes directly after in its chain.
    pub upstream: Vec<RunId>,
    /// The runs that come directly after this run in its chain.
    pub chained: Vec<RunId>,
}

impl RunState {
    /// Returns the step with this key.
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

/// The state of a step.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct StepState {
    /// The step's key.
    pub key: String,
    /// The step's kind.
    pub kind: NodeKind,
    /// The name of the step's job type, if the step has a job.
    pub job: Option<String>,
    /// The queue of the step's job, if the step has a job.
    pub queue: Option<String>,
    /// The step's status.
    pub status: StepStatus,
    /// The status of the step's job while the job is in the queue: `scheduled`, `ready` or `running`.
    pub in_queue: Option<JobStatus>,
    /// The number of attempts of the step that have begun.
    pub attempt: u16,
    /// The maximum number of attempts of the step, if the step has a job.
    pub max_attempts: Option<u16>,
    /// The reason for the status, if another step or the run caused it.
    pub reason: Option<StepReason>,
    /// The error of the last failed attempt, unless the step has succeeded since.
    pub error: Option<Failure>,
    /// The arm that the step has chosen, if the step is a branch.
    pub arm: Option<String>,
    /// The time at which the step's job was enqueued.
    pub enqueued_at: Option<DateTime<Utc>>,
    /// The time at which the last attempt began, set once the step has ended.
    pub started_at: Option<DateTime<Utc>>,
    /// The time at which the step ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// The duration of the last attempt. The JSON field is `ran_ms`.
    #[serde(rename = "ran_ms", serialize_with = "as_millis")]
    pub ran: Option<Duration>,
    /// The id of the step's job. A step without a job has an id that no job has.
    pub job_id: JobId,
}

jobs::text_enum! {
    /// The kind of a step.
    NodeKind, "kind of a step";
    /// The step is a job.
    Job = "job",
    /// The step is a job whose output chooses the arm that runs.
    Branch = "branch",
    /// The step merges the arms of a branch.
    Merge = "merge",
    /// The step is a barrier, which ends a phase.
    Barrier = "barrier",
    /// The step runs a job for each element of a list.
    Each = "each",
    /// The step runs another pipeline.
    Child = "child",
    /// The step waits for a time.
    Timer = "timer",
    /// The step waits for a signal.
    Signal = "signal",
}

/// The reason for the status of a step, if another step or the run caused the status.
///
/// The fields of the variants are step keys. In JSON, a reason is an object whose `kind` is the column `reason` of the
/// view `pipeline.run_steps`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepReason {
    /// The step waits for any of several upstream steps, and one of them was the first to succeed.
    First {
        /// The key of the upstream step that succeeded first.
        upstream: String,
    },
    /// An upstream step failed or did not run.
    Broken {
        /// The key of the upstream step that failed or did not run.
        by: String,
    },
    /// A branch chose another arm than that of the step.
    NotChosen {
        /// The key of the branch.
        branch: String,
    },
    /// The step waits for the failure of another step, which did not fail.
    NoFailure {
        /// The key of the step that did not fail.
        of: String,
    },
    /// The step waits for any of several upstream steps, and none of them succeeded.
    NoneSucceeded,
    /// The step waits for any of several upstream steps, and branches skipped all of them.
    NoneTaken,
    /// Another step failed and halted the run.
    HaltedBy {
        /// The key of the step that failed.
        step: String,
    },
    /// Another step ended the run early.
    EndedBy {
        /// The key of the step that ended the run.
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

/// Builds a [`RunInfo`] from a row of any query with the columns of a run.
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
    /// Returns the status of the run.
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`] if the run does not exist.
    pub async fn status(&self) -> Result<RunStatus> {
        self.client().status(self.id()).await
    }

    /// Returns the state of the run and of each of its steps.
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
    /// [`Error::NoRun`] if the run does not exist.
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
                max_attempts: row.max_attempts.map(count),
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
