//! The ticker: moves due jobs, finds expired leases, writes the worker's heartbeat, and sends notifications.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgConnection;

use super::announce_since;
use super::config::Config;
use super::connection::{EngineConnection, limited, timed_out};
use super::hooks::Hooks;
use super::lifecycle::{Lifecycle, Phase};
use super::marks::{Looked, Swept, place};
use super::outbox::Outbox;
use super::schedule::Schedule;
use super::slots::Slots;
use super::takeover::{MIN_EXPIRED, Takeovers};
use crate::Error;
use crate::attempt::{AttemptEnd, EndKind, JobLabel, Ledger};

/// The delay from which on due jobs are announced to other workers when they become ready: the marks of these
/// workers may already be past the `run_at` of such jobs.
const MAX_DUE_DELAY: TimeDelta = TimeDelta::seconds(5);
/// The minimum pause between two sweeps, as a multiple of the duration of a sweep. It bounds the share of time
/// that sweeps take, however many dead rows a transaction elsewhere keeps alive.
const SWEEP_SHARE: u32 = 20;
/// How long a worker tries to mark its row as stopped at the end of shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The exclusive upper limit of the ids of workers: every program can read such a number from JSON.
const MAX_WORKER_ID: i64 = 1 << 53;

/// The ticker, with the parts of the engine that it uses.
#[derive(Debug)]
pub(crate) struct Ticker {
    pub(crate) config: Arc<Config>,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) slots: Arc<Slots>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) lifecycle: Arc<Lifecycle>,
}

impl Ticker {
    /// Inserts the worker's row, without which the worker claims no jobs. Returns `false` if the worker was
    /// stopped before it was registered.
    pub(crate) async fn register(&self, connection: &mut EngineConnection) -> bool {
        loop {
            let error = match limited(self.try_register(connection)).await {
                Ok(Ok(worker)) => {
                    connection.succeeded();
                    let _ = self.config.id.set(worker);
                    return true;
                }
                Ok(Err(missing)) => {
                    connection.discard();
                    missing
                }
                Err(error) => {
                    connection.failed(&error);
                    Error::from(error)
                }
            };
            // `Worker::run` returns this error. A worker that an apalis monitor runs cannot return it, and
            // continues once the database has been migrated.
            if matches!(error, Error::NotMigrated { .. }) {
                let text = error.to_string();
                if self.lifecycle.fail(error) {
                    tracing::error!(worker = self.config.name, error = text, "worker cannot run");
                }
            }
            connection.back_off(&self.lifecycle, Phase::Draining).await;
            if self.lifecycle.has_reached(Phase::Draining) {
                return false;
            }
        }
    }

    async fn try_register(
        &self,
        connection: &mut EngineConnection,
    ) -> Result<Result<i64, Error>, sqlx::Error> {
        let connection = connection.get().await?;
        if let Some(missing) = crate::migrate::missing_migration(connection).await? {
            return Ok(Err(missing));
        }
        let worker = fastrand::i64(1..MAX_WORKER_ID);
        self.write_row(connection, worker).await?;
        Ok(Ok(worker))
    }

    /// Inserts the row of this worker.
    async fn write_row(
        &self,
        connection: &mut PgConnection,
        worker: i64,
    ) -> Result<(), sqlx::Error> {
        sqlx::query_file!(
            "src/sql/register_worker.sql",
            worker,
            self.config.name,
            self.config.host,
            i32::try_from(std::process::id()).unwrap_or(0),
            self.slots.to_json(),
            &self.config.registry.names(),
            &self.config.registry.versions(),
            self.hooks.claims_owned_jobs(),
        )
        .execute(connection)
        .await?;
        Ok(())
    }

