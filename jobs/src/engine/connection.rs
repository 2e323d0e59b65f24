//! The engine's own connections, with limits. No job can use them up.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection, PgPool};

use super::lifecycle::{Lifecycle, Phase};
use crate::sqlstate::{ErrorClass, error_text};

/// The limits and planner settings of every engine connection. The engine reads rows by key: a plan that was made while
/// a table was empty must not scan the full table later, and planning each call would cost more than the call. Statements of the engine skip locked rows; `lock_timeout` bounds what cannot skip.
const SESSION_SETTINGS: &str = "set statement_timeout to '30s'; set lock_timeout to '1s'; \
                                set idle_in_transaction_session_timeout to '15s'; \
                                set default_transaction_isolation to 'read committed'; \
                                set default_transaction_read_only to off; set jit to off; \
                                set enable_seqscan to off; set plan_cache_mode to force_generic_plan";

/// The time limit of one call: a little longer than `statement_timeout`, so that the server reports a timeout if it can.
const CALL_TIMEOUT: Duration = Duration::from_secs(35);
/// The time limit of opening a connection.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

const FIRST_RECONNECT_DELAY: Duration = Duration::from_millis(50);
/// The maximum delay before a reconnect: short enough that a lease of a few seconds can be renewed in time.
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// The connection of one task, which is replaced after a failure.
#[derive(Debug)]
pub(crate) struct EngineConnection {
    /// The purpose of the connection, for log lines.
    purpose: &'static str,
    pool: PgPool,
    /// The open connection, and the name of its session, by which another connection can find its backend.
    current: Option<(PgConnection, String)>,
    delay: Duration,
    is_unreachable: bool,
}

impl EngineConnection {
    /// Creates a connection to the database of this pool; it is opened when it is first used.
    pub(crate) fn new(purpose: &'static str, pool: &PgPool) -> Self {
        Self {
            purpose,
            pool: pool.clone(),
            current: None,
            delay: FIRST_RECONNECT_DELAY,
            is_unreachable: false,
        }
    }

    /// Returns the connection, and opens one if there is none.
    pub(crate) async fn get(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        if self.current.is_none() {
            let opened = open(&self.pool, self.purpose);
            let opened = tokio::time::timeout(CONNECT_TIMEOUT, opened).await;
            self.current = Some(opened.unwrap_or_else(|_| Err(timed_out(CONNECT_TIMEOUT)))?);
        }
        match &mut self.current {
            Some((connection, _)) => Ok(connection),
            None => Err(sqlx::Error::PoolClosed),
        }
    }

    /// Returns whether the next [`get`](Self::get) opens a new connection.
    pub(crate) fn is_new(&self) -> bool {
        self.current.is_none()
    }

    /// Returns the session name of the open connection.
    pub(crate) fn session(&self) -> Option<String> {
        self.current.as_ref().map(|(_, session)| session.clone())
    }

    /// Notes that a call succeeded.
    pub(crate) fn succeeded(&mut self) {
        self.delay = FIRST_RECONNECT_DELAY;
        if std::mem::take(&mut self.is_unreachable) {
            tracing::info!(connection = self.purpose, "database connection restored");
        }
    }

    /// Notes that a call failed, and drops the connection, whose state is unknown. A connection that could not be
    /// opened is an outage, whatever the reason.
    pub(crate) fn failed(&mut self, error: &sqlx::Error) {
        let was_open = self.current.take().is_some();
        let is_unreachable = ErrorClass::is_unreachable(error);
        let error = error_text(error);
        if was_open && !is_unreachable {
            tracing::warn!(
                connection = self.purpose,
                error,
                "database call failed; retrying"
            );
            return;
        }
        if !std::mem::replace(&mut self.is_unreachable, true) {
            tracing::warn!(
                connection = self.purpose,
                error,
                "database unreachable; retrying until it is back"
            );
        } else {
            tracing::debug!(
                connection = self.purpose,
                error,
                "database still unreachable"
            );
        }
    }

    /// Waits before the next attempt, longer each time. The wait is short once the worker has reached `phase`.
    pub(crate) async fn back_off(&mut self, lifecycle: &Lifecycle, phase: Phase) {
        tokio::time::sleep(FIRST_RECONNECT_DELAY.min(self.delay)).await;
        let rest = self.delay - FIRST_RECONNECT_DELAY;
        let _ = tokio::time::timeout(rest, lifecycle.reached(phase)).await;
        self.delay = (self.delay * 2).min(MAX_RECONNECT_DELAY);
    }

    /// Drops the connection without closing its session.
    pub(crate) fn discard(&mut self) {
        self.current = None;
    }

    /// Closes the connection and its session.
    pub(crate) async fn close(&mut self) {
        if let Some((connection, _)) = self.current.take() {
            let _ = tokio::time::timeout(Duration::from_secs(1), connection.close()).await;
        }
    }
}

/// Returns the current connect options of the application's pool: credentials may have been rotated since the last
/// connection.
pub(crate) fn connect_options(pool: &PgPool, session: &str) -> PgConnectOptions {
    PgConnectOptions::clone(&pool.connect_options()).application_name(session)
}

/// Returns a unique session name: `pipeline commit 1f6c02d9a4e83b57`.
pub(crate) fn session_name(purpose: &str) -> String {
    format!("pipeline {purpose} {:016x}", fastrand::u64(..))
}

async fn open(pool: &PgPool, purpose: &'static str) -> Result<(PgConnection, String), sqlx::Error> {
    let session = session_name(purpose);
    let mut connection = PgConnection::connect_with(&connect_options(pool, &session)).await?;
    sqlx::raw_sql(SESSION_SETTINGS)
        .execute(&mut connection)
        .await?;
    Ok((connection, session))
}

/// Limits the time of a call, also if the network loses the answer.
pub(crate) async fn limited<T>(
    call: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    tokio::time::timeout(CALL_TIMEOUT, call)
        .await
        .unwrap_or_else(|_| Err(timed_out(CALL_TIMEOUT)))
}

/// Returns the error of a call that was not answered in time.
pub(crate) fn timed_out(limit: Duration) -> sqlx::Error {
    let text = format!("no answer within {limit:?}");
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, text))
}
