//! The command `cargo pg`: the private Postgres, for scripts and for the shell.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use local_postgres::{Claim, Error, Programs, Server, checkout, download};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

/// A private Postgres for demos, tests and benches.
#[derive(Parser)]
#[command(name = "local-postgres")]
enum Arguments {
    /// Print where Postgres's programs are, or how to get them (and exit with code 3).
    Find,
    /// Download Postgres's programs.
    Download,
    /// Run a command while the server is up, and stop the server if nobody else uses it.
    Run {
        /// The command and its arguments.
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Run a command with DATABASE_URL naming a fresh, empty database, which is dropped afterwards.
    Scratch {
        /// The command and its arguments.
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Run a command with PIPELINE_SQLX_URL naming a fresh database that holds the migrations.
    ///
    /// For the SQL macros. The migrations are read from their files: the crate that embeds them cannot be compiled
    /// before its macros have a database.
    Migrated {
        /// The command and its arguments.
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = match Arguments::parse() {
        Arguments::Find => Programs::find().map(|programs| {
            println!(
                "Postgres {} in {}",
                programs.major(),
                programs.folder().display()
            );
            ExitCode::SUCCESS
        }),
        Arguments::Download => download().await.map(|folder| {
            println!("Postgres is in {}", folder.display());
            ExitCode::SUCCESS
        }),
        Arguments::Run { command } => with_server(&command).await,
        Arguments::Scratch { command } => with_empty_database(&command).await,
        Arguments::Migrated { command } => with_migrated_database(&command).await,
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("{error}");
        match error {
            Error::NoPostgres(_) => ExitCode::from(3),
            _ => ExitCode::FAILURE,
        }
    })
}

async fn with_server(command: &[OsString]) -> Result<ExitCode, Error> {
    let _server = Server::find()?;
    run(command, None).await
}

async fn with_empty_database(command: &[OsString]) -> Result<ExitCode, Error> {
    let claim = Claim::new(Arc::new(Server::find()?), "pipeline_scratch").await?;
    let scratch = claim.create("empty", "template1").await?;
    let url = claim.server().url(&scratch.name);
    let outcome = run(command, Some(("DATABASE_URL", &url))).await;
    claim.remove(&scratch).await?;
    outcome
}

async fn with_migrated_database(command: &[OsString]) -> Result<ExitCode, Error> {
    let checkout = checkout();
    let claim = Claim::new(Arc::new(Server::find()?), "pipeline_sql").await?;
    let scratch = claim.create("macros", "template1").await?;
    let mut files = vec![checkout.join("jobs/src/sql/migrate_table.sql")];
    let folder = checkout.join("migrations");
    let mut numbered = std::fs::read_dir(&folder)
        .and_then(|entries| {
            entries
                .map(|entry| Ok(entry?.path()))
                .collect::<Result<Vec<_>, _>>()
        })
        .map_err(|source| file_error("read", &folder, source))?;
    numbered.sort();
    files.extend(numbered);
    let mut connection = scratch.options.connect().await?;
    sqlx::raw_sql("create schema pipeline")
        .execute(&mut connection)
        .await?;
    for file in files {
        let text =
            std::fs::read_to_string(&file).map_err(|source| file_error("read", &file, source))?;
        sqlx::raw_sql(AssertSqlSafe(text))
            .execute(&mut connection)
            .await?;
    }
    connection.close().await?;
    let url = claim.server().url(&scratch.name);
    let outcome = run(command, Some(("PIPELINE_SQLX_URL", &url))).await;
    claim.remove(&scratch).await?;
    outcome
}

/// Runs a command to its end. The command also receives Ctrl-C, and decides when to end.
async fn run(command: &[OsString], variable: Option<(&str, &str)>) -> Result<ExitCode, Error> {
    let fail = |source| file_error("run", Path::new(&command[0]), source);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fail)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(fail)?;
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]);
    child.envs(variable);
    let mut child = child.spawn().map_err(fail)?;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status.map_err(fail)?,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => child.start_kill().map_err(fail)?,
        }
    };
    Ok(ExitCode::from(
        status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1),
    ))
}

fn file_error(what: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::File {
        what,
        path: path.to_owned(),
        source,
    }
}
