use std::io;
use std::path::{Path, PathBuf};

/// What a call into this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of this crate; each message names the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No usable programs of Postgres were found.
    #[error("{0}")]
    NoPostgres(NoPostgres),

    /// `PIPELINE_POSTGRES_BIN` names a folder without usable programs.
    #[error("PIPELINE_POSTGRES_BIN is `{}`: {reason}; set it to the folder that holds postgres, initdb and pg_ctl of Postgres 14 or later, or unset it", .folder.display())]
    BadVariable {
        /// The variable's value.
        folder: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// `DATABASE_URL` cannot be read.
    #[error(
        "DATABASE_URL cannot be used ({reason}): it should look like postgres://user:password@host:5432/database; or unset it, and a private server is started"
    )]
    BadUrl {
        /// What is wrong with it. Never the URL itself: it may hold a password.
        reason: String,
    },

    /// A file or folder of the cluster cannot be used.
    #[error("cannot {what} `{}`: {source}", .path.display())]
    File {
        /// The operation.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },

    /// The folder under the system's temporary folder belongs to another user.
    #[error("`{}` belongs to another user (uid {owner}): remove it, or set DATABASE_URL", .folder.display())]
    NotOurs {
        /// The folder.
        folder: PathBuf,
        /// The owner's user id.
        owner: u32,
    },

    /// The current user is root, and there is no other account to run the server as.
    #[error(
        "Postgres refuses to run as root, and this system has neither a user `postgres` nor `nobody`: add one of them, run as an ordinary user, or set DATABASE_URL"
    )]
    NoAccount,

    /// One of Postgres's programs failed.
    #[error("{program} failed ({status}):\n{output}\nThe server's log is `{}`", .log.display())]
    Program {
        /// The name of the program.
        program: &'static str,
        /// The exit status.
        status: String,
        /// The last part of its output.
        output: String,
        /// The server's log file.
        log: PathBuf,
    },

    /// The download failed, or is not possible in this build.
    #[error("Postgres could not be downloaded: {reason}")]
    Download {
        /// What went wrong.
        reason: String,
    },

    /// The server refused, or could not be reached.
    #[error("database error: {0}")]
    Database(#[from] sqlx::Error),
}

/// The places that were searched for Postgres, and the ways to provide one.
#[derive(Debug)]
pub struct NoPostgres {
    pub(crate) looked: Vec<String>,
}

impl std::fmt::Display for NoPostgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "no Postgres 14 or later was found. Looked at:")?;
        for place in &self.looked {
            writeln!(f, "  - {place}")?;
        }
        write!(
            f,
            "Ways to go on, any one of them:\n  \
             - set DATABASE_URL to a server you have: postgres://user:password@host:5432/database\n  \
             - install it: `apt-get install postgresql`, `dnf install postgresql-server`, \
             `brew install postgresql@17`\n  \
             - set PIPELINE_POSTGRES_BIN to the folder that holds postgres, initdb and pg_ctl\n  \
             - let bin/setup do it: as root on Debian or Ubuntu it installs the package (unless \
             PIPELINE_NO_INSTALL is set), elsewhere it downloads Postgres into the checkout \
             (unless PIPELINE_NO_DOWNLOAD is set)"
        )
    }
}

/// Adds the file and the operation to an I/O error.
pub(crate) trait At<T> {
    fn at(self, what: &'static str, path: &Path) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, what: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::File {
            what,
            path: path.to_owned(),
            source,
        })
    }
}
