use crate::limits;

/// What a call into this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can be done about data that has no JSON.
pub(crate) const NO_JSON: &str = "give its fields types that have, or another `Serialize`";

/// Everything that can go wrong, each with what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database refused, or could not be reached.
    #[error("database error: {}", crate::sqlstate::error_text(.0))]
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

    /// The server lacks what we build on.
    #[error(
        "the server runs Postgres {found}, and {required} or later is needed: upgrade the server, \
         or connect to another"
    )]
    ServerTooOld {
        /// The server's own version string.
        found: String,
        /// The first major version that will do.
        required: i32,
    },

    /// Another, newer build of the program has migrated this database.
    #[error(
        "database `{database}` holds migration {applied}, and this program knows none beyond \
         {known}: it was migrated by a newer version; run that version here, or connect to \
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
        "migration {version} ({description}) in database `{database}` is not the one this program \
         carries: an applied migration must never change; restore its file and add a new one"
    )]
    MigrationChanged {
        /// The database's name.
        database: String,
        /// The migration's number.
        version: i64,
        /// The migration's name.
        description: String,
    },

    /// The role lacks a right that migrating needs.
    #[error(
        "role `{role}` may not create {what} in database `{database}`: have an owner run \
         `{grant}`, or migrate once as a role that may"
    )]
    MayNotMigrate {
        /// The role we are connected as.
        role: String,
        /// The database's name.
        database: String,
        /// What it may not create.
        what: &'static str,
        /// The statement that gives the right.
        grant: String,
    },

    /// A name that cannot be one.
    #[error(
        "the {what} `{value}` is not a valid name: use 1 to {} letters, digits, `.`, `_` or `-`",
        limits::NAME
    )]
    InvalidName {
        /// Which name.
        what: &'static str,
        /// What was given.
        value: String,
    },

    /// A pattern that cannot be one.
    #[error(
        "the {what} pattern `{value}` is neither a name nor the beginning of one followed by `*`: \
         write it like `media`, `media.*` or `*`"
    )]
    InvalidPattern {
        /// The pattern of which name.
        what: &'static str,
        /// What was given.
        value: String,
    },

    /// A text that is longer than it may be.
    #[error("the {what} of `{kind}` has {size} bytes, and {limit} is the limit: shorten it")]
    TooLong {
        /// The job type's name.
        kind: &'static str,
        /// Which text.
        what: &'static str,
        /// How long it is.
        size: usize,
        /// How long it may be.
        limit: usize,
    },

    /// More than is stored.
    #[error(
        "{size} bytes are too many for the {what} of `{kind}`: {limit} is the limit; store it \
         elsewhere and pass a reference to it"
    )]
    TooLarge {
        /// The job type's name.
        kind: &'static str,
        /// What is too large.
        what: &'static str,
        /// How large it is.
        size: usize,
        /// How large it may be.
        limit: usize,
    },

    /// The one character that Postgres cannot store.
    #[error(
        "there is a NUL character in the {what} of `{kind}`, which Postgres cannot store: remove \
         it, or encode it"
    )]
    HasNul {
        /// The job type's name.
        kind: &'static str,
        /// What holds it.
        what: &'static str,
    },

    /// JSON that Postgres could not read later.
    #[error("the {what} of `{kind}` cannot be stored: at `{place}` there is {problem}")]
    NotStorable {
        /// The job type's name.
        kind: &'static str,
        /// What cannot be stored.
        what: &'static str,
        /// The path of the value in it.
        place: String,
        /// What is wrong with the value, and the remedy.
        problem: crate::JsonProblem,
    },

    /// A key without a character.
    #[error("the key of `{kind}` is empty: give it a value, or leave it out")]
    EmptyKey {
        /// The job type's name.
        kind: &'static str,
    },

    /// The job's data has no JSON.
    #[error("a `{kind}` cannot be written as JSON: {source}; {NO_JSON}")]
    NotEncodable {
        /// The job type's name.
        kind: &'static str,
        /// What serde said.
        source: serde_json::Error,
    },

    /// No attempt at all.
    #[error("`{kind}` is to be tried {attempts} times: give it from 1 to 32767 attempts")]
    AttemptsOutOfRange {
        /// The job type's name.
        kind: &'static str,
        /// What was asked for.
        attempts: u16,
    },

    /// A time that cannot be kept.
    #[error("the {what} of `{kind}` is {given:?}: {remedy}")]
    DurationOutOfRange {
        /// The job type's name.
        kind: &'static str,
        /// Which one.
        what: &'static str,
        /// What was asked for.
        given: std::time::Duration,
        /// What it may be.
        remedy: &'static str,
    },

    /// A backoff whose longest wait is shorter than its first.
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

    /// A share of a wait that is none.
    #[error("the jitter of `{kind}` is {given}: use a share from 0 to 1")]
    JitterOutOfRange {
        /// The job type's name.
        kind: &'static str,
        /// What was asked for.
        given: f32,
    },

    /// More jobs than one statement takes.
    #[error(
        "{count} jobs in one call, and {} is the limit: enqueue them in several",
        limits::BULK
    )]
    TooMany {
        /// How many were given.
        count: usize,
    },

    /// More bytes than one call takes.
    #[error(
        "the jobs of one call have {size} bytes or more together, and {limit} is the limit: enqueue them in \
         several calls, or store their data elsewhere and pass references to it"
    )]
    TooManyBytes {
        /// How many were counted until the limit was passed.
        size: usize,
        /// How many there may be.
        limit: usize,
    },

    /// A queue that would be served by nobody, or by more than there can be.
    #[error(
        "queue `{queue}` has {slots} slots: give it from 1 to {}, or leave it out if it is not to \
         be served",
        limits::SLOTS
    )]
    SlotsOutOfRange {
        /// The queue, or the pattern of several.
        queue: String,
        /// How many were given.
        slots: u32,
    },

    /// A worker that knows no job type.
    #[error(
        "worker `{worker}` has no job type, so that it could perform no job: call `.register::<J>()` for each job \
         type that it is to perform"
    )]
    NothingRegistered {
        /// The worker's name.
        worker: String,
    },

    /// A worker whose `only` matches none of its job types.
    #[error(
        "worker `{worker}` takes only job types like `{pattern}`, and of its registered types ({known}) none is: \
         correct the pattern, or register the type"
    )]
    OnlyMatchesNothing {
        /// The worker's name.
        worker: String,
        /// The pattern.
        pattern: String,
        /// The registered job types.
        known: String,
    },

    /// A poll interval that would leave work unseen, or signs of life ungiven.
    #[error(
        "the poll interval of worker `{worker}` is {given:?}: set it from {:?} to {:?}, or leave it out",
        limits::MIN_POLL_INTERVAL,
        limits::MAX_POLL_INTERVAL
    )]
    PollOutOfRange {
        /// The worker's name.
        worker: String,
        /// What was asked for.
        given: std::time::Duration,
    },

    /// Nothing to do it with.
    #[error("{0}")]
    Worker(&'static str),

    /// What should run until it is stopped has stopped.
    #[error(
        "worker `{worker}` ended by itself: {source}; what it ran goes to other workers when its \
         leases run out; run it again"
    )]
    WorkerEnded {
        /// The worker's name.
        worker: String,
        /// What apalis said.
        source: apalis_core::error::WorkerError,
    },

    /// A queue, or a pattern of queues, that a worker was given twice.
    #[error(
        "the worker was given queue `{queue}` twice: name each queue once, with all the slots that it is to have"
    )]
    DuplicateQueue {
        /// The queue, or the pattern.
        queue: String,
    },

    /// A task of the worker's engine panicked.
    #[error(
        "worker `{worker}` ended: its engine task `{task}` panicked, see the log for the panic; the jobs that it \
         ran are taken over when their leases run out; run the worker again, and report the panic"
    )]
    EngineTaskFailed {
        /// The worker's name.
        worker: String,
        /// The task.
        task: &'static str,
    },

    /// Two job types of one name in a worker.
    #[error("two job types are called `{0}`: give one of them another #[job(name = \"..\")]")]
    DuplicateName(&'static str),

    /// A batch that nothing can be added to any more.
    #[error("batch {batch} is {state}: jobs can be added only while it is open; begin another one")]
    BatchClosed {
        /// The batch's id.
        batch: crate::BatchId,
        /// `sealed` or `finished`.
        state: &'static str,
    },

    /// There is no such batch.
    #[error(
        "there is no batch {batch} in this database: its transaction has not committed, or was rolled back; or it \
         finished long ago and was pruned; or it is one of another database; begin another one"
    )]
    NoBatch {
        /// The batch's id.
        batch: crate::BatchId,
    },

    /// There is no such thing.
    #[error(
        "there is no {what} {id}: it has never been, or it succeeded and was deleted; \
         `Worker::keep_succeeded` keeps such jobs"
    )]
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// Its id.
        id: crate::JobId,
    },

    /// Not to be done to a job alone.
    #[error(
        "job {id} is a step of a run, and steps are not retried or deleted one by one: call `run.reopen()` to \
         repeat the failed steps of the run, or `run.cancel()` to end it"
    )]
    JobOfRun {
        /// The job.
        id: crate::JobId,
    },

    /// Another transaction holds the row all the time.
    #[error(
        "{what} was not {asked}: another transaction has held its row, or that of its batch, for {limit:?}; find the \
         session in pg_stat_activity, end it, and try again"
    )]
    Busy {
        /// The thing whose row is held, with its id or name.
        what: String,
        /// What was asked for.
        asked: &'static str,
        /// How long the call has waited.
        limit: std::time::Duration,
    },

    /// A job that would live again, and whose key another has by now.
    #[error(
        "job {id} cannot be retried: its key `{key}` is held by job {by}; wait until that has \
         ended, or delete one of the two"
    )]
    KeyTaken {
        /// The job.
        id: crate::JobId,
        /// Its key.
        key: String,
        /// The live job that has it.
        by: crate::JobId,
    },

    /// Not possible in the state it is in.
    #[error("job {id} is {status}: only a {needed} job can be {asked}")]
    WrongStatus {
        /// The job.
        id: crate::JobId,
        /// What it is.
        status: String,
        /// What it would have to be.
        needed: &'static str,
        /// What was asked for.
        asked: &'static str,
    },
}

impl From<sqlx::Error> for Error {
    /// What is missing of the schema is told apart from all else that the database refuses.
    fn from(error: sqlx::Error) -> Self {
        match missing(&error) {
            Some(missing) => Self::NotMigrated { missing },
            None => Self::Database(error),
        }
    }
}

/// What is missing of the schema `pipeline`, in the server's words. Whatever its language, it quotes names
/// as they were given.
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

/// Whether the text has the name, and not as a part of a longer one.
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
