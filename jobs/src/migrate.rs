//! Applies the migrations of the schema `pipeline`.
//!
//! sqlx embeds the migration files; this module applies them. sqlx's own migrator takes a lock and creates its table at
//! every call, and needs the right to create a schema even if the schema exists. This migrator reads first, and takes a
//! lock only if a migration is missing. Applied migrations are recorded in `pipeline.migrations`, because the
//! application may use `_sqlx_migrations` for its own.

use std::collections::BTreeMap;

use sqlx::migrate::{Migration, Migrator};
use sqlx::{PgConnection, PgPool};

use crate::{Error, Result};

static MIGRATOR: Migrator = sqlx::migrate!("./migrations");

/// The oldest supported major version of Postgres.
pub const MINIMUM_SERVER: i32 = 14;

/// The key of the advisory lock that is held while a migration is applied: "pipeline" in ASCII.
const ADVISORY_LOCK: i64 = 0x7069_7065_6c69_6e65;

/// Returns the number, the name and the checksum of each embedded migration, the oldest first.
pub fn migrations() -> impl Iterator<Item = (i64, &'static str, &'static [u8])> {
    MIGRATOR
        .iter()
        .map(|m| (m.version, m.description.as_ref(), m.checksum.as_ref()))
}

/// Applies the missing migrations to the pool's database.
///
/// Call this function at the start of every process. Without a missing migration, it makes two reads and takes no lock.
/// Any number of processes may call it at the same time. Each migration is applied in its own transaction.
///
/// # Errors
///
/// All before the first write: [`Error::ServerTooOld`], [`Error::DatabaseNewer`],
/// [`Error::MigrationChanged`], [`Error::MayNotMigrate`].
pub async fn migrate(pool: &PgPool) -> Result<()> {
    let mut connection = pool.acquire().await?;
    let info = look(&mut connection).await?;
    require_server(info.server_version, &info.server_name)?;
    let applied = if info.table_exists {
        applied(&mut connection).await?
    } else {
        BTreeMap::new()
    };
    let missing = missing(&applied, &info.database)?;
    if missing.is_empty() {
        return Ok(());
    }
    require_rights(&info)?;
    for migration in missing {
        apply(&mut connection, migration).await?;
    }
    Ok(())
}

/// Returns [`Error::NotMigrated`] if a migration of this program has not been applied. Migrations of newer versions do no
/// harm: functions are versioned.
pub(crate) async fn missing_migration(
    connection: &mut PgConnection,
) -> Result<Option<Error>, sqlx::Error> {
    let info = look(connection).await?;
    let not_migrated = |missing| Ok(Some(Error::NotMigrated { missing }));
    if !info.table_exists {
        return not_migrated(format!(
            "database `{}` has no table `pipeline.migrations`",
            info.database
        ));
    }
    let applied = match applied(connection).await {
        // The worker's role may lack the right to read the table of migrations.
        Err(sqlx::Error::Database(_)) => return Ok(None),
        applied => applied?,
    };
    match MIGRATOR.iter().find(|m| !applied.contains_key(&m.version)) {
        None => Ok(None),
        Some(migration) => not_migrated(format!(
            "migration {} ({}) has not been applied to database `{}`",
            migration.version, migration.description, info.database
        )),
    }
}

/// The facts about a database that migrating depends on, read without a lock.
struct DatabaseInfo {
    server_version: i32,
    server_name: String,
    role: String,
    database: String,
    schema_exists: bool,
    table_exists: bool,
    may_create_schema: bool,
    may_create_in_schema: bool,
}

async fn look(connection: &mut PgConnection) -> Result<DatabaseInfo, sqlx::Error> {
    sqlx::query_file_as!(DatabaseInfo, "src/sql/migrate_look.sql")
        .fetch_one(connection)
        .await
}

fn require_server(version: i32, name: &str) -> Result<()> {
    if version / 10_000 < MINIMUM_SERVER {
        return Err(Error::ServerTooOld {
            found: name.to_owned(),
            required: MINIMUM_SERVER,
        });
    }
    Ok(())
}

async fn applied(connection: &mut PgConnection) -> Result<BTreeMap<i64, Vec<u8>>, sqlx::Error> {
    let rows = sqlx::query!("select version, checksum from pipeline.migrations")
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|r| (r.version, r.checksum)).collect())
}

