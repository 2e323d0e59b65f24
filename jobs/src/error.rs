//! The error of this crate.

use crate::error_text::{List, database_text};
use crate::limits;

/// A result whose error is this crate's [`Error`], unless another is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The remedy for data that cannot be written as JSON.
pub(crate) const NO_JSON: &str = "use field types that can be, or implement `Serialize` by hand";

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

    /// The Postgres server is older than the oldest supported version.
    #[error(
        "the server runs Postgres {found}, and {required} or later is needed: upgrade the server, \
         or connect to another"
    )]
    ServerTooOld {
        /// The server's own version string.
        found: String,
        /// The oldest major version that is supported.
        required: i32,
    },

    /// A newer version of the program has migrated this database.
    #[error(
        "database `{database}` has migration {applied}, and the last one that this program knows is \
         {known}: a newer version of the program migrated the database; run that version, or connect to \
         another database"
    )]
    DatabaseNewer {
        /// The database's name.
        database: String,
        /// The first applied migration that this program does not know.
        applied: i64,
        /// The last migration that this program knows.
        known: i64,
    },

    /// A migration was edited after it had been applied.
    #[error(
        "migration {version} ({description}) in database `{database}` differs from the one in this \
         program: an applied migration must never change; restore its file and add a new one"
    )]
    MigrationChanged {
        /// The database's name.
        database: String,
        /// The migration's number.
        version: i64,
        /// The migration's name.
        description: String,
    },

    /// The role lacks a privilege that migrating needs.
    #[error(
        "role `{role}` may not create {what} in database `{database}`: have an owner run \
         `{grant}`, or migrate once as a role that may"
    )]
    MayNotMigrate {
        /// The role of the connection.
        role: String,
        /// The database's name.
        database: String,
        /// The object that the role may not create.
        what: &'static str,
        /// The statement that grants the privilege.
        grant: String,
    },

    /// The name of a queue, a job type or a worker has a character that is not allowed, or a wrong length.
    #[error(
        "the {what} `{value}` is not a valid name: use 1 to {} letters, digits, `.`, `_` or `-`",
        limits::MAX_NAME_BYTES
    )]
    InvalidName {
        /// The thing that is named: `queue`, `job type` or `worker`.
        what: &'static str,
        /// The given name, shortened.
        value: String,
    },

    /// A pattern is neither a name nor a prefix followed by `*`.
    #[error(
        "the {what} pattern `{value}` is neither a name nor a prefix of names followed by `*`: \
         write it like `media`, `media.*` or `*`"
    )]
    InvalidPattern {
        /// The thing whose name the pattern matches.
        what: &'static str,
        /// The given pattern, shortened.
        value: String,
    },

    /// A text is longer than its limit.
    #[error("the {what} of `{job_type}` has {size} bytes, and {limit} is the limit: shorten it")]
    TooLong {
        /// The job type's name.
        job_type: &'static str,
        /// The part of the job that is too long.
        what: &'static str,
        /// The size in bytes.
        size: usize,
        /// The largest size allowed.
        limit: usize,
    },

    /// Data is larger than its limit.
    #[error(
        "{size} bytes of {what} for `{job_type}`, and {limit} is the limit: store the data \
         elsewhere and pass a reference to it"
    )]
    TooLarge {
        /// The job type's name.
        job_type: &'static str,
        /// The part of the job that is too large.
        what: &'static str,
        /// The size in bytes.
        size: usize,
        /// The largest size allowed.
        limit: usize,
    },

    /// A text contains a NUL character, the only one that Postgres cannot store.
    #[error(
        "the {what} of `{job_type}` contains a NUL character, which Postgres cannot store: remove \
         it, or encode it"
    )]
    HasNul {
        /// The job type's name.
        job_type: &'static str,
        /// The part of the job that contains it.
        what: &'static str,
    },

    /// Data is JSON that Postgres could not read later.
    #[error("the {what} of `{job_type}` cannot be stored: at `{place}` there is {problem}")]
    NotStorable {
        /// The job type's name.
        job_type: &'static str,
        /// The part of the job that cannot be stored.
        what: &'static str,
        /// The path of the value in it.
        place: String,
        /// The problem with the value, and the remedy.
        problem: crate::JsonProblem,
    },

    /// A key is an empty text.
    #[error("the key of `{job_type}` is empty: give it a value, or leave it out")]
    EmptyKey {
        /// The job type's name.
        job_type: &'static str,
    },

    /// The job's data cannot be written as JSON.
    #[error("a `{job_type}` cannot be written as JSON: {source}; {NO_JSON}")]
    NotEncodable {
        /// The job type's name.
        job_type: &'static str,
        /// The reason that serde gave.
        source: serde_json::Error,
    },

    /// The maximum number of attempts is zero, or too large.
    #[error("the maximum number of attempts of `{job_type}` is {attempts}: use 1 to 32767")]
    AttemptsOutOfRange {
        /// The job type's name.
        job_type: &'static str,
        /// The given number.
        attempts: u16,
    },

    /// A duration is outside of its range.
    #[error("the {what} of `{job_type}` is {given:?}: {remedy}")]
    DurationOutOfRange {
        /// The job type's name.
        job_type: &'static str,
        /// The option with the duration.
        what: &'static str,
        /// The given duration.
        given: std::time::Duration,
        /// The range to use.
        remedy: &'static str,
    },

    /// The longest wait of a backoff is shorter than its first wait.
    #[error(
        "the backoff of `{job_type}` begins with a wait of {base:?}, and its longest wait is {max:?}: give the shorter \
         one first"
    )]
    BackoffInverted {
        /// The job type's name.
        job_type: &'static str,
        /// The first wait.
        base: std::time::Duration,
        /// The longest wait.
        max: std::time::Duration,
    },

    /// A jitter is not a share from 0 to 1.
    #[error("the jitter of `{job_type}` is {given}: use a share from 0 to 1")]
    JitterOutOfRange {
        /// The job type's name.
        job_type: &'static str,
        /// The given share.
        given: f32,
    },

    /// One call enqueues more jobs than allowed.
    #[error(
        "{count} jobs in one call, and {} is the limit: enqueue them in several calls",
        limits::MAX_JOBS_PER_CALL
    )]
    TooMany {
        /// The number of jobs.
        count: usize,
    },

    /// The jobs of one call have more bytes than allowed.
    #[error(
        "the jobs of one call have {size} bytes or more together, and {limit} is the limit: enqueue them in \
         several calls, or store their data elsewhere and pass references to it"
    )]
    TooManyBytes {
        /// The bytes that were counted until the limit was passed.
        size: usize,
        /// The largest size allowed.
        limit: usize,
    },

    /// The worker serves no queue.
    #[error("the worker serves no queue: name one or more with `.queue(\"default\", 16)`")]
    NoQueue,

    /// A worker's queue has no slots, or too many.
    #[error(
        "queue `{queue}` has {slots} slots: give it from 1 to {}, or leave it out if the worker is not to \
         serve it",
        limits::MAX_SLOTS
    )]
    SlotsOutOfRange {
        /// The queue, or the pattern of several.
        queue: String,
        /// The given number of slots.
        slots: u32,
    },

    /// The worker knows no job type.
    #[error(
        "worker `{worker}` has no job type, so that it could perform no job: call `.register::<J>()` for each job \
         type that it is to perform"
    )]
    NothingRegistered {
        /// The worker's name.
        worker: String,
    },

    /// A pattern of job types matches none of the worker's registered types.
    #[error(
        "worker `{worker}` takes only job types like `{pattern}`, and none of its registered types is like that: it \
         has {}; correct the pattern, or register the type",
        List(.known)
    )]
    NoMatchingJobType {
        /// The worker's name.
        worker: String,
        /// The pattern.
        pattern: String,
        /// The registered job types.
        known: Vec<String>,
    },

    /// The worker's poll interval is too short or too long.
    #[error(
        "the poll interval of worker `{worker}` is {given:?}: set it from {:?} to {:?}, or leave it out",
        limits::MIN_POLL_INTERVAL,
        limits::MAX_POLL_INTERVAL
    )]
    PollOutOfRange {
        /// The worker's name.
        worker: String,
        /// The given interval.
        given: std::time::Duration,
    },

    /// The worker stopped although nobody asked it to.
    #[error(
        "worker `{worker}` stopped by itself: {source}; other workers take over its jobs when their leases \
         expire; run the worker again"
    )]
    WorkerEnded {
        /// The worker's name.
        worker: String,
        /// The error that apalis returned.
        source: apalis_core::error::WorkerError,
    },

    /// A worker was given a queue, or a pattern of queues, twice.
    #[error(
        "the worker was given queue `{queue}` twice: name each queue once, with all the slots that it is to have"
    )]
    DuplicateQueue {
        /// The queue, or the pattern.
        queue: String,
    },

    /// A task of the worker's engine panicked.
    #[error(
        "worker `{worker}` stopped: its engine task `{task}` panicked, see the log for the panic; other workers \
         take over its jobs when their leases expire; run the worker again, and report the panic"
    )]
    EngineTaskFailed {
        /// The worker's name.
        worker: String,
        /// The task.
        task: &'static str,
    },

    /// Two job types of a worker have the same name.
    #[error(
        "two job types are called `{0}`: give one of them another name with #[job(name = \"..\")]"
    )]
    DuplicateName(&'static str),

    /// Jobs were added to a batch that is sealed or finished.
    #[error("batch {batch} is {state}: jobs can be added only while it is open; begin another one")]
    BatchClosed {
        /// The batch's id.
        batch: crate::BatchId,
        /// `sealed` or `finished`.
        state: &'static str,
    },

    /// The database has no batch with this id.
    #[error(
        "there is no batch {batch} in this database: its transaction has not committed, or was rolled back; or it \
         finished long ago and was pruned; or it belongs to another database; begin another one"
    )]
    NoBatch {
        /// The batch's id.
        batch: crate::BatchId,
    },

    /// The database has no job with this id.
    #[error(
        "there is no job {id} in this database: its transaction has not committed, or was rolled back; or the job \
         succeeded or was deleted, and its row with it; `Worker::keep_succeeded` keeps succeeded jobs"
    )]
    NoJob {
        /// The job's id.
        id: crate::JobId,
    },

    /// The job has an owner, and cannot be retried or deleted alone.
    #[error(
        "job {id} is a step of a run, and steps are not retried or deleted one by one: call `run.reopen()` to \
         repeat the failed steps of the run, or `run.cancel()` to end it"
    )]
    OwnedJob {
        /// The job's id.
        id: crate::JobId,
    },

    /// Another transaction held a row that the call needs.
    #[error(
        "{what} was not {asked}: another transaction has held its row, or that of its batch, for {limit:?}; find the \
         session in pg_stat_activity, end it, and try again"
    )]
    Busy {
        /// The thing whose row is held, with its id or name.
        what: String,
        /// The change that was asked for: `retried`.
        asked: &'static str,
        /// How long the call has waited.
        limit: std::time::Duration,
    },

    /// A job cannot be retried because another live job has its key.
    #[error(
        "job {id} cannot be retried: its key `{key}` is held by job {by}; wait until job {by} has \
         ended, or delete one of the two"
    )]
    KeyTaken {
        /// The job's id.
        id: crate::JobId,
        /// The key.
        key: String,
        /// The live job that has the key.
        by: crate::JobId,
    },

    /// The job's status does not allow this operation.
    #[error("job {id} is {status}: only a {needed} job can be {asked}")]
    WrongStatus {
        /// The job's id.
        id: crate::JobId,
        /// The job's status.
        status: crate::JobStatus,
        /// The statuses that allow the operation.
        needed: &'static str,
        /// The operation that was asked for: `retried`.
        asked: &'static str,
    },
}

