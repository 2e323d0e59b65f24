//! Compares what steps and callbacks have written down with what the database says of them.

use sqlx::PgPool;

use crate::frame::Result;

const RECORD: &str = include_str!("record.sql");
/// What must hold in any database of ours: the tests ask the same.
const INVARIANTS: &str = concat!(
    "select problem || ': ' || subject from (",
    include_str!("../../../../tests/src/invariants.sql"),
    ") as found"
);

/// Everything that is wrong, whatever the runs were.
pub(super) async fn check(pool: &PgPool) -> Result<Vec<String>> {
    let mut violations = Vec::new();
    for query in [RECORD, INVARIANTS] {
        violations.extend(
            sqlx::query_scalar::<_, String>(query)
                .fetch_all(pool)
                .await?,
        );
    }
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

#[derive(sqlx::FromRow)]
pub(super) struct Tally {
    runs: i64,
    executed: i64,
    pub(super) lost: i64,
    failed: i64,
    /// Lost between their claim and their first line.
    unheard: i64,
}

impl Tally {
    pub(super) async fn of(pool: &PgPool) -> Result<Self> {
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
