//! What came of a run, said by a test.

#![allow(
    clippy::panic,
    reason = "an assertion that does not hold fails the test"
)]

use std::fmt::{self, Write as _};

use serde::de::DeserializeOwned;

use super::Harness;
use crate::{Error, Result, Run, RunStatus, StepStatus};

impl Harness {
    /// The run as it stands now, to say what it should be. What is not so panics, with the whole run in
    /// the message.
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`]; when the database cannot be reached.
    pub async fn assert<O>(&self, run: &Run<O>) -> Result<RunAssert> {
        let rows = sqlx::query_file!("src/sql/testing_run.sql", run.id())
            .fetch_all(self.client.pool())
            .await?;
        let mut seen = None;
        let mut steps = Vec::with_capacity(rows.len());
        for row in rows {
            let count = |count: i16| u16::try_from(count).unwrap_or(0);
            steps.push(Step {
                key: row.key,
                status: row.status.parse().map_err(sqlx::Error::from)?,
                queued: row.queued,
                attempt: count(row.attempt),
                attempts: row.attempts.map(count),
                why: row.reason,
                cause: row.cause,
                error: row.error_class.zip(row.error_message),
                output: row.output,
                arm: row.arm,
                after: row.after,
            });
            if seen.is_none() {
                let status = row.run_status.parse().map_err(sqlx::Error::from)?;
                seen = Some((row.pipeline, status, row.round));
            }
        }
        let (pipeline, status, round) = seen.ok_or(Error::NoRun(run.id()))?;
        Ok(RunAssert {
            id: run.id(),
            pipeline,
            status,
            round,
            steps,
        })
    }
}

/// A step as it stood.
#[derive(Debug)]
struct Step {
    key: String,
    status: StepStatus,
    queued: Option<String>,
    attempt: u16,
    attempts: Option<u16>,
    why: Option<String>,
    cause: Option<String>,
    error: Option<(String, String)>,
    output: Option<String>,
    arm: Option<String>,
    after: Vec<String>,
}

/// A run as it stood, and what a test says of it. Its `Display` is the whole run, a line for each step.
#[derive(Debug)]
pub struct RunAssert {
    id: i64,
    pipeline: String,
    status: RunStatus,
    round: i32,
    steps: Vec<Step>,
}

impl RunAssert {
    /// It has this status.
    #[track_caller]
    pub fn status(self, wanted: RunStatus) -> Self {
        if self.status != wanted {
            self.fail(format_args!(
                "run {} is {}, and should be {wanted}",
                self.id, self.status
            ));
        }
        self
    }

    /// It has succeeded.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        self.status(RunStatus::Succeeded)
    }

    /// It has failed.
    #[track_caller]
    pub fn failed(self) -> Self {
        self.status(RunStatus::Failed)
    }

    /// A step failed, and what had not started was skipped.
    #[track_caller]
    pub fn halted(self) -> Self {
        self.status(RunStatus::Halted)
    }

    /// A step of it, to say what that should be.
    #[track_caller]
    pub fn step(self, key: &str) -> StepAssert {
        match self.steps.iter().position(|step| step.key == key) {
            Some(at) => StepAssert { run: self, at },
            None => self.fail(format_args!("run {} has no step `{key}`", self.id)),
        }
    }

    #[track_caller]
    fn fail(&self, what: fmt::Arguments<'_>) -> ! {
        panic!("{what}\n\n{self}")
    }
}

impl fmt::Display for RunAssert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} of `{}`: {}", self.id, self.pipeline, self.status)?;
        if self.round > 1 {
            write!(f, ", round {}", self.round)?;
        }
        let widest = self.steps.iter().map(|step| step.key.len()).max();
        for step in &self.steps {
            write!(
                f,
                "\n  {:width$}  {step}",
                step.key,
                width = widest.unwrap_or(0)
            )?;
        }
        Ok(())
    }
}

/// All of a step but its key.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = format!("{:9}", self.status);
        if let Some(queued) = &self.queued {
            write!(line, " ({queued})")?;
        }
        if self.attempt > 0 {
            write!(line, "  attempt {}", self.attempt)?;
            if let Some(attempts) = self.attempts {
                write!(line, " of {attempts}")?;
            }
        }
        if let Some((class, message)) = &self.error {
            write!(line, "  {class}: {message}")?;
        }
        if let Some(arm) = &self.arm {
            write!(line, "  chose `{arm}`")?;
        }
        match (&self.why, &self.cause) {
            (Some(why), Some(cause)) => write!(line, "  {why}: `{cause}`")?,
            (Some(why), None) => write!(line, "  {why}")?,
            (None, _) => {}
        }
        if !self.after.is_empty() {
            write!(line, "  after {}", self.after.join(", "))?;
        }
        f.write_str(line.trim_end())
    }
}

/// A step as it stood, and what a test says of it. [`step`](Self::step) goes on to another.
#[derive(Debug)]
pub struct StepAssert {
    run: RunAssert,
    at: usize,
}

impl StepAssert {
    fn seen(&self) -> &Step {
        &self.run.steps[self.at]
    }

    #[track_caller]
    fn fail(&self, what: fmt::Arguments<'_>) -> ! {
        let key = &self.seen().key;
        self.run.fail(format_args!("step `{key}` {what}"))
    }

    /// It has this status.
    #[track_caller]
    pub fn status(self, wanted: StepStatus) -> Self {
        let status = self.seen().status;
        if status != wanted {
            self.fail(format_args!("is {status}, and should be {wanted}"));
        }
        self
    }

    /// It has succeeded.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        self.status(StepStatus::Succeeded)
    }

    /// It has failed for good.
    #[track_caller]
    pub fn failed(self) -> Self {
        self.status(StepStatus::Failed)
    }

    /// It has failed for good with an error of this class.
    #[track_caller]
    pub fn failed_with(self, class: &str) -> Self {
        let it = self.failed();
        match &it.seen().error {
            Some((found, _)) if found == class => {}
            Some((found, _)) => {
                it.fail(format_args!("failed with {found}, and should with {class}"))
            }
            None => it.fail(format_args!(
                "failed without an error, and should with {class}"
            )),
        }
        it
    }

    /// Its error says this, among other things: the one it failed with, or while it may be tried again
    /// that of its last attempt.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        match &self.seen().error {
            Some((_, message)) if message.contains(text) => {}
            Some((_, message)) => self.fail(format_args!("says `{message}`, and not `{text}`")),
            None => self.fail(format_args!("has no error, and should say `{text}`")),
        }
        self
    }

    /// It was skipped, for whatever reason.
    #[track_caller]
    pub fn skipped(self) -> Self {
        match self.seen().status {
            StepStatus::Skipped | StepStatus::SkippedByBranch => self,
            status => self.fail(format_args!("is {status}, and should have been skipped")),
        }
    }

    /// That it is as it is is another step's doing.
    #[track_caller]
    pub fn because_of(self, step: &str) -> Self {
        match &self.seen().cause {
            Some(cause) if cause == step => {}
            Some(cause) => self.fail(format_args!(
                "is so because of `{cause}`, and not of `{step}`"
            )),
            None => self.fail(format_args!("is not so because of another step")),
        }
        self
    }

    /// So many attempts were made.
    #[track_caller]
    pub fn attempts(self, wanted: u16) -> Self {
        let attempt = self.seen().attempt;
        if attempt != wanted {
            self.fail(format_args!(
                "was tried {attempt} times, and should {wanted} times"
            ));
        }
        self
    }

    /// It has succeeded, and this is what it returned.
    #[track_caller]
    pub fn returned<T: DeserializeOwned + PartialEq + fmt::Debug>(self, wanted: T) -> Self {
        let output = self.output::<T>();
        if output != wanted {
            self.fail(format_args!("returned {output:?}, and should {wanted:?}"));
        }
        self
    }

    /// What it returned.
    #[track_caller]
    pub fn output<T: DeserializeOwned>(&self) -> T {
        let Some(output) = &self.seen().output else {
            self.fail(format_args!(
                "is {}, and returned nothing",
                self.seen().status
            ));
        };
        serde_json::from_str(output).unwrap_or_else(|error| {
            let wanted = std::any::type_name::<T>();
            self.fail(format_args!("returned what is no `{wanted}`: {error}"))
        })
    }

    /// Another step of the same run.
    #[track_caller]
    pub fn step(self, key: &str) -> StepAssert {
        self.run.step(key)
    }

    /// Its run.
    pub fn run(self) -> RunAssert {
        self.run
    }
}
