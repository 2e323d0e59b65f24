//! A job for workers in processes of their own: it says in the database what it does.

use std::path::PathBuf;
use std::time::Duration;

use jobs::{Context, Job, JobError, Perform};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

const TABLES: &str = "
    create table errand_began (name text, token bigint, attempt int, pid int);
    create table errand_go (name text);";

/// Writes down that it began, and waits until it is let go.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(max_attempts = 3, backoff = "fixed(1ms)", lease = "2s")]
pub struct Errand {
    /// What it is called in the test.
    pub name: String,
    /// The first attempt waits for this file instead, and lets nothing else in its process run
    /// meanwhile: neither a renewal nor an abort comes in between, and so its end is surely sent.
    pub stubborn: Option<PathBuf>,
}

/// An attempt that has begun.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Began {
    /// The attempt's token.
    pub token: i64,
    /// Its number.
    pub attempt: i32,
    /// The process it runs in.
    pub pid: i32,
}

impl Errand {
    /// One that waits to be let go.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            stubborn: None,
        }
    }

    /// One that waits for a file and for nothing else.
    pub fn stubborn(name: &str, file: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            stubborn: Some(file),
        }
    }

    /// The tables that errands write to.
    pub async fn prepare(pool: &PgPool) {
        sqlx::raw_sql(TABLES)
            .execute(pool)
            .await
            .expect("the tables are created");
    }

    /// Lets all of this name go, now and later.
    pub async fn let_go(pool: &PgPool, name: &str) {
        sqlx::query("insert into errand_go values ($1)")
            .bind(name)
            .execute(pool)
            .await
            .expect("the errand is let go");
    }

    /// The attempts that have begun, in the order of their numbers.
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
