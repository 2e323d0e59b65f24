use crate::limits;

/// What a call into this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, each with what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database refused, or could not be reached.
    #[error("database error: {0}")]
    Database(#[from] sqlx::Error),

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

    /// A unique key without a character.
    #[error("the unique key of `{kind}` is empty: give it a value, or leave it out")]
    EmptyKey {
        /// The job type's name.
        kind: &'static str,
    },

    /// The job's data has no JSON.
    #[error("a `{kind}` cannot be written as JSON: {source}")]
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

    /// Nothing to do it with.
    #[error("{0}")]
    Worker(&'static str),

    /// Two job types of one name in a worker.
    #[error("two job types are called `{0}`: give one of them another #[job(name = \"..\")]")]
    DuplicateName(&'static str),

    /// A batch that nothing can be added to any more.
    #[error("batch {batch} is {state}: jobs can be added only while it is open; begin another one")]
    BatchClosed {
        /// The batch's id.
        batch: i64,
        /// `sealed` or `finished`.
        state: &'static str,
    },

    /// There is no such thing.
    #[error("there is no {what} {id}: it has never been, or it succeeded and was deleted")]
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// Its id.
        id: i64,
    },

    /// Not to be done to a job alone.
    #[error(
        "job {id} is a step of a run: retry or cancel the run instead; its steps are not retried or \
         discarded one by one"
    )]
    JobOfRun {
        /// The job.
        id: i64,
    },

    /// Not possible in the state it is in.
    #[error("job {id} is {status}: only a {needed} job can be {asked}")]
    WrongStatus {
        /// The job.
        id: i64,
        /// What it is.
        status: String,
        /// What it would have to be.
        needed: &'static str,
        /// What was asked for.
        asked: &'static str,
    },
}
