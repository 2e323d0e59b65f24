//! What the server counted while a child ran.

use sqlx::PgConnection;

use super::Result;

/// The server's counters for one database, at one moment or between two.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counted {
    pub(crate) transactions: i64,
    /// `None` where the server has no `pg_stat_statements`.
    pub(crate) statements: Option<i64>,
    pub(crate) wal_bytes: i64,
}

impl Counted {
    /// Reads them from outside the database: a look changes nothing. The last session's counts
    /// arrive when it ends, so this waits for that.
    pub(crate) async fn read(admin: &mut PgConnection, database: &str) -> Result<Self> {
        while sqlx::query_scalar::<_, bool>(
            "select exists (select from pg_stat_activity
                            where datname = $1 and backend_type = 'client backend')",
        )
        .bind(database)
        .fetch_one(&mut *admin)
        .await?
        {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let (transactions, wal_bytes) = sqlx::query_as(
            "select xact_commit + xact_rollback, (pg_current_wal_insert_lsn() - '0/0')::bigint
             from pg_stat_database where datname = $1",
        )
        .bind(database)
        .fetch_one(&mut *admin)
        .await?;
        let statements = statements(admin, database).await?;
        Ok(Self {
            transactions,
            statements,
            wal_bytes,
        })
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            transactions: self.transactions + other.transactions,
            statements: self
                .statements
                .zip(other.statements)
                .map(|(one, two)| one + two),
            wal_bytes: self.wal_bytes + other.wal_bytes,
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            transactions: self.transactions - before.transactions,
            statements: self
                .statements
                .zip(before.statements)
                .map(|(now, then)| now - then),
            wal_bytes: self.wal_bytes - before.wal_bytes,
        }
    }
}

/// How many statements have been run in a database; `None` where nobody counts them.
pub(crate) async fn statements(admin: &mut PgConnection, database: &str) -> Result<Option<i64>> {
    let counted: bool = sqlx::query_scalar("select to_regclass('pg_stat_statements') is not null")
        .fetch_one(&mut *admin)
        .await?;
    if !counted {
        return Ok(None);
    }
    Ok(sqlx::query_scalar(
        "select coalesce(sum(calls), 0)::bigint from pg_stat_statements s
         join pg_database d on d.oid = s.dbid where d.datname = $1",
    )
    .bind(database)
    .fetch_one(admin)
    .await?)
}
