//! The engine's own connections: a few, with limits, which no job can use up.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgConnection, PgPool, Postgres};
use tokio_util::sync::CancellationToken;

/// Tasks with a connection each: turns, ticks, renewals, notifications, chores.
const CONNECTIONS: u32 = 7;
/// No statement of the engine's takes this long unless something is wrong. It looks things up by key: a
/// plan that was made while a table was empty must not go through all of it for ever, and one for each
/// call would cost more than the call.
const SETTINGS: &str = "set statement_timeout to '30s'; set lock_timeout to '10s'; \
                         set idle_in_transaction_session_timeout to '60s'; \
                         set default_transaction_isolation to 'read committed'; set jit to off; \
                         set enable_seqscan to off; set plan_cache_mode to force_generic_plan";

/// A little longer, so that the server is the one to say so if it can.
const CALL: Duration = Duration::from_secs(35);

/// A pool of the engine's own to the database behind another one.
pub(crate) fn own_pool(options: &PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(Duration::from_secs(5))
        .test_before_acquire(false)
        .after_connect(|connection, _| {
            Box::pin(async move {
                sqlx::raw_sql(SETTINGS).execute(connection).await?;
                Ok(())
            })
        })
        .connect_lazy_with(options.clone().application_name("pipeline"))
}

/// One task's connection: kept while it is good, replaced when it is not.
#[derive(Debug)]
pub(crate) struct Link {
    pool: PgPool,
    held: Option<PoolConnection<Postgres>>,
    wait: Duration,
}

const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Not so long that a lease of a few seconds is lost to our own patience.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

impl Link {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self {
            pool,
            held: None,
            wait: FIRST_WAIT,
        }
    }

    /// The connection, if the database can be reached now.
    pub(crate) async fn try_get(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        if self.held.is_none() {
            self.held = Some(self.pool.acquire().await?);
        }
        match &mut self.held {
            Some(connection) => Ok(connection),
            None => Err(sqlx::Error::PoolClosed),
        }
    }

    /// Whether the next [`try_get`](Self::try_get) has to connect anew.
    pub(crate) fn is_new(&self) -> bool {
        self.held.is_none()
    }

    /// It worked: the next trouble is a new one.
    pub(crate) fn good(&mut self) {
        self.wait = FIRST_WAIT;
    }

    /// It did not: forgets the connection, and waits longer each time; not so long once told to
    /// stop.
    pub(crate) async fn bad(&mut self, stop: &CancellationToken) {
        self.forget();
        tokio::time::sleep(FIRST_WAIT.min(self.wait)).await;
        let _ = tokio::time::timeout(self.wait - FIRST_WAIT, stop.cancelled()).await;
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }

    pub(crate) fn forget(&mut self) {
        if let Some(mut connection) = self.held.take() {
            // It may be in the middle of anything: not for the pool.
            connection.close_on_drop();
        }
    }
}

/// No call of the engine's waits for ever: not even when the network swallows the answer.
pub(crate) async fn limited<T>(
    call: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    tokio::time::timeout(CALL, call)
        .await
        .unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

/// What a failed statement means for what it was to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The data is at fault: without it, the rest goes through.
    Data,
    /// Another transaction was in the way: the same again.
    Conflict,
    /// It took longer than a statement may: less of it, and alone with more time.
    TooLong,
    /// The connection or the server: later.
    Server,
}

impl Trouble {
    /// SQLSTATE classes 22, 23 and 54 and our own raises are the data's; a time-out never is.
    pub(crate) fn of(error: &sqlx::Error) -> Self {
        let Some(code) = error.as_database_error().and_then(|e| e.code()) else {
            return match error {
                sqlx::Error::Encode(_)
                | sqlx::Error::Decode(_)
                | sqlx::Error::ColumnDecode { .. } => Self::Data,
                _ => Self::Server,
            };
        };
        match code.as_ref() {
            "40001" | "40P01" | "55P03" => Self::Conflict,
            "57014" => Self::TooLong,
            "P0001" => Self::Data,
            code if ["22", "23", "54"]
                .iter()
                .any(|class| code.starts_with(class)) =>
            {
                Self::Data
            }
            _ => Self::Server,
        }
    }
}
