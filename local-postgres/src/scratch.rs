//! Scratch databases: created from a template, dropped after use, and swept up if their process was killed.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection as _};

use crate::server::{code, quoted};
use crate::{Result, Server};

/// The first number of our advisory locks ("scra" in ASCII); the second is a claim's key.
const CLASS: i32 = 0x7363_7261;

/// A process's right to databases named `<prefix>_<key>_<number>..`.
///
/// The claim is an advisory lock on the key, held by a connection of its own for as long as the
/// process lives. Databases whose key nobody holds are left over from a killed process: the next
/// claim of that prefix drops them.
#[derive(Debug)]
pub struct Claim {
    server: Arc<Server>,
    prefix: &'static str,
    key: i32,
    made: AtomicU32,
    /// Dropping the sender ends the thread that holds the lock.
    holder: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

/// One database of a claim.
#[derive(Debug, Clone)]
pub struct Scratch {
    /// The name of the database.
    pub name: String,
    /// The options to connect to the database.
    pub options: PgConnectOptions,
}

impl Claim {
    /// Claims a key, and drops the databases that killed processes with this prefix have left.
    pub async fn new(server: Arc<Server>, prefix: &'static str) -> Result<Self> {
        let mut admin = server.admin().await?;
        sweep(&mut admin, prefix).await?;
        admin.close().await?;
        let (key, holder) = hold_a_key(Arc::clone(&server)).await?;
        Ok(Self {
            server,
            prefix,
            key,
            made: AtomicU32::new(0),
            holder: Some(holder),
        })
    }

    /// Returns the server of the databases.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Creates a database as a copy of the template. The label is only for readers.
    pub async fn create(&self, label: &str, template: &str) -> Result<Scratch> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let name = self.name(number, label);
        let mut admin = self.server.admin().await?;
        run(
            &mut admin,
            format!(
                "create database {} template {}",
                quoted(&name),
                quoted(template)
            ),
        )
        .await?;
        admin.close().await?;
        Ok(Scratch {
            options: self.server.options(&name),
            name,
        })
    }

    /// Drops a database, also while sessions are connected to it.
    pub async fn remove(&self, scratch: &Scratch) -> Result<()> {
        let mut admin = self.server.admin().await?;
        drop_database(&mut admin, &scratch.name).await?;
        Ok(admin.close().await?)
    }

    /// Renames a database so that no sweep drops it, and returns its new name.
    pub async fn keep(&self, scratch: &Scratch) -> Result<String> {
        let kept = scratch
            .name
            .replacen(self.prefix, &format!("{}_kept", self.prefix), 1);
        let kept = kept.chars().take(63).collect::<String>();
        let mut admin = self.server.admin().await?;
        sqlx::query("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1")
            .bind(&scratch.name)
            .execute(&mut admin)
            .await?;
        run(
            &mut admin,
            format!(
                "alter database {} rename to {}",
                quoted(&scratch.name),
                quoted(&kept)
            ),
        )
        .await?;
        admin.close().await?;
        Ok(kept)
    }

    /// Returns `<prefix>_<key>_<number>_<label>`, within the 63 bytes of a name in Postgres.
    fn name(&self, number: u32, label: &str) -> String {
        let label: String = label
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_lowercase()
                } else {
                    '_'
                }
            })
            .collect();
        let mut name = format!("{}_{:08x}_{number}_{label}", self.prefix, self.key);
        name.truncate(63);
        name.trim_end_matches('_').to_owned()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((release, thread)) = self.holder.take() {
            drop(release);
            let _ = thread.join();
        }
    }
}

impl Server {
    /// Creates a template database of this name if it is missing; `build` fills it, and leaves no connection to
    /// it. Many processes may call this at once, and an incomplete template is never used.
    pub async fn template<E: From<crate::Error>>(
        &self,
        name: &str,
        build: impl AsyncFnOnce(PgConnectOptions) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut admin = self.admin().await?;
        if exists(&mut admin, name).await? {
            admin.close().await.map_err(crate::Error::from)?;
            return Ok(());
        }
        lock(&mut admin, 0).await?;
        if !exists(&mut admin, name).await? {
            let building = format!("{name}_building");
            drop_database(&mut admin, &building).await?;
            run(&mut admin, format!("create database {}", quoted(&building))).await?;
            build(self.options(&building)).await?;
            run(
                &mut admin,
                format!(
                    "alter database {} rename to {}",
                    quoted(&building),
                    quoted(name)
                ),
            )
            .await?;
            // Postgres copies a template only while no session is connected to it.
            run(
                &mut admin,
                format!("alter database {} allow_connections false", quoted(name)),
            )
            .await?;
        }
        // The lock goes with the connection.
        admin.close().await.map_err(crate::Error::from)?;
        Ok(())
    }
}

