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
}
