//! The error of this crate.

use jobs::error_text::{List, database_text};

use crate::{Invalid, RunStatus, StepStatus};

/// A result whose error is this crate's [`Error`], unless another is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate. The message names the thing, the value and the remedy.
///
/// `Debug` prints the same text as `Display`: `main` and tests that return a `Result` print `Debug`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database refused a statement, or could not be reached.
    #[error("database error: {}", database_text(.0))]
    Database(#[source] sqlx::Error),

    /// The schema `pipeline` is missing, or older than this program needs.
    #[error(
        "the schema `pipeline` is missing or out of date: {missing}; call `client.migrate()`, or \
         `jobs::migrate(&pool)`, at the start of the program"
    )]
    NotMigrated {
        /// The missing object in the server's words, or the name of the missing migration.
        missing: String,
    },

    /// An operation on jobs, queues or workers failed.
    #[error(transparent)]
    Jobs(jobs::Error),

    /// A pipeline's graph is invalid.
    #[error(transparent)]
    Invalid(#[from] Invalid),

    /// A step is of a kind that can be declared but not run.
    #[error(
        "step `{step}` of `{pipeline}` is a {kind}, which cannot be run yet: use a job in its place"
    )]
    NotRunnable {
        /// The pipeline's name.
        pipeline: String,
        /// The step's key.
        step: String,
        /// The kind of the step.
        kind: &'static str,
    },

    /// A run with other params has the key.
    #[error(
        "run {run} of `{pipeline}` was started with the key `{key}` and other params, with another shape of its graph, or with other runs \
         chained to it: use another key, or the same params and chain"
    )]
    KeyConflict {
        /// The pipeline's name.
        pipeline: String,
        /// The key.
        key: String,
        /// The run that has the key.
        run: crate::RunId,
    },

    /// A text of a run is longer than its limit.
    #[error(
        "the {what} `{value}` of a run of `{pipeline}` has {size} {unit}, and {limit} is the limit: \
         shorten it"
    )]
    TooLong {
        /// The pipeline's name.
        pipeline: String,
        /// The part of the run that is too long.
        what: &'static str,
        /// The beginning of the text.
        value: String,
        /// The size in `unit`.
        size: usize,
        /// The largest size allowed.
        limit: usize,
        /// The unit of the size: bytes or characters.
        unit: &'static str,
    },

    /// Data is larger than its limit.
    #[error(
        "{size} bytes of {what} for `{of}`, and {limit} is the limit: store the data elsewhere \
         and pass a reference to it"
    )]
    TooLarge {
        /// The step or the pipeline.
        of: String,
        /// The part that is too large.
        what: &'static str,
        /// The size in bytes.
        size: usize,
        /// The largest size allowed.
        limit: usize,
    },

    /// A text contains a NUL character, the only one that Postgres cannot store.
    #[error(
        "the {what} of `{of}` contains a NUL character, which Postgres cannot store: remove it, or \
         encode it"
    )]
    HasNul {
        /// The step or the pipeline.
        of: String,
        /// The part that contains it.
        what: &'static str,
    },

    /// Data is JSON that Postgres could not read later.
    #[error("the {what} of `{of}` cannot be stored: at `{place}` there is {problem}")]
    NotStorable {
        /// The step or the pipeline.
        of: String,
        /// The part that cannot be stored.
        what: &'static str,
        /// The path of the value in it.
        place: String,
        /// The problem with the value, and the remedy.
        problem: jobs::JsonProblem,
    },

    /// A text of a run is empty.
    #[error("the {what} of a run of `{pipeline}` is empty: give it a value, or leave it out")]
    Empty {
        /// The pipeline's name.
        pipeline: String,
        /// The part of the run that is empty.
        what: &'static str,
    },

    /// A run has more tags than allowed.
    #[error("{count} tags for a run of `{pipeline}`, and {limit} is the limit: leave some out")]
    TooManyTags {
        /// The pipeline's name.
        pipeline: String,
        /// The number of tags.
        count: usize,
        /// The largest number allowed.
        limit: usize,
    },

    /// One call starts more runs or steps than allowed.
    #[error("{count} {what} in one call, and {limit} is the limit: start them in several calls")]
    TooMany {
        /// The things that are counted: runs or steps.
        what: &'static str,
        /// The number of them.
        count: usize,
        /// The largest number allowed.
        limit: usize,
    },

    /// The runs of one call have more bytes of params than allowed.
    #[error(
        "the runs of one call have {size} bytes of params together, and {limit} is the limit: start them in \
         several calls, or store the data elsewhere and pass references to it"
    )]
    TooManyBytes {
        /// The bytes that were counted.
        size: usize,
        /// The largest size allowed.
        limit: usize,
    },

    /// The ids for new runs belong to runs that exist.
    #[error(
        "the ids for new runs belonged to other runs {tries} times in a row: the sequence `pipeline.run_ids` is \
         behind the runs; set it with `select setval('pipeline.run_ids', max(id)) from pipeline.runs`, then \
         start again"
    )]
    IdsTaken {
        /// How often ids were drawn.
        tries: u32,
    },

    /// The database has no run with this id.
    #[error(
        "there is no run {0} in this database: it never existed, or it was deleted; a run that a transaction starts \
         becomes visible when the transaction commits"
    )]
    NoRun(crate::RunId),

    /// The run has no step with this key.
    #[error("run {run} of `{pipeline}` has no step `{step}`: it has {}", known_steps(.known, *.more))]
    NoStep {
        /// The run's id.
        run: crate::RunId,
        /// The pipeline's name.
        pipeline: String,
        /// The given key, shortened.
        step: String,
        /// The keys of the run's first steps.
        known: Vec<String>,
        /// How many further steps the run has.
        more: usize,
    },

    /// The output of a run was asked for before the run had ended.
    #[error("run {run} is {status} and has no output yet: wait for its end first")]
    NotEnded {
        /// The run's id.
        run: crate::RunId,
        /// The run's status.
        status: RunStatus,
    },

    /// The step has no output.
    #[error("step `{step}` of run {run} is {status}: it has no output; {}", for_output(*.status))]
    NoOutput {
        /// The run's id.
        run: crate::RunId,
        /// The step's key.
        step: String,
        /// The step's status.
        status: StepStatus,
    },

    /// A step's output is not of the type that was asked for.
    #[error(
        "the output of step `{step}` of run {run} cannot be decoded at `{path}`: {reason}; ask for the \
         type that the step returned"
    )]
    Undecodable {
        /// The run's id.
        run: crate::RunId,
        /// The step's key.
        step: String,
        /// The path of the value in the output.
        path: String,
        /// The reason that serde gave, without the values that it quotes.
        reason: String,
    },

    /// The run has ended, and cannot be cancelled.
    #[error("run {run} is {status} and cannot be cancelled: only a run that has not ended can be")]
    NotCancellable {
        /// The run's id.
        run: crate::RunId,
        /// The run's status.
        status: RunStatus,
    },

    /// The run's status does not allow it to be reopened.
    #[error("run {run} is {status} and cannot be reopened: {}", instead_of_reopening(*.status))]
    NotReopenable {
        /// The run's id.
        run: crate::RunId,
        /// The run's status.
        status: RunStatus,
    },

    /// The run ended and was reopened while the cancel waited for another transaction that held the run.
    #[error(
        "run {run} was not cancelled: it ended and was reopened before it could be; cancel it again to cancel its new \
         round"
    )]
    Reopened {
        /// The run's id.
        run: crate::RunId,
    },

    /// Another transaction held a run that the call needs.
    #[error(
        "run {run} was not {asked}: another transaction has held it, or a run chained to it, for {limit:?}; find the \
         session in pg_stat_activity, end it, and try again"
    )]
    Busy {
        /// The run's id.
        run: crate::RunId,
        /// The change that was asked for: `cancelled`.
        asked: &'static str,
        /// How long the call has tried.
        limit: std::time::Duration,
    },

    /// A reopening names a step that is not a failed step whose failure is ignored.
    #[error(
        "step `{step}` of run {run} is {status}: a reopening names only failed steps whose failure is ignored, and \
         repeats all others by itself; leave `{step}` out"
    )]
    NotIgnored {
        /// The run's id.
        run: crate::RunId,
        /// The step's key.
        step: String,
        /// The step's status.
        status: StepStatus,
    },

    /// A run failed only by steps whose failures are ignored, and a reopening names none of them: the run would
    /// fail again at once.
    #[error(
        "run {run} failed only by steps whose failures are ignored ({}), and would fail again at once: name the steps \
         to run again, as in `run.reopen().step(\"{}\")`",
        List(.steps),
        .steps.first().map_or("", String::as_str)
    )]
    OnlyIgnored {
        /// The run's id.
        run: crate::RunId,
        /// The keys of the failed steps.
        steps: Vec<String>,
    },

    /// A run cannot be reopened because no live worker knows its job types.
    #[error(
        "run {run} cannot be reopened: no live worker knows {}, which it needs; start a worker that does, or reopen \
         the run with `.force()`",
        List(.job_types)
    )]
    UnknownJobs {
        /// The run's id.
        run: crate::RunId,
        /// The job types, with their versions where workers know only others.
        job_types: Vec<String>,
    },

    /// A run that is not the first of its chain has a key.
    #[error(
        "a run of `{pipeline}` further down a chain has the key `{key}`: give the key to the first \
         run of the chain, and it stands for all of it"
    )]
    KeyInChain {
        /// The pipeline's name.
        pipeline: String,
        /// The key.
        key: String,
    },

    /// Of several runs that start a chain together, only some have a key.
    #[error(
        "runs of `{other}` and `{pipeline}` start a chain together, and only that of `{other}` has a key, \
         `{key}`: give a key to each of them, or to none"
    )]
    KeyMissing {
        /// The pipeline of a run without a key.
        pipeline: String,
        /// The pipeline of a run with a key.
        other: String,
        /// The key of that run.
        key: String,
    },

    /// The run did not end within the time limit of a wait.
    #[error(
        "run {run} has not ended within {limit:?}: {}; wait longer, or look at its steps with `run.state()`",
        .status.map_or_else(
            || "the database did not return its status in time".to_owned(),
            |status| format!("it is {status}")
        )
    )]
    Timeout {
        /// The run's id.
        run: crate::RunId,
        /// How long the call has waited.
        limit: std::time::Duration,
        /// The run's status, if the database returned it in time.
        status: Option<RunStatus>,
    },

    /// The name of the database does not contain the word `test`, and its clock must not be replaced.
    #[cfg(feature = "testing")]
    #[error(
        "database `{database}` may not be one for tests: its name does not contain the word `test`; the harness \
         replaces the clock for all who use the database; use a database of the test's own, or call \
         `.allow_any_database()`"
    )]
    NotForTests {
        /// The database's name.
        database: String,
    },

    /// The database has unfinished work by its own clock, which must not be replaced.
    #[cfg(feature = "testing")]
    #[error(
        "database `{database}` may not be one for tests: {runs} runs and {jobs} jobs in it have not ended, and were \
         begun by its own clock; use an empty database of the test's own"
    )]
    DatabaseInUse {
        /// The database's name.
        database: String,
        /// How many runs have not ended.
        runs: i64,
        /// How many jobs have not ended.
        jobs: i64,
    },

    /// The harness is to run jobs whose types were not registered with it.
    #[cfg(feature = "testing")]
    #[error(
        "{at}: the harness does not know the job types {}, of which there are jobs: `.register::<..>()` them, or \
         `.fake(..)` them",
        List(.job_types)
    )]
    NotRegistered {
        /// The names of the job types.
        job_types: Vec<String>,
        /// The place where the test called the harness.
        at: &'static std::panic::Location<'static>,
    },

    /// A fake names a step that no pipeline of the test has.
    #[cfg(feature = "testing")]
    #[error(
        "{at}: the fake names no step: no pipeline has a step `{step}` with a job of type `{job_type}`, whose steps are \
         {}; correct the key or the type, or call `.allow_unused_fakes()`",
        List(.known)
    )]
    FakeWithoutStep {
        /// The key that the fake names.
        step: String,
        /// The job type of the fake.
        job_type: &'static str,
        /// The steps of this job type.
        known: Vec<String>,
        /// The place where the test declared the fake.
        at: &'static std::panic::Location<'static>,
    },

    /// A test holds a step that no pipeline of the test has.
    #[cfg(feature = "testing")]
    #[error("{at}: no pipeline has a step `{step}` that could be held: the steps with a job are {}; correct the key", List(.known))]
    HoldWithoutStep {
        /// The key of the held step.
        step: String,
        /// The steps that have a job.
        known: Vec<String>,
        /// The place where the test called `hold_step`.
        at: &'static std::panic::Location<'static>,
    },

    /// The jobs of a test did not end within the harness's time limit.
    #[cfg(feature = "testing")]
    #[error(
        "{at}: not idle within {limit:?}: allow more time with `.limit(..)`, or look at what keeps the harness \
         busy:\n{left}"
    )]
    NotIdle {
        /// The time limit.
        limit: std::time::Duration,
        /// The jobs that have not ended.
        left: crate::testing::Idle,
        /// The place where the test called the harness.
        at: &'static std::panic::Location<'static>,
    },
}

