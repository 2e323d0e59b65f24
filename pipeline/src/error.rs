use crate::{Invalid, StepStatus};

/// What a call into this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, each with what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database refused, or could not be reached.
    #[error("database error: {}", jobs::extension::sqlstate::error_text(.0))]
    Database(#[source] sqlx::Error),

    /// The schema is not there, or older than this program needs.
    #[error(
        "the schema `pipeline` is missing or out of date: {missing}; call `client.migrate()`, or \
         `jobs::migrate(&pool)`, at the start of the program"
    )]
    NotMigrated {
        /// What is not there, in the words of the server or by the migration's name.
        missing: String,
    },

    /// What the layer of jobs refused.
    #[error(transparent)]
    Jobs(jobs::Error),

    /// A pipeline that cannot run.
    #[error(transparent)]
    Invalid(#[from] Invalid),

    /// A kind of step that is declared but cannot run yet.
    #[error(
        "step `{step}` of `{pipeline}` is a {kind}, which cannot be run yet: use a job in its place"
    )]
    NotRunnable {
        /// The pipeline.
        pipeline: String,
        /// The step.
        step: String,
        /// What it is.
        kind: &'static str,
    },

    /// The key belongs to a run with other params.
    #[error(
        "run {run} of `{pipeline}` was started with the key `{key}` and other params, or with other runs \
         chained to it: use another key, or start the same"
    )]
    KeyConflict {
        /// The pipeline.
        pipeline: String,
        /// The key.
        key: String,
        /// The run that has it.
        run: i64,
    },

    /// A text that is longer than it may be.
    #[error(
        "the {what} `{value}` of a run of `{pipeline}` has {size} {unit}, and {limit} is the limit: \
         shorten it"
    )]
    TooLong {
        /// The pipeline.
        pipeline: String,
        /// Which text.
        what: &'static str,
        /// How it begins.
        value: String,
        /// How long it is.
        size: usize,
        /// How long it may be.
        limit: usize,
        /// What is counted.
        unit: &'static str,
    },

    /// More than is stored.
    #[error(
        "{size} bytes are too many for the {what} of `{of}`: {limit} is the limit; store it \
         elsewhere and pass a reference to it"
    )]
    TooLarge {
        /// Whose.
        of: String,
        /// What is too large.
        what: &'static str,
        /// How large it is.
        size: usize,
        /// How large it may be.
        limit: usize,
    },

    /// The one character that Postgres cannot store.
    #[error(
        "there is a NUL character in the {what} of `{of}`, which Postgres cannot store: remove it, \
         or encode it"
    )]
    HasNul {
        /// Whose.
        of: String,
        /// What holds it.
        what: &'static str,
    },

    /// JSON that Postgres could not read later.
    #[error("the {what} of `{of}` cannot be stored: at `{place}` there is {problem}")]
    NotStorable {
        /// The step or the pipeline.
        of: String,
        /// What cannot be stored.
        what: &'static str,
        /// The path of the value in it.
        place: String,
        /// What is wrong with the value, and the remedy.
        problem: jobs::JsonProblem,
    },

    /// A word that says nothing.
    #[error("the {what} of a run of `{pipeline}` is empty: give it a value, or leave it out")]
    Empty {
        /// The pipeline.
        pipeline: String,
        /// Which.
        what: &'static str,
    },

    /// More tags than a run can have.
    #[error("{count} tags for a run of `{pipeline}`, and {limit} is the limit: leave some out")]
    TooManyTags {
        /// The pipeline.
        pipeline: String,
        /// How many were given.
        count: usize,
        /// How many there may be.
        limit: usize,
    },

    /// More runs or steps than one call takes.
    #[error("{count} {what} in one call, and {limit} is the limit: start them in several")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many were given.
        count: usize,
        /// How many there may be.
        limit: usize,
    },

    /// More bytes than one call takes.
    #[error(
        "the runs of one call have {size} bytes of params together, and {limit} is the limit: start them in \
         several calls, or store the data elsewhere and pass references to it"
    )]
    TooManyBytes {
        /// How many were given.
        size: usize,
        /// How many there may be.
        limit: usize,
    },

    /// The ids for new runs belong to runs that are there.
    #[error(
        "new ids were those of other runs {tries} times in a row: the sequence `pipeline.run_ids` stands \
         behind the runs; set it with `select setval('pipeline.run_ids', max(id)) from pipeline.runs`, then \
         start again"
    )]
    IdsTaken {
        /// How often other ids were taken.
        tries: u32,
    },

    /// There is no such run.
    #[error(
        "there is no run {0}: it has never been, or it was deleted; one that a transaction starts is \
         there when that is committed"
    )]
    NoRun(i64),

    /// There is no such step.
    #[error("run {run} of `{pipeline}` has no step `{step}`: it has {known}")]
    NoStep {
        /// The run.
        run: i64,
        /// Its pipeline.
        pipeline: String,
        /// What was asked for.
        step: String,
        /// The steps it has.
        known: String,
    },

    /// What a run returns is there when it has ended.
    #[error("run {run} is {status}: it has returned nothing yet; wait for its end first")]
    NotEnded {
        /// The run.
        run: i64,
        /// Its status.
        status: crate::RunStatus,
    },

    /// There is nothing to return.
    #[error("step `{step}` of run {run} is {status}: it has no output; {}", for_output(*.status))]
    NoOutput {
        /// The run.
        run: i64,
        /// The step.
        step: String,
        /// Its status.
        status: crate::StepStatus,
    },

    /// What is stored is not what was asked for.
    #[error(
        "the output of step `{step}` of run {run} cannot be decoded at `{path}`: {reason}; ask for the \
         type that the step returned"
    )]
    Undecodable {
        /// The run.
        run: i64,
        /// The step.
        step: String,
        /// Where.
        path: String,
        /// What serde said, without the values it quotes.
        reason: String,
    },

    /// It is too late, or too early, for what was asked.
    #[error("run {run} is {status} and cannot be {asked}: {remedy}")]
    RunEnded {
        /// The run.
        run: i64,
        /// Its status.
        status: crate::RunStatus,
        /// What was asked for.
        asked: &'static str,
        /// When it can be.
        remedy: &'static str,
    },

    /// The run ended and was reopened while the cancel waited for another transaction that held the run.
    #[error(
        "run {run} was not cancelled: it ended and was reopened before it could be; cancel it again to cancel its new \
         round"
    )]
    Reopened {
        /// The run.
        run: i64,
    },

    /// Another transaction holds the run all the time.
    #[error(
        "run {run} was not {asked}: another transaction has held it, or a run chained to it, for {limit:?}; find the \
         session in pg_stat_activity, end it, and try again"
    )]
    Busy {
        /// The run.
        run: i64,
        /// What was asked for.
        asked: &'static str,
        /// How long the call has tried.
        limit: std::time::Duration,
    },

    /// A step was named for a reopening that needs no naming, or cannot be done again.
    #[error(
        "step `{step}` of run {run} is {status}, and no failure that was ignored: only those are \
         named; leave it out"
    )]
    NotIgnored {
        /// The run.
        run: i64,
        /// The step.
        step: String,
        /// Its status.
        status: crate::StepStatus,
    },

    /// A run failed only by steps whose failures are ignored, and a reopening names none of them: the run would
    /// fail again at once.
    #[error("{}", only_ignored(*.run, .steps))]
    OnlyIgnored {
        /// The run.
        run: i64,
        /// The keys of the failed steps.
        steps: Vec<String>,
    },

    /// A run would be opened again, and nobody could go on with it.
    #[error(
        "no live worker knows {jobs}, which run {run} needs: start one that does, or reopen the run \
         with `.force()`"
    )]
    UnknownJobs {
        /// The run.
        run: i64,
        /// The job types, with their versions where others are known.
        jobs: String,
    },

    /// A key where it would mean nothing.
    #[error(
        "a run of `{pipeline}` further down a chain has the key `{key}`: give the key to the first \
         run of the chain, and it stands for all of it"
    )]
    KeyInChain {
        /// The pipeline.
        pipeline: String,
        /// The key.
        key: String,
    },

    /// Runs that start a chain, some with a key and some without.
    #[error(
        "runs of `{other}` and `{pipeline}` start a chain together, and only that of `{other}` has a key, \
         `{key}`: give each of them one, or none"
    )]
    KeyMissing {
        /// The pipeline of one without.
        pipeline: String,
        /// The pipeline of one with a key.
        other: String,
        /// Its key.
        key: String,
    },

    /// The run did not end in time.
    #[error(
        "run {run} has not ended within {limit:?}: {}; wait longer, or look at its steps",
        .status.map_or_else(
            || "the database did not say in time how it stands".to_owned(),
            |status| format!("it is {status}")
        )
    )]
    Timeout {
        /// The run.
        run: i64,
        /// How long was waited.
        limit: std::time::Duration,
        /// Its status, where the database has said it.
        status: Option<crate::RunStatus>,
    },

    /// A database whose clock must not be replaced.
    #[cfg(feature = "testing")]
    #[error(
        "database `{database}` may not be one for tests: {why}; a clock that is replaced is replaced for \
         all who use the database, so take an empty one with `test` in its name, or, for a name that says \
         nothing, `allow_any_database()`"
    )]
    NotForTests {
        /// The database's name.
        database: String,
        /// What speaks against it.
        why: String,
    },

    /// There are jobs of types that the harness was not told of.
    #[cfg(feature = "testing")]
    #[error(
        "jobs of type `{kinds}` are to be run, and the harness does not know them: `.register::<..>()` \
         them, or `.fake(..)` them"
    )]
    NoSuchJob {
        /// The names of the types.
        kinds: String,
    },

    /// Jobs go on and on.
    #[cfg(feature = "testing")]
    #[error(
        "not idle within {limit:?}: allow more with `limit(..)`, or see what keeps it busy; what is \
         left:\n{left}"
    )]
    NotIdle {
        /// How long was waited.
        limit: std::time::Duration,
        /// The jobs that have not ended.
        left: String,
    },
}

impl From<sqlx::Error> for Error {
    /// What is missing of the schema is told apart from all else that the database refuses.
    fn from(error: sqlx::Error) -> Self {
        match jobs::Error::from(error) {
            jobs::Error::Database(error) => Self::Database(error),
            other => other.into(),
        }
    }
}

impl From<jobs::Error> for Error {
    fn from(error: jobs::Error) -> Self {
        match error {
            jobs::Error::NotMigrated { missing } => Self::NotMigrated { missing },
            other => Self::Jobs(other),
        }
    }
}

fn only_ignored(run: i64, steps: &[String]) -> String {
    /// How many steps a message names.
    const NAMED: usize = 10;
    let named = steps.iter().take(NAMED).map(|step| format!("`{step}`"));
    let more = match steps.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "run {run} failed only by steps whose failures are ignored ({}{more}), and would fail again at once: name \
         the steps to run again, as in `run.reopen().step(\"{}\")`",
        named.collect::<Vec<_>>().join(", "),
        steps.first().map_or("", String::as_str),
    )
}

/// How to come by the output of a step that stands there.
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