crate::debug_as_display!(Error);

/// Implements `Debug` of an error by its message and its causes, so that `main` and tests that return a `Result`
/// print the remedy.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_display {
    ($error:ty) => {
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&$crate::error_text::with_causes(self))
            }
        }
    };
}

impl From<sqlx::Error> for Error {
    /// Distinguishes a missing schema from all other errors of the database.
    fn from(error: sqlx::Error) -> Self {
        match missing(&error) {
            Some(missing) => Self::NotMigrated { missing },
            None => Self::Database(error),
        }
    }
}

/// Returns which object of the schema `pipeline` is missing, in the server's words. Whatever its language, the server
/// quotes names as they were given.
fn missing(error: &sqlx::Error) -> Option<String> {
    let error = error.as_database_error()?;
    let name = match error.code()?.as_ref() {
        // A relation, a function, a type.
        "42P01" | "42883" | "42704" => "pipeline.",
        // The schema itself.
        "3F000" => "pipeline",
        _ => return None,
    };
    let message = error.message();
    names(message, name).then(|| message.to_owned())
}

/// Returns whether the text contains the name, and not only as a part of a longer name.
fn names(text: &str, name: &str) -> bool {
    let in_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        let begins = !before.ends_with(|c| in_name(c) || c == '.');
        begins && (name.ends_with('.') || !after.starts_with(in_name))
    })
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_name_is_found_in_any_language_and_not_inside_of_others() {
        for text in [
            "relation \"pipeline.jobs\" does not exist",
            "Relation »pipeline.jobs« existiert nicht",
            "function pipeline.claim_jobs_v1(bigint) does not exist",
        ] {
            assert!(names(text, "pipeline."), "{text}");
        }
        assert!(names("schema \"pipeline\" does not exist", "pipeline"));
        for text in [
            "relation \"orders\" does not exist",
            "relation \"my_pipeline.jobs\" does not exist",
            "relation \"shop.pipeline.jobs\" does not exist",
        ] {
            assert!(!names(text, "pipeline."), "{text}");
        }
        assert!(!names("schema \"pipelines\" does not exist", "pipeline"));
    }
}
