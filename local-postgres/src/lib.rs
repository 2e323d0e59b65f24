//! A Postgres for demos, tests and benches, with nothing to set up.
//!
//! [`Server::find`] uses the server that `DATABASE_URL` names. Where the variable is not set, it
//! starts a private cluster of real Postgres in the checkout's `.postgres` folder, or joins the one
//! that another process has started there:
//!
//! - Users of a cluster hold a shared lock on its file `users.lock`; the kernel takes it back from a
//!   process that was killed. The last one to leave stops the server; a watcher process does it for
//!   those that could not.
//! - Connections go through a socket in a folder that nobody else may enter. There is no port to
//!   clash over, and no password to keep.
//! - Root may not run Postgres: there the server runs as `postgres`, else as `nobody`.
//!
//! | variable | what it does |
//! |---|---|
//! | `DATABASE_URL` | the server to use instead of a private cluster |
//! | `PIPELINE_POSTGRES_BIN` | the folder with `postgres`, `initdb` and `pg_ctl` |
//! | `PIPELINE_NO_INSTALL` | `bin/setup` must not install a system package |
//! | `PIPELINE_NO_DOWNLOAD` | `bin/setup` must not download Postgres |

#[cfg(not(unix))]
compile_error!(
    "local-postgres, and with it the tests, the examples and the benches of this checkout, runs on Unix only: it uses \
     Unix sockets, file locks and signals. The crates pg-pipeline and pg-pipeline-jobs do not need it."
);

#[cfg(unix)]
mod account;
#[cfg(unix)]
mod cluster;
#[cfg(unix)]
mod download;
#[cfg(unix)]
mod error;
#[cfg(unix)]
mod place;
#[cfg(unix)]
mod postmaster;
#[cfg(unix)]
mod programs;
#[cfg(unix)]
mod scratch;
#[cfg(unix)]
mod server;

#[cfg(unix)]
pub use {
    cluster::{Cluster, Durability},
    download::download,
    error::{Error, Result},
    place::checkout,
    programs::Programs,
    scratch::{Claim, Scratch},
    server::Server,
};
