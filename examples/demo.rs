//! `bin/demo`: the system at work, with nothing set up.
//!
//! So far it shows the ground: a Postgres of its own, the schema in it, a query through the pool.

use std::process::ExitCode;
use std::sync::Arc;

use local_postgres::{Claim, Server};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> ExitCode {
    match demo().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn demo() -> Result<()> {
    println!("Job pipelines with nothing to operate but Postgres.\n");
    let server = Arc::new(tokio::task::spawn_blocking(Server::find).await??);
    // The database that DATABASE_URL names; on the private server, one that goes with the demo.
    match server.named_database().await? {
        Some(options) => {
            let pool = PgPoolOptions::new().connect_with(options).await?;
            show(&server, &pool).await?;
            pool.close().await;
        }
        None => {
            let claim = Claim::new(Arc::clone(&server), "pipeline_demo").await?;
            let scratch = claim.create("", "template1").await?;
            let pool = PgPoolOptions::new()
                .connect_with(scratch.options.clone())
                .await?;
            let shown = show(&server, &pool).await;
            pool.close().await;
            claim.remove(&scratch).await?;
            shown?;
        }
    }
    Ok(())
}

async fn show(server: &Server, pool: &PgPool) -> Result<()> {
    let (version, database): (String, String) =
        sqlx::query_as("select current_setting('server_version'), current_database()::text")
            .fetch_one(pool)
            .await?;
    match server.cluster() {
        Some(_) => {
            println!("  server     Postgres {version}, private: started for this demo, fsync off")
        }
        None => println!("  server     Postgres {version}, the one in DATABASE_URL"),
    }
    match server.data_folder().await? {
        Some(folder) => println!("  data       {}", folder.display()),
        None => println!("  data       only the server's owner may ask where"),
    }
    if let Some(why) = server.cluster().and_then(|cluster| cluster.elsewhere()) {
        println!("             (not in the checkout: {why})");
    }
    println!("  database   {database}");

    jobs::migrate(pool).await?;
    let (applied, now): (i64, String) = sqlx::query_as(
        "select count(*), to_char(pipeline.now(), 'YYYY-MM-DD HH24:MI:SS TZ') from pipeline.migrations",
    )
    .fetch_one(pool)
    .await?;
    println!("  schema     pipeline, {applied} migration(s) applied");
    println!("  its clock  {now}");
    println!("\nThe ground is there; jobs and pipelines come next (docs/status.md).");
    Ok(())
}
