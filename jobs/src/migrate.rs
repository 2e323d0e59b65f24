//! Brings the schema `pipeline` up to date.
//!
//! sqlx embeds the files, but does not run them: its migrator locks and creates its table each time
//! it is called, and needs the right to create a schema even where the schema is there. Ours reads
//! first, and asks for a lock only when something is missing. The table is our own too: the
//! application has its own `_sqlx_migrations`.

use std::collections::BTreeMap;

use sqlx::migrate::{Migration, Migrator};
use sqlx::{PgConnection, PgPool};

use crate::{Error, Result};

static MIGRATOR: Migrator = sqlx::migrate!("./migrations");

/// The oldest major version of Postgres that will do.
pub const MINIMUM_SERVER: i32 = 14;

/// Whoever migrates holds this advisory lock for the length of one migration ("pipeline" in ASCII).
const LOCK: i64 = 0x7069_7065_6c69_6e65;

/// The migrations this program carries, oldest first: number, name and checksum of each.
pub fn migrations() -> impl Iterator<Item = (i64, &'static str, &'static [u8])> {
    MIGRATOR
        .iter()
        .map(|m| (m.version, m.description.as_ref(), m.checksum.as_ref()))
}

/// Brings the schema `pipeline` of the pool's database up to date.
///
/// Call it at the start of every process: where nothing is missing it is two reads and takes no
/// lock, and where something is, any number of processes may call it at once. Each migration is
/// applied in a transaction of its own.
///
/// # Errors
///
/// Before anything is written: [`Error::ServerTooOld`], [`Error::DatabaseNewer`],
/// [`Error::MigrationChanged`], [`Error::MayNotMigrate`].
pub async fn migrate(pool: &PgPool) -> Result<()> {
    let mut connection = pool.acquire().await?;
    let place = look(&mut connection).await?;
    require_server(place.server_version, &place.server_name)?;
    let applied = if place.table_exists {
        applied(&mut connection).await?
    } else {
        BTreeMap::new()
    };
    let missing = missing(&applied, &place.database)?;
    if missing.is_empty() {
        return Ok(());
    }
    require_rights(&place)?;
    for migration in missing {
        apply(&mut connection, migration).await?;
    }
    Ok(())
}

/// [`Error::NotMigrated`], where this program needs what has not been applied. What a newer version has
/// applied besides is no harm: its functions bear other numbers.
pub(crate) async fn lacking(connection: &mut PgConnection) -> Result<Option<Error>, sqlx::Error> {
    let place = look(connection).await?;
    let lacks = |missing| Ok(Some(Error::NotMigrated { missing }));
    if !place.table_exists {
        return lacks(format!(
            "database `{}` has no table `pipeline.migrations`",
            place.database
        ));
    }
    let applied = match applied(connection).await {
        // Who may run jobs may have no right to look here.
        Err(sqlx::Error::Database(_)) => return Ok(None),
        applied => applied?,
    };
    match MIGRATOR.iter().find(|m| !applied.contains_key(&m.version)) {
        None => Ok(None),
        Some(migration) => lacks(format!(
            "migration {} ({}) has not been applied to database `{}`",
            migration.version, migration.description, place.database
        )),
    }
}

/// What migrating depends on, read without a lock.
struct Place {
    server_version: i32,
    server_name: String,
    role: String,
    database: String,
    schema_exists: bool,
    table_exists: bool,
    may_create_schema: bool,
    may_create_in_schema: bool,
}

async fn look(connection: &mut PgConnection) -> Result<Place, sqlx::Error> {
    sqlx::query_file_as!(Place, "src/sql/migrate_look.sql")
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

/// The migrations still to be applied, or why this program must not touch the database.
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

fn require_rights(place: &Place) -> Result<()> {
    let refusal = |what, grant| Error::MayNotMigrate {
        role: place.role.clone(),
        database: place.database.clone(),
        what,
        grant,
    };
    if !place.schema_exists && !place.may_create_schema {
        return Err(refusal(
            "the schema `pipeline`",
            format!(
                "grant create on database {} to {}",
                quoted(&place.database),
                quoted(&place.role)
            ),
        ));
    }
    if place.schema_exists && !place.may_create_in_schema {
        return Err(refusal(
            "tables in the schema `pipeline`",
            format!(
                "grant usage, create on schema pipeline to {}",
                quoted(&place.role)
            ),
        ));
    }
    Ok(())
}

fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

/// Applies one migration, unless another process has done so while we waited for the lock.
async fn apply(connection: &mut PgConnection, migration: &Migration) -> Result<()> {
    use sqlx::Connection as _;

    let mut tx = connection.begin().await?;
    // The isolation level comes first: under a stricter default, what the winner of the lock
    // committed while we waited would stay invisible.
    sqlx::raw_sql(include_str!("sql/migrate_begin.sql"))
        .execute(&mut *tx)
        .await?;
    sqlx::query!("select pg_advisory_xact_lock($1)", LOCK)
        .execute(&mut *tx)
        .await?;
    let place = look(&mut tx).await?;
    if !place.schema_exists {
        sqlx::raw_sql("create schema pipeline")
            .execute(&mut *tx)
            .await?;
    }
    if !place.table_exists {
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
