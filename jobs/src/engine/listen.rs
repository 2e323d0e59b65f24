//! Listens for notifications of new work. What it misses, the tick finds.

use std::sync::Arc;

use sqlx::PgPool;
use sqlx::postgres::{PgListener, PgPoolOptions};

use super::connection::{EngineConnection, connect_options, session_name};
use super::hooks::MaintenanceCalls;
use super::lifecycle::{Lifecycle, Phase};
use super::schedule::Schedule;
use super::slots::Slots;
use crate::channels;

/// What the listener uses.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) pool: PgPool,
    pub(crate) slots: Arc<Slots>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) calls: Arc<MaintenanceCalls>,
    pub(crate) lifecycle: Arc<Lifecycle>,
}

impl Listener {
    /// Listens until the worker is stopped.
    pub(crate) async fn run(self) {
        // Only for its backoff and its log lines: PgListener has a connection of its own.
        let mut backoff = EngineConnection::new("notifications", &self.pool);
        while !self.lifecycle.has_reached(Phase::Draining) {
            let outcome = tokio::select! {
                outcome = self.listen(&mut backoff) => outcome,
                () = self.lifecycle.reached(Phase::Draining) => return,
            };
            if let Err(error) = outcome {
                backoff.failed(&error);
            }
            backoff.back_off(&self.lifecycle, Phase::Draining).await;
        }
    }

    /// Listens until the connection is lost.
    async fn listen(&self, backoff: &mut EngineConnection) -> Result<(), sqlx::Error> {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .connect_lazy_with(connect_options(&self.pool, &session_name("notifications")));
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        listener.listen(channels::JOBS).await?;
        for channel in self.calls.channels() {
            listener.listen(channel).await?;
        }
        backoff.succeeded();
        // What came while nobody listened is asked for.
        self.slots.wake_all();
        self.schedule.tick_now();
        self.calls.call_all();
        while let Some(notification) = listener.try_recv().await? {
            if self.calls.call(notification.channel()) {
                continue;
            }
            match notification.payload() {
                "*" => {
                    self.slots.wake_all();
                    self.schedule.tick_now();
                }
                queue => self.slots.wake(queue),
            }
        }
        Ok(())
    }
}
