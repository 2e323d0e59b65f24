//! A job for workers in other processes: it records in the database that it began.

use std::path::PathBuf;
use std::time::Duration;

use jobs::{Context, Job, JobError, Perform};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

const TABLES: &str = "
    create table errand_began (name text, token bigint, attempt int, pid int);
    create table errand_go (name text);";

/// A job that records that it began, and runs until the test lets it go.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(max_attempts = 3, backoff = "fixed(1ms)", lease = "2s")]
pub struct Errand {
    /// The name by which the test refers to the errand.
    pub name: String,
    /// A file that the first attempt waits for instead, while it blocks its process: neither a renewal nor an
    /// abort can come in between, so that the attempt's end is certainly sent.
    pub stubborn: Option<PathBuf>,
}

/// An attempt that has begun.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Began {
    /// The attempt's token.
    pub token: i64,
    /// The number of the attempt.
    pub attempt: i32,
    /// The process that runs the attempt.
    pub pid: i32,
}

impl Errand {
    /// Creates an errand that runs until [`let_go`](Self::let_go).
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            stubborn: None,
        }
    }

    /// Creates an errand whose first attempt blocks its process until the file exists.
    pub fn stubborn(name: &str, file: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            stubborn: Some(file),
        }
    }

    /// Creates the tables that errands write to.
    pub async fn prepare(pool: &PgPool) {
        sqlx::raw_sql(TABLES)
            .execute(pool)
            .await
            .expect("the tables are created");
    }

    /// Lets all errands of this name end, including later ones.
    pub async fn let_go(pool: &PgPool, name: &str) {
        sqlx::query("insert into errand_go values ($1)")
            .bind(name)
            .execute(pool)
            .await
            .expect("the errand is let go");
    }

    /// Returns the attempts that have begun, in the order of their numbers.
    pub async fn began(pool: &PgPool, name: &str) -> Vec<Began> {
        sqlx::query_as(
            "select token, attempt, pid from errand_began where name = $1 order by attempt, token",
        )
        .bind(name)
        .fetch_all(pool)
        .await
        .expect("the table is there")
    }
}

impl Perform for Errand {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        let pool = cx.data::<PgPool>()?;
        sqlx::query("insert into errand_began values ($1, $2, $3, $4)")
            .bind(&self.name)
            .bind(cx.token())
            .bind(i32::from(cx.attempt()))
            .bind(std::process::id().cast_signed())
            .execute(pool)
            .await?;
        if let (Some(file), 1) = (self.stubborn, cx.attempt()) {
            while !file.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            return Ok(());
        }
        let may_go = "select exists (select from errand_go where name = $1)";
        while !sqlx::query_scalar::<_, bool>(may_go)
            .bind(&self.name)
            .fetch_one(pool)
            .await?
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}
