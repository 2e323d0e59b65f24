//! The settings of a client's connection pool.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgPool};

/// How long a connection may be idle before the pool checks it again.
const MAX_UNCHECKED_IDLE: Duration = Duration::from_secs(1);

/// Returns the options of the pool that [`Client::connect`](crate::Client::connect) creates, for an application that
/// creates the pool itself.
///
/// The options differ from sqlx's defaults in one point. By default a pool sends a round trip to the server whenever a
/// connection is taken from it, to see whether the connection still works. A pool with these options does so only if the
/// connection has been idle for a second, so that a call on a busy pool saves a round trip. After a restart of the server,
/// a connection that was used within the last second may return an error once.
///
/// ```no_run
/// # async fn example(url: &str) -> jobs::Result<()> {
/// let pool = jobs::pool_options().max_connections(20).connect(url).await?;
/// let client = jobs::Client::new(pool);
/// # Ok(())
/// # }
/// ```
pub fn pool_options() -> PgPoolOptions {
    PgPoolOptions::new()
        .test_before_acquire(false)
        .before_acquire(|connection, metadata| {
            Box::pin(async move {
                // The pool replaces a connection that does not answer.
                let is_trusted = metadata.idle_for <= MAX_UNCHECKED_IDLE;
                Ok(is_trusted || connection.ping().await.is_ok())
            })
        })
}

/// Connects a pool to a database. An error of the first connection is returned at once: a pool would try again for
/// 30 seconds, and then report a timeout instead of the reason.
#[doc(hidden)]
pub async fn connect_pool(url: &str) -> Result<PgPool, sqlx::Error> {
    let options: PgConnectOptions = url.parse()?;
    options.connect().await?.close().await?;
    pool_options().connect_with(options).await
}