/// Returns the migrations that have not been applied, or the reason why this program must not migrate the database.
fn missing(applied: &BTreeMap<i64, Vec<u8>>, database: &str) -> Result<Vec<&'static Migration>> {
    let known: BTreeMap<i64, &'static Migration> =
        MIGRATOR.iter().map(|m| (m.version, m)).collect();
    for (version, checksum) in applied {
        match known.get(version) {
            None => {
                return Err(Error::DatabaseNewer {
                    database: database.to_owned(),
                    applied: *version,
                    known: known.keys().last().copied().unwrap_or(0),
                });
            }
            Some(migration) if migration.checksum.as_ref() != checksum.as_slice() => {
                return Err(Error::MigrationChanged {
                    database: database.to_owned(),
                    version: *version,
                    description: migration.description.to_string(),
                });
            }
            Some(_) => {}
        }
    }
    Ok(known
        .into_iter()
        .filter(|(version, _)| !applied.contains_key(version))
        .map(|(_, migration)| migration)
        .collect())
}

fn require_rights(info: &DatabaseInfo) -> Result<()> {
    let refusal = |what, grant| Error::MayNotMigrate {
        role: info.role.clone(),
        database: info.database.clone(),
        what,
        grant,
    };
    if !info.schema_exists && !info.may_create_schema {
        return Err(refusal(
            "the schema `pipeline`",
            format!(
                "grant create on database {} to {}",
                quoted(&info.database),
                quoted(&info.role)
            ),
        ));
    }
    if info.schema_exists && !info.may_create_in_schema {
        return Err(refusal(
            "tables in the schema `pipeline`",
            format!(
                "grant usage, create on schema pipeline to {}",
                quoted(&info.role)
            ),
        ));
    }
    Ok(())
}

fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

/// Applies one migration, unless another process has applied it while this one waited for the lock.
async fn apply(connection: &mut PgConnection, migration: &Migration) -> Result<()> {
    use sqlx::Connection as _;

    let mut tx = connection.begin().await?;
    // Set the isolation level first: under a stricter default, this transaction would not see what another process
    // committed during the wait for the lock.
    sqlx::raw_sql(include_str!("sql/migrate_begin.sql"))
        .execute(&mut *tx)
        .await?;
    sqlx::query!("select pg_advisory_xact_lock($1)", ADVISORY_LOCK)
        .execute(&mut *tx)
        .await?;
    let info = look(&mut tx).await?;
    if !info.schema_exists {
        sqlx::raw_sql("create schema pipeline")
            .execute(&mut *tx)
            .await?;
    }
    if !info.table_exists {
        sqlx::raw_sql(include_str!("sql/migrate_table.sql"))
            .execute(&mut *tx)
            .await?;
    }
    if !applied(&mut tx).await?.contains_key(&migration.version) {
        tracing::info!(version = migration.version, name = %migration.description, "applying migration");
        sqlx::raw_sql(migration.sql.clone())
            .execute(&mut *tx)
            .await?;
        sqlx::query!(
            "insert into pipeline.migrations (version, description, checksum) values ($1, $2, $3)",
            migration.version,
            migration.description.as_ref(),
            migration.checksum.as_ref(),
        )
        .execute(&mut *tx)
        .await?;
    }
    tx.commit().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_before_14_is_refused_by_name() {
        assert!(require_server(140_000, "14.0").is_ok());
        let refusal = require_server(130_011, "13.11 (Debian)").map_err(|e| e.to_string());
        let Err(message) = refusal else {
            unreachable!("13 was accepted")
        };
        assert!(message.contains("Postgres 13.11 (Debian)"), "{message}");
        assert!(message.contains("14 or later"), "{message}");
    }

    /// A migration that cannot run in a transaction could be left half done.
    #[test]
    fn every_migration_runs_in_a_transaction_and_forward_only() {
        assert!(MIGRATOR.iter().count() > 0);
        for migration in MIGRATOR.iter() {
            assert!(!migration.no_tx, "{}", migration.description);
            assert!(!migration.migration_type.is_down_migration());
        }
    }
}