jobs::debug_as_display!(Error);

impl From<sqlx::Error> for Error {
    /// Distinguishes a missing schema from all other errors of the database.
    fn from(error: sqlx::Error) -> Self {
        jobs::Error::from(error).into()
    }
}

impl From<jobs::Error> for Error {
    /// Keeps one variant for each error of the database, whichever crate's statement failed.
    fn from(error: jobs::Error) -> Self {
        match error {
            jobs::Error::Database(error) => Self::Database(error),
            jobs::Error::NotMigrated { missing } => Self::NotMigrated { missing },
            other => Self::Jobs(other),
        }
    }
}

/// Returns the list of a run's steps, of which the first are given.
fn known_steps(known: &[String], more: usize) -> String {
    let named: Vec<String> = known.iter().map(|step| format!("`{step}`")).collect();
    match more {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Returns the remedy for a run that cannot be reopened in this status.
fn instead_of_reopening(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Pending | RunStatus::Running | RunStatus::Cancelling => {
            "it has not ended; wait until it has failed, was halted or cancelled"
        }
        RunStatus::Succeeded => {
            "all of its work is done; `run.rerun()` starts a new run with the same params"
        }
        RunStatus::Skipped => {
            "a run before it in its chain did not succeed; reopen that run, or start a new one with `run.rerun()`"
        }
        RunStatus::Failed | RunStatus::Halted | RunStatus::Cancelled => "try again",
    }
}

/// Returns how to get the output of a step that has none in this status.
fn for_output(status: StepStatus) -> &'static str {
    match status {
        StepStatus::Pending | StepStatus::Enqueued | StepStatus::Waiting => {
            "wait until it has ended"
        }
        StepStatus::Succeeded | StepStatus::EndedRun => "ask for a step that has a job",
        StepStatus::SkippedByBranch => "it did not have to run: `run.state()` says why",
        StepStatus::Failed | StepStatus::Cancelled | StepStatus::Skipped => {
            "`run.state()` says why; `run.reopen()` does it again"
        }
    }
}