/// Takes a free key on a connection in a thread of its own: the claim outlives the runtime of a test.
async fn hold_a_key(server: Arc<Server>) -> Result<(i32, (mpsc::Sender<()>, JoinHandle<()>))> {
    let (told, answer) = tokio::sync::oneshot::channel();
    let (release, released) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = match tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
        {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = told.send(Err(sqlx::Error::Io(error).into()));
                return;
            }
        };
        let held = runtime.block_on(async {
            let mut admin = server.admin().await?;
            loop {
                let key = RandomState::new().hash_one(std::process::id()) as i32;
                if try_lock(&mut admin, key).await? {
                    return Ok::<_, crate::Error>((key, admin));
                }
            }
        });
        match held {
            Ok((key, admin)) => {
                let _ = told.send(Ok(key));
                // Waits until the claim is dropped; the connection is idle meanwhile.
                let _ = released.recv();
                let _ = runtime.block_on(admin.close());
            }
            Err(error) => {
                let _ = told.send(Err(error));
            }
        }
    });
    let key = answer
        .await
        .unwrap_or_else(|_| Err(sqlx::Error::WorkerCrashed.into()))?;
    Ok((key, (release, thread)))
}

async fn sweep(admin: &mut PgConnection, prefix: &str) -> Result<()> {
    let names: Vec<String> =
        sqlx::query_scalar("select datname::text from pg_database where starts_with(datname, $1)")
            .bind(format!("{prefix}_"))
            .fetch_all(&mut *admin)
            .await?;
    for name in names {
        let Some(key) = key_of(&name, prefix) else {
            continue;
        };
        if try_lock(admin, key).await? {
            let dropped = drop_database(admin, &name).await;
            sqlx::query("select pg_advisory_unlock($1, $2)")
                .bind(CLASS)
                .bind(key)
                .execute(&mut *admin)
                .await?;
            match dropped {
                // 42501: the database belongs to another role of a shared server.
                Err(crate::Error::Database(error)) if code(&error).as_deref() == Some("42501") => {}
                other => other?,
            }
        }
    }
    Ok(())
}

fn key_of(name: &str, prefix: &str) -> Option<i32> {
    let hex = name
        .strip_prefix(prefix)?
        .strip_prefix('_')?
        .split('_')
        .next()?;
    (hex.len() == 8).then_some(())?;
    Some(u32::from_str_radix(hex, 16).ok()?.cast_signed())
}

async fn exists(admin: &mut PgConnection, name: &str) -> Result<bool> {
    Ok(
        sqlx::query_scalar("select exists (select from pg_database where datname = $1)")
            .bind(name)
            .fetch_one(admin)
            .await?,
    )
}

async fn lock(admin: &mut PgConnection, key: i32) -> Result<()> {
    sqlx::query("select pg_advisory_lock($1, $2)")
        .bind(CLASS)
        .bind(key)
        .execute(admin)
        .await?;
    Ok(())
}

async fn try_lock(admin: &mut PgConnection, key: i32) -> Result<bool> {
    Ok(sqlx::query_scalar("select pg_try_advisory_lock($1, $2)")
        .bind(CLASS)
        .bind(key)
        .fetch_one(admin)
        .await?)
}

async fn drop_database(admin: &mut PgConnection, name: &str) -> Result<()> {
    run(
        admin,
        format!("drop database if exists {} with (force)", quoted(name)),
    )
    .await
}

/// Runs a statement on a whole database. Such statements take no parameters: the names in them are made here, and
/// quoted.
async fn run(admin: &mut PgConnection, statement: String) -> Result<()> {
    sqlx::query(AssertSqlSafe(statement)).execute(admin).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_a_key_are_swept() {
        assert_eq!(
            key_of("pipeline_test_0000002a_7_x", "pipeline_test"),
            Some(42)
        );
        assert_eq!(
            key_of("pipeline_test_ffffffff_0", "pipeline_test"),
            Some(-1)
        );
        assert_eq!(
            key_of("pipeline_test_kept_0000002a_7", "pipeline_test"),
            None
        );
        assert_eq!(key_of("pipeline_test_template_12", "pipeline_test"), None);
        assert_eq!(key_of("other_0000002a_7", "pipeline_test"), None);
    }
}
