//! The server and the template database that the tests of one process share.

use std::sync::Arc;

use local_postgres::{Claim, Server};
use pipeline::testing::Clock;
use sha2::{Digest as _, Sha256};
use sqlx::postgres::PgPoolOptions;
use tokio::sync::{OnceCell, Semaphore};

/// The number of connections in the pool of one test.
pub(crate) const CONNECTIONS: u32 = 8;

/// The number of the server's connections that are left to the server, to the harness and to other processes.
const RESERVED: usize = 40;

pub(crate) struct Shared {
    pub(crate) claim: Claim,
    pub(crate) template: String,
    /// Admits as many tests at once as the server has connections for.
    pub(crate) room: Semaphore,
}

static SHARED: OnceCell<Shared> = OnceCell::const_new();

pub(crate) async fn shared() -> &'static Shared {
    SHARED
        .get_or_init(|| async {
            match prepare().await {
                Ok(shared) => shared,
                Err(error) => panic!("the tests have no database: {error}"),
            }
        })
        .await
}

/// Constraints that only test databases have.
const CHECKS: &str = include_str!("checks.sql");

/// Returns the server that the tests run on.
pub async fn server() -> &'static Server {
    shared().await.claim.server()
}

/// Returns the name of the migrated database that every test copies.
pub async fn template() -> &'static str {
    &shared().await.template
}

async fn prepare() -> Result<Shared, Box<dyn std::error::Error>> {
    let server = Arc::new(tokio::task::spawn_blocking(Server::find).await??);
    let template = template_name();
    server
        .template::<Box<dyn std::error::Error>>(&template, async |options| {
            let pool = PgPoolOptions::new()
                .max_connections(1)
                .connect_with(options)
                .await?;
            jobs::migrate(&pool).await?;
            sqlx::raw_sql(CHECKS).execute(&pool).await?;
            Clock::install(pool.clone()).await?;
            pool.close().await;
            Ok(())
        })
        .await?;
    let mut admin = server.admin().await?;
    let limit: i32 = sqlx::query_scalar("select current_setting('max_connections')::int")
        .fetch_one(&mut admin)
        .await?;
    let free = usize::try_from(limit)?.saturating_sub(RESERVED);
    Ok(Shared {
        claim: Claim::new(server, "pipeline_test").await?,
        template,
        room: Semaphore::new((free / CONNECTIONS as usize).max(1)),
    })
}

/// Returns a name that changes with the migrations, the checks and the clock, so that no old template is used.
fn template_name() -> String {
    let mut hash = Sha256::new();
    for (version, _, checksum) in jobs::migrations() {
        hash.update(version.to_be_bytes());
        hash.update(checksum);
    }
    hash.update(CHECKS);
    hash.update(Clock::SQL);
    let digest: String = hash
        .finalize()
        .iter()
        .take(8)
        .map(|b| format!("{b:02x}"))
        .collect();
    format!("pipeline_test_template_{digest}")
}
