//! What came of a run, said by a test.

#![allow(
    clippy::panic,
    reason = "an assertion that does not hold fails the test"
)]

use std::collections::HashMap;
use std::fmt;

use jobs::extension::redact::Redacted;
use serde::de::DeserializeOwned;

use super::Harness;
use crate::{Result, Run, RunState, RunStatus, StepState, StepStatus, Why};

impl Harness {
    /// The run as it stands now, to say what it should be. What is not so panics, with the whole run in
    /// the message.
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`](crate::Error::NoRun); when the database cannot be reached.
    pub async fn assert<O>(&self, run: &Run<O>) -> Result<RunAssert> {
        let state = run.state().await?;
        let rows = sqlx::query_file!("src/sql/testing_steps.sql", run.id())
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

/// What a run's state does not say of a step.
#[derive(Default)]
struct More {
    /// As JSON.
    output: Option<String>,
    /// The steps it comes after.
    after: Vec<String>,
}

impl fmt::Debug for More {
    /// Without what the step returned: it is asked for by [`StepAssert::output`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let output = self.output.as_ref().map(|json| Redacted(json.len()));
        f.debug_struct("More")
            .field("output", &output)
            .field("after", &self.after)
            .finish()
    }
}

/// A run as it stood, and what a test says of it. Its `Display` is the whole run, a line for each step.
#[derive(Debug)]
pub struct RunAssert {
    state: RunState,
    /// For each step.
    more: Vec<More>,
}

impl RunAssert {
    /// It has this status.
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

/// All of a step but its key.
fn line(step: &StepState, after: &[String]) -> String {
    let mut line = format!("{:9}", step.status);
    let mut add = |text: String| {
        line.push_str("  ");
        line.push_str(&text);
    };
    if let Some(queued) = step.in_queue {
        add(format!("({queued})"));
    }
    match (step.attempt, step.attempts) {
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
    if let Some(why) = &step.why {
        add(why.to_string());
    }
    if !after.is_empty() {
        add(format!("(after {})", after.join(", ")));
    }
    line.truncate(line.trim_end().len());
    line
}

/// The step whose doing it is.
fn cause(why: &Why) -> Option<&str> {
    match why {
        Why::First { upstream: step }
        | Why::Broken { by: step }
        | Why::NotChosen { branch: step }
        | Why::NoFailure { of: step }
        | Why::HaltedBy { step }
        | Why::EndedBy { step } => Some(step),
        Why::NoneSucceeded | Why::NoneTaken | Why::Cancelled | Why::Deadline | Why::RunSkipped => {
            None
        }
    }
}

/// A step as it stood, and what a test says of it. [`step`](Self::step) goes on to another.
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
            Some(error) if error.class == class => {}
            Some(error) => it.fail(format_args!(
                "failed with {}, and should with {class}",
                error.class
            )),
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
            Some(error) if error.message.contains(text) => {}
            Some(error) => self.fail(format_args!("says `{}`, and not `{text}`", error.message)),
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
        match self.seen().why.as_ref().and_then(cause) {
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
        let Some(output) = &self.run.more[self.at].output else {
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