    /// Ticks until the last end is committed.
    pub(crate) async fn run(self, mut connection: EngineConnection) {
        let mut looked = Looked::default();
        let mut takeovers = Takeovers::new(MIN_EXPIRED);
        // When the next sweep is due: at once, then with each poll, or less often if sweeps take long.
        let mut next_sweep = Instant::now();
        // When the next tick is due; `None` means now. Notifications are sent without waiting for it.
        let mut next: Option<Instant> = None;
        while !self.lifecycle.has_reached(Phase::Closing) {
            let state = (&mut looked, &mut takeovers, &mut next_sweep);
            let once = self.once(&mut connection, next, state);
            let outcome = tokio::select! {
                outcome = limited(once) => outcome,
                () = self.closed_for_long() => Err(timed_out(CLOSE_TIMEOUT)),
            };
            match outcome {
                Ok(at) => {
                    connection.succeeded();
                    next = self.wait(at).await;
                }
                Err(error) => {
                    takeovers.no_answer(Instant::now());
                    connection.failed(&error);
                    connection.back_off(&self.lifecycle, Phase::Closing).await;
                    next = None;
                }
            }
        }
        self.close(&mut connection).await;
    }

    /// Sends notifications, and ticks if it is time. Returns when the next tick is due.
    async fn once(
        &self,
        connection: &mut EngineConnection,
        next: Option<Instant>,
        (looked, takeovers, next_sweep): (&mut Looked, &mut Takeovers, &mut Instant),
    ) -> Result<Instant, sqlx::Error> {
        let connection = connection.get().await?;
        self.outbox.send(connection).await?;
        let (poll, now) = (self.config.poll, Instant::now());
        match next {
            Some(at) if now < at => return Ok(at),
            _ if self.lifecycle.has_reached(Phase::Draining) => return Ok(now + poll),
            _ => {}
        }
        let sweeps = self.schedule.take_sweep() || now >= *next_sweep;
        let due = async {
            if sweeps {
                self.sweep(connection, looked).await?;
            }
            self.tick(connection, looked, takeovers).await
        };
        let due = due.await;
        if sweeps {
            let took = now.elapsed();
            *next_sweep = Instant::now() + poll.max(took * SWEEP_SHARE);
            self.slots.marks.sweep_took(took);
        }
        Ok(Instant::now() + due?.map_or(poll, |due| due.min(poll)))
    }

    /// Scans the stretches for ready jobs. The tick after the sweep scans equally far back for due jobs and
    /// expired leases.
    pub(super) async fn sweep(
        &self,
        connection: &mut PgConnection,
        looked: &mut Looked,
    ) -> Result<(), sqlx::Error> {
        let marks = &self.slots.marks;
        looked.look_back(marks.depth());
        let sweep = marks.sweep();
        if sweep.queues.is_empty() {
            return Ok(());
        }
        let rows = sqlx::query_file!(
            "src/sql/sweep.sql",
            &sweep.queues,
            &sweep.ranks,
            &sweep.times,
            &sweep.to_times,
            &sweep.to_ids,
            &sweep.before.queues,
            &sweep.before.to_queues as &[Option<String>],
            &sweep.before.ranks,
            &sweep.before.times,
            &sweep.before.ids,
            &sweep.before.to_ranks,
        )
        .fetch_all(connection)
        .await?;
        let swept: Vec<Swept> = rows
            .into_iter()
            .map(|row| Swept {
                part: row.part,
                place: place(row.queue, row.rank, row.run_at, row.id),
                visited: row.visited,
            })
            .collect();
        for queue in marks.swept(&sweep, &swept) {
            self.slots.wake_queue(&queue);
        }
        Ok(())
    }

    /// Completes [`CLOSE_TIMEOUT`] after the worker has begun to close, if the database does not answer.
    async fn closed_for_long(&self) {
        self.lifecycle.reached(Phase::Closing).await;
        tokio::time::sleep(CLOSE_TIMEOUT).await;
    }

    /// Waits until the next tick is due. A tick is due at the latest after the poll interval, which covers lost
    /// notifications. Returns earlier, with the time of the tick, when there are notifications to send.
    async fn wait(&self, at: Instant) -> Option<Instant> {
        tokio::select! {
            () = self.schedule.due(at) => None,
            () = self.lifecycle.reached(Phase::Closing) => None,
            () = self.outbox.filled() => Some(at),
        }
    }

