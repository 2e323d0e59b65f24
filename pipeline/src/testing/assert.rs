//! Assertions about runs and their steps.

#![allow(clippy::panic, reason = "a failed assertion fails the test")]

use std::collections::HashMap;
use std::fmt;

use jobs::extension::redact::Redacted;
use serde::de::DeserializeOwned;

use super::Harness;
use crate::{Result, Run, RunState, RunStatus, StepReason, StepState, StepStatus};

impl Harness {
    /// Reads the state of a run, to check it. A check that fails panics at the test's own line, and shows the whole
    /// run.
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`](crate::Error::NoRun) if the run does not exist; an error of the database.
    pub async fn assert<O>(&self, run: &Run<O>) -> Result<RunAssert> {
        let state = run.state().await?;
        let rows = sqlx::query_file!("src/sql/testing_steps.sql", run.id().get())
            .fetch_all(self.client.pool())
            .await?;
        let mut more: HashMap<String, More> = rows
            .into_iter()
            .map(|row| {
                let more = More {
                    output: row.output,
                    after: row.after,
                };
                (row.key, more)
            })
            .collect();
        let more = state.steps.iter().map(|step| {
            let more = more.remove(&step.key);
            more.unwrap_or_default()
        });
        Ok(RunAssert {
            more: more.collect(),
            state,
        })
    }
}

/// The part of a step that [`StepState`] does not have.
#[derive(Default)]
struct More {
    /// The step's output as JSON.
    output: Option<String>,
    /// The keys of the steps before it.
    after: Vec<String>,
}

impl fmt::Debug for More {
    /// Leaves out the output, which [`StepAssert::output`] returns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let output = self.output.as_ref().map(|json| Redacted(json.len()));
        f.debug_struct("More")
            .field("output", &output)
            .field("after", &self.after)
            .finish()
    }
}

/// Checks the state of a run. Created by [`Harness::assert`]. `Display` shows the whole run, a line for each step.
#[derive(Debug)]
pub struct RunAssert {
    state: RunState,
    /// In the order of the steps.
    more: Vec<More>,
}

impl RunAssert {
    /// Checks that the run has this status.
    #[track_caller]
    pub fn status(self, wanted: RunStatus) -> Self {
        if self.state.status != wanted {
            self.fail(format_args!(
                "run {} is {}, and should be {wanted}",
                self.state.id, self.state.status
            ));
        }
        self
    }

    /// Checks that the run is running.
    #[track_caller]
    pub fn running(self) -> Self {
        self.status(RunStatus::Running)
    }

    /// Checks that the run waits for the runs before it in its chain.
    #[track_caller]
    pub fn pending(self) -> Self {
        self.status(RunStatus::Pending)
    }

    /// Checks that the run has succeeded.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        self.status(RunStatus::Succeeded)
    }

    /// Checks that the run has failed.
    #[track_caller]
    pub fn failed(self) -> Self {
        self.status(RunStatus::Failed)
    }

    /// Checks that the run was cancelled.
    #[track_caller]
    pub fn cancelled(self) -> Self {
        self.status(RunStatus::Cancelled)
    }

    /// Checks that the run was skipped, because a run before it in its chain did not succeed.
    #[track_caller]
    pub fn skipped(self) -> Self {
        self.status(RunStatus::Skipped)
    }

    /// Checks that the run was halted: a step failed, and the steps that had not started were skipped.
    #[track_caller]
    pub fn halted(self) -> Self {
        self.status(RunStatus::Halted)
    }

    /// Returns a step of the run, to check it.
    #[track_caller]
    pub fn step(self, key: &str) -> StepAssert {
        match self.state.steps.iter().position(|step| step.key == key) {
            Some(at) => StepAssert { run: self, at },
            None => self.fail(format_args!("run {} has no step `{key}`", self.state.id)),
        }
    }

    #[track_caller]
    fn fail(&self, what: fmt::Arguments<'_>) -> ! {
        panic!("{what}\n\n{self}")
    }
}

impl fmt::Display for RunAssert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = &self.state;
        write!(f, "run {} of `{}`: {}", run.id, run.pipeline, run.status)?;
        if run.round > 1 {
            write!(f, ", round {}", run.round)?;
        }
        let widest = run.steps.iter().map(|step| step.key.len()).max();
        let width = widest.unwrap_or(0);
        for (step, more) in run.steps.iter().zip(&self.more) {
            write!(f, "\n  {:width$}  {}", step.key, line(step, &more.after))?;
        }
        Ok(())
    }
}

/// Returns the line of a step, without its key.
fn line(step: &StepState, after: &[String]) -> String {
    let mut line = format!("{:9}", step.status);
    let mut add = |text: String| {
        line.push_str("  ");
        line.push_str(&text);
    };
    if let Some(queued) = step.in_queue {
        add(format!("({queued})"));
    }
    match (step.attempt, step.max_attempts) {
        (0, _) => {}
        (attempt, Some(attempts)) => add(format!("attempt {attempt} of {attempts}")),
        (attempt, None) => add(format!("attempt {attempt}")),
    }
    if let Some(error) = &step.error {
        add(format!("{}: {}", error.class, error.message));
    }
    if let Some(arm) = &step.arm {
        add(format!("chose `{arm}`"));
    }
    if let Some(why) = &step.reason {
        add(why.to_string());
    }
    if !after.is_empty() {
        add(format!("(after {})", after.join(", ")));
    }
    line.truncate(line.trim_end().len());
    line
}

/// Returns the step that is the cause of a step's status.
fn cause(why: &StepReason) -> Option<&str> {
    match why {
        StepReason::First { upstream: step }
        | StepReason::Broken { by: step }
        | StepReason::NotChosen { branch: step }
        | StepReason::NoFailure { of: step }
        | StepReason::HaltedBy { step }
        | StepReason::EndedBy { step } => Some(step),
        StepReason::NoneSucceeded
        | StepReason::NoneTaken
        | StepReason::Cancelled
        | StepReason::Deadline
        | StepReason::RunSkipped => None,
    }
}

/// Checks the state of a step. Created by [`RunAssert::step`]; [`step`](Self::step) goes on to another step.
#[derive(Debug)]
pub struct StepAssert {
    run: RunAssert,
    at: usize,
}

impl StepAssert {
    fn seen(&self) -> &StepState {
        &self.run.state.steps[self.at]
    }

    #[track_caller]
    fn fail(&self, what: fmt::Arguments<'_>) -> ! {
        let key = &self.seen().key;
        self.run.fail(format_args!("step `{key}` {what}"))
    }

    /// Checks that the step has this status.
    #[track_caller]
    pub fn status(self, wanted: StepStatus) -> Self {
        let status = self.seen().status;
        if status != wanted {
            self.fail(format_args!("is {status}, and should be {wanted}"));
        }
        self
    }

    /// Checks that the step waits for the steps before it.
    #[track_caller]
    pub fn pending(self) -> Self {
        self.status(StepStatus::Pending)
    }

    /// Checks that the step's job is in its queue, waits for a retry, or runs.
    #[track_caller]
    pub fn enqueued(self) -> Self {
        self.status(StepStatus::Enqueued)
    }

    /// Checks that the step has succeeded.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        self.status(StepStatus::Succeeded)
    }

    /// Checks that the step has ended its run early.
    #[track_caller]
    pub fn ended_run(self) -> Self {
        self.status(StepStatus::EndedRun)
    }

    /// Checks that the step was cancelled with its run.
    #[track_caller]
    pub fn cancelled(self) -> Self {
        self.status(StepStatus::Cancelled)
    }

    /// Checks that the step has failed without further retries.
    #[track_caller]
    pub fn failed(self) -> Self {
        self.status(StepStatus::Failed)
    }

    /// Checks that the step has failed without further retries, with an error of this class.
    #[track_caller]
    pub fn failed_with(self, class: &str) -> Self {
        let it = self.failed();
        match &it.seen().error {
            Some(error) if error.class == class => {}
            Some(error) => it.fail(format_args!(
                "failed with {}, and should have failed with {class}",
                error.class
            )),
            None => it.fail(format_args!(
                "failed without an error, and should have failed with {class}"
            )),
        }
        it
    }

    /// Checks that the message of the step's last error contains a text. A step that waits for a retry has the error
    /// of its last attempt.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        match &self.seen().error {
            Some(error) if error.message.contains(text) => {}
            Some(error) => self.fail(format_args!(
                "has the error `{}`, which should contain `{text}`",
                error.message
            )),
            None => self.fail(format_args!(
                "has no error, and should have one that contains `{text}`"
            )),
        }
        self
    }

    /// Checks that the step was skipped, for any reason.
    #[track_caller]
    pub fn skipped(self) -> Self {
        match self.seen().status {
            StepStatus::Skipped | StepStatus::SkippedByBranch => self,
            status => self.fail(format_args!("is {status}, and should have been skipped")),
        }
    }

    /// Checks that another step is the cause of the step's status.
    #[track_caller]
    pub fn because_of(self, step: &str) -> Self {
        match self.seen().reason.as_ref().and_then(cause) {
            Some(cause) if cause == step => {}
            Some(cause) => self.fail(format_args!(
                "is {} because of `{cause}`, and should be because of `{step}`",
                self.seen().status
            )),
            None => self.fail(format_args!(
                "is {} because of no other step, and should be because of `{step}`",
                self.seen().status
            )),
        }
        self
    }

    /// Checks how many attempts have begun.
    #[track_caller]
    pub fn attempts(self, wanted: u16) -> Self {
        let attempt = self.seen().attempt;
        if attempt != wanted {
            self.fail(format_args!(
                "has begun {attempt} attempts, and should have begun {wanted}"
            ));
        }
        self
    }

    /// Checks that the step has succeeded and returned this value.
    #[track_caller]
    pub fn returned<T: DeserializeOwned + PartialEq + fmt::Debug>(self, wanted: T) -> Self {
        let output = self.output::<T>();
        if output != wanted {
            self.fail(format_args!(
                "returned {output:?}, and should have returned {wanted:?}"
            ));
        }
        self
    }

    /// Returns the step's output.
    #[track_caller]
    pub fn output<T: DeserializeOwned>(&self) -> T {
        let Some(output) = &self.run.more[self.at].output else {
            self.fail(format_args!(
                "is {}, and returned nothing",
                self.seen().status
            ));
        };
        // No closure here: a panic in a closure does not point at the caller.
        match serde_json::from_str(output) {
            Ok(output) => output,
            Err(error) => {
                let wanted = std::any::type_name::<T>();
                self.fail(format_args!(
                    "returned an output that is not a `{wanted}`: {error}"
                ))
            }
        }
    }

    /// Returns another step of the same run, to check it.
    #[track_caller]
    pub fn step(self, key: &str) -> StepAssert {
        self.run.step(key)
    }

    /// Returns the run of the step, to check it.
    pub fn run(self) -> RunAssert {
        self.run
    }
}
