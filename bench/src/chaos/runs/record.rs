//! Compares what steps, callbacks and plain jobs have written down with what the database says of them.

use std::collections::HashMap;

use sqlx::PgPool;

use super::super::log::{Line, Moment};
use crate::frame::Result;

const RECORD: &str = include_str!("record.sql");
/// What must hold in any database of ours: the tests ask the same.
const INVARIANTS: &str = concat!(
    "select problem || ': ' || subject from (",
    include_str!("../../../../tests/src/invariants.sql"),
    ") as found"
);

/// Everything that is wrong, whatever the runs were. The lines are what all workers have written down.
pub(in super::super) async fn check(pool: &PgPool, lines: &[Line]) -> Result<Vec<String>> {
    store(pool, lines).await?;
    let mut violations = sqlx::query_scalar(RECORD).fetch_all(pool).await?;
    violations.extend(invariants(pool).await?);
    Ok(violations)
}

/// What must hold in any database of ours, and that Postgres has counted no deadlock.
pub(in super::super) async fn invariants(pool: &PgPool) -> Result<Vec<String>> {
    let mut violations: Vec<String> = sqlx::query_scalar(INVARIANTS).fetch_all(pool).await?;
    let deadlocks: i64 = sqlx::query_scalar(
        "select deadlocks from pg_stat_database where datname = current_database()",
    )
    .fetch_one(pool)
    .await?;
    if deadlocks > 0 {
        violations.push(format!("{deadlocks} deadlocks"));
    }
    Ok(violations)
}

/// Stores each execution with its begin, and with its end if it reached that.
async fn store(pool: &PgPool, lines: &[Line]) -> Result<()> {
    let begins: Vec<&Line> = lines
        .iter()
        .filter(|line| line.moment == Moment::Begin)
        .collect();
    let ends: HashMap<(i64, i64, i64), i64> = lines
        .iter()
        .filter(|line| line.moment == Moment::End)
        .map(|line| ((line.job, line.token, line.pid), line.at))
        .collect();
    let column = |of: fn(&Line) -> i64| begins.iter().map(|line| of(line)).collect::<Vec<i64>>();
    let returned: Vec<Option<i64>> = begins
        .iter()
        .map(|line| ends.get(&(line.job, line.token, line.pid)).copied())
        .collect();
    sqlx::raw_sql(
        "create table executed (job bigint not null, token bigint not null, attempt int not null,
                                pid bigint not null, at timestamptz not null,
                                returned_at timestamptz)",
    )
    .execute(pool)
    .await?;
    sqlx::query(
        "insert into executed
         select job, token, attempt, pid, 'epoch'::timestamptz + at * interval '1 microsecond',
                'epoch'::timestamptz + returned * interval '1 microsecond'
         from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
            as line (job, token, attempt, pid, at, returned)",
    )
    .bind(column(|line| line.job))
    .bind(column(|line| line.token))
    .bind(column(|line| line.attempt))
    .bind(column(|line| line.pid))
    .bind(column(|line| line.at))
    .bind(returned)
    .execute(pool)
    .await?;
    // The invariants look for the jobs of each batch.
    sqlx::raw_sql(
        "create index on executed (job);
         create index on pipeline.jobs (batch) where batch is not null;
         analyze",
    )
    .execute(pool)
    .await?;
    Ok(())
}

#[derive(sqlx::FromRow)]
pub(in super::super) struct Tally {
    runs: i64,
    executed: i64,
    pub(in super::super) lost: i64,
    failed: i64,
    /// Lost between their claim and their first line.
    unheard: i64,
}

impl Tally {
    pub(in super::super) async fn of(pool: &PgPool) -> Result<Self> {
        Ok(sqlx::query_as(
            "select (select count(*) from pipeline.runs) as runs,
                    (select count(*) from executed) as executed,
                    count(*) filter (where a.error_class = 'WorkerDied') as lost,
                    count(*) filter (where a.error_class is distinct from 'WorkerDied') as failed,
                    count(*) filter (where not exists (
                        select from executed e where e.job = a.job and e.token = a.token)) as unheard
             from pipeline.attempts a",
        )
        .fetch_one(pool)
        .await?)
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            runs,
            executed,
            lost,
            failed,
            unheard,
        } = self;
        write!(
            f,
            "{runs} runs, {executed} executions; {failed} attempts failed, {lost} were lost with their \
             worker, {unheard} of them before their first line"
        )
    }
}
