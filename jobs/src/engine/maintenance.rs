//! Runs maintenance tasks: each in its own tokio task, on its own connection.

use std::sync::Arc;
use std::time::Instant;

use super::announce;
use super::config::Config;
use super::connection::{EngineConnection, limited};
use super::hooks::{MaintenanceCalls, MaintenanceTask};
use super::lifecycle::{Lifecycle, Phase};
use super::outbox::Outbox;
use super::slots::Slots;
use crate::attempt::Ledger;
use crate::limits;

/// The parts of the engine that the effects of a maintenance task act on.
#[derive(Debug, Clone)]
pub(crate) struct Maintenance {
    pub(crate) config: Arc<Config>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) slots: Arc<Slots>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) calls: Arc<MaintenanceCalls>,
    pub(crate) lifecycle: Arc<Lifecycle>,
}

impl Maintenance {
    /// Runs one task at its interval, and when it is notified, until the worker is stopped.
    pub(crate) async fn run(self, task: Arc<dyn MaintenanceTask>) {
        let mut connection = EngineConnection::new(task.name(), &self.config.pool);
        loop {
            // Jitter keeps the workers of a fleet from running the task at the same moment.
            let wait = task
                .every()
                .min(limits::MAX_DURATION)
                .mul_f64(0.9 + 0.2 * fastrand::f64());
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.calls.called(task.channel()) => {}
                () = self.lifecycle.reached(Phase::Draining) => break,
            }
            let begun = Instant::now();
            let outcome = limited(async {
                let connection = connection.get().await?;
                task.run(connection, self.config.worker()).await
            });
            match outcome.await {
                Ok(effects) => {
                    connection.succeeded();
                    announce(&self.slots, &self.outbox, effects.queues.into_iter(), begun);
                    self.outbox.push(effects.notifications);
                    self.ledger.ask_to_stop(&effects.stop);
                }
                Err(error) => {
                    tracing::debug!(
                        ?task,
                        "maintenance task failed; it runs again after its interval"
                    );
                    connection.failed(&error);
                }
            }
        }
        connection.close().await;
    }
}