    /// Ticks once. Returns the time until the next job is due.
    pub(super) async fn tick(
        &self,
        connection: &mut PgConnection,
        looked: &mut Looked,
        takeovers: &mut Takeovers,
    ) -> Result<Option<Duration>, sqlx::Error> {
        let patterns = self.slots.patterns();
        let patterns: Vec<(i32, &str)> = (1..).zip(patterns.iter().map(String::as_str)).collect();
        let marks = &self.slots.marks;
        let ranges = marks.ranges(&patterns).columns;
        let asked = looked.to_ask(marks.time_at(Instant::now()));
        let looks_everywhere = looked.claimed_from.is_none();
        let sent = Instant::now();
        let row = sqlx::query_file!(
            "src/sql/tick.sql",
            self.config.worker(),
            self.hooks.claims_owned_jobs(),
            looked.due_from,
            looked.claimed_from,
            &asked,
            &ranges.queues,
            &ranges.to_queues as &[Option<String>],
            &ranges.ranks,
            &ranges.times,
            &ranges.ids,
            &ranges.to_ranks,
        )
        .fetch_one(&mut *connection)
        .await?;
        if !row.is_registered {
            tracing::warn!(
                worker.id = self.config.worker(),
                "worker row was missing; registering it again"
            );
            self.write_row(connection, self.config.worker()).await?;
        }
        marks.record_time(row.now);
        let heard = Instant::now();
        takeovers.tick(row.now, sent, heard);
        let lost_tokens = row.lost_tokens.unwrap_or_default();
        takeovers.found_expired(&lost_tokens, heard);
        looked.due_from = row.due_from;
        looked.claimed_from = row.claimed_from;
        let leased = row.leased_ids.unwrap_or_default().into_iter();
        let leased: HashMap<i64, DateTime<Utc>> =
            leased.zip(row.leased_until.unwrap_or_default()).collect();
        let may_take_over = |job: &i64| {
            let until = leased.get(job);
            until.is_none_or(|until| takeovers.allowed(*until))
        };
        let queues = row.due_queues.unwrap_or_default().into_iter();
        for (queue, since) in queues.zip(row.due_since.unwrap_or_default()) {
            if row.now - since > MAX_DUE_DELAY {
                announce_since(&self.slots, &self.outbox, std::iter::once(queue), since);
            } else {
                self.slots.wake(&queue, since);
            }
        }
        if row.ready.unwrap_or(false) {
            self.slots.wake_all();
        }
        let due = row.due_ms.and_then(|ms| u64::try_from(ms).ok());
        let mut due = due.map(Duration::from_millis);
        let lost = row
            .lost_ids
            .unwrap_or_default()
            .into_iter()
            .zip(lost_tokens)
            .zip(row.lost_attempts.unwrap_or_default())
            .zip(row.lost_batches.unwrap_or_default())
            .zip(row.lost_queues.unwrap_or_default());
        let labels = row
            .lost_job_types
            .unwrap_or_default()
            .into_iter()
            .zip(row.lost_runs.unwrap_or_default())
            .zip(row.lost_steps.unwrap_or_default())
            .map(|((job_type, owner_id), owner_label)| JobLabel {
                job_type,
                owner_id,
                owner_label,
            });
        for (((((id, token), attempt), batch), queue), label) in lost.zip(labels) {
            if !takeovers.is_long_expired(token, heard) {
                // Look again soon.
                due = Some(due.map_or(MIN_EXPIRED, |due| due.min(MIN_EXPIRED)));
                continue;
            }
            if !may_take_over(&id) {
                continue;
            }
            let mut end = AttemptEnd::new(id, token, attempt, batch);
            end.kind = EndKind::Lost;
            end.queue = Some(Arc::from(queue));
            end.label = Some(Arc::new(label));
            self.ledger.take_over(end);
        }
        if looks_everywhere {
            looked.forget_leases();
        }
        looked.record_leases(&asked, leased.into_iter());
        Ok(due)
    }

    /// Sends the last notifications and marks the worker's row as stopped.
    async fn close(&self, connection: &mut EngineConnection) {
        let outcome = tokio::time::timeout(CLOSE_TIMEOUT, async {
            let open = connection.get().await?;
            self.outbox.send(open).await?;
            sqlx::query!(
                "update pipeline.workers set stopped_at = pipeline.now(), seen_at = pipeline.now()
                 where id = $1",
                self.config.worker()
            )
            .execute(open)
            .await
        });
        if let Ok(Err(error)) = outcome.await {
            tracing::debug!(%error, "worker row could not be marked as stopped");
        }
        connection.close().await;
    }
}
