//! Operations on existing runs: cancel, reopen, rerun.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::{PgConnection, Postgres, Transaction};
use tokio::time::Instant;

use super::Run;
use super::rerun::rerun;
use crate::db::{is_conflict, notifications, requests};
use crate::{Error, Result, RunStatus};

/// The first and the maximum pause between two tries.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// The pauses between tries, up to the client's lock timeout in all.
struct Tries {
    limit: Duration,
    until: Instant,
    pause: Duration,
}

impl Tries {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            until: Instant::now() + limit,
            pause: RETRY_PAUSES.0,
        }
    }

    /// Sleeps before the next try, twice as long each time. Returns `false` when the limit has passed.
    async fn wait(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(RETRY_PAUSES.1);
        true
    }
}

impl<O> Run<O> {
    /// Cancels the run: steps that have not started will not start, running steps are asked to stop
    /// ([`Context::cancelled`](jobs::Context::cancelled)), and no attempt is retried. The run is `cancelling`
    /// until its last running step has ended. A run can be cancelled more than once.
    ///
    /// If other transactions hold the run, the cancel is stored as a request, and no worker advances the run
    /// until the request has had its turn. If this future is dropped meanwhile, a worker executes the request.
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`] if the run does not exist; [`Error::NotCancellable`] with the status if it has ended;
    /// [`Error::Busy`] if another transaction held the run for thirty seconds: the run is not cancelled then.
    pub async fn cancel(&self) -> Result<()> {
        let mut tries = Tries::new(self.client().lock_timeout());
        let asked = loop {
            let asked = sqlx::query_file!("src/sql/ask_cancel.sql", self.id().get())
                .fetch_one(self.client().pool())
                .await;
            match asked {
                Err(error) if is_conflict(&error) => {}
                asked => break asked?,
            }
            if !tries.wait().await {
                return Err(self.busy("cancelled", &tries));
            }
        };
        if asked.is_missing {
            return Err(Error::NoRun(self.id()));
        }
        match asked.request {
            Some(request) => self.process_cancel(request, &mut tries).await,
            None => {
                self.cancelled(asked.refused, asked.queues, asked.ended_runs)
                    .await
            }
        }
    }

    /// Executes this client's own cancel request as soon as the run can be locked.
    async fn process_cancel(&self, request: i64, tries: &mut Tries) -> Result<()> {
        let pool = self.client().pool();
        loop {
            let processed = sqlx::query_file!("src/sql/process_request.sql", request, true)
                .fetch_one(pool)
                .await;
            match processed {
                Ok(row) if row.state == "done" => {
                    return self
                        .cancelled(row.refused, row.queues, row.ended_runs)
                        .await;
                }
                Ok(row) if row.state == "gone" => return self.cancelled_by_a_worker().await,
                Ok(_) => {}
                Err(error) if is_conflict(&error) => {}
                Err(error) => {
                    self.withdraw(request).await?;
                    return Err(error.into());
                }
            }
            if !tries.wait().await {
                return if self.withdraw(request).await? {
                    Err(self.busy("cancelled", tries))
                } else {
                    self.cancelled_by_a_worker().await
                };
            }
        }
    }

    fn busy(&self, asked: &'static str, tries: &Tries) -> Error {
        Error::Busy {
            run: self.id(),
            asked,
            limit: tries.limit,
        }
    }

    /// Deletes this client's request. Returns `false` if a worker has executed the request.
    async fn withdraw(&self, request: i64) -> Result<bool> {
        let deleted = sqlx::query!("delete from pipeline.requests where id = $1", request)
            .execute(self.client().pool())
            .await?;
        Ok(deleted.rows_affected() > 0)
    }

    /// Returns the result of a cancel that this call has executed, and sends its notifications.
    async fn cancelled(
        &self,
        refused: Option<String>,
        queues: Option<Vec<String>>,
        ended: Option<Vec<i64>>,
    ) -> Result<()> {
        if refused.as_deref() == Some("reopened") {
            return Err(Error::Reopened { run: self.id() });
        }
        if let Some(status) = refused {
            return Err(self.not_cancelled(status.parse().map_err(sqlx::Error::from)?));
        }
        let (queues, ended) = (queues.unwrap_or_default(), ended.unwrap_or_default());
        self.notify(&queues, &ended, true).await;
        Ok(())
    }

    /// Returns the result of a cancel that a worker has executed: an error if the run had ended before.
    async fn cancelled_by_a_worker(&self) -> Result<()> {
        let status = self.client().status(self.id()).await?;
        if status.is_ended() && status != RunStatus::Cancelled {
            return Err(self.not_cancelled(status));
        }
        Ok(())
    }

    fn not_cancelled(&self, status: RunStatus) -> Error {
        Error::NotCancellable {
            run: self.id(),
            status,
        }
    }

    /// Requests a cancel in the caller's transaction: a worker cancels the run after the transaction commits.
    /// If the run has ended by then, only an event of the run records the request.
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`] if the run is not visible in this transaction.
    pub async fn cancel_in(&self, tx: &mut PgConnection) -> Result<()> {
        if !self.exists(tx).await? {
            return Err(Error::NoRun(self.id()));
        }
        requests::insert(tx, "cancel", &[self.id().get()]).await?;
        Ok(())
    }

    /// Reopens a run that failed, was halted or cancelled: the run's next round begins when the returned value
    /// is awaited. Steps that failed, were skipped or cancelled run again; succeeded steps keep their outputs.
    pub fn reopen(&self) -> Reopen<'_, O> {
        Reopen {
            run: self,
            named: Vec::new(),
            forced: false,
        }
    }

    /// Starts a new run with the graph and the params of this run.
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`] if this run does not exist.
    pub async fn rerun(&self) -> Result<Run<O>> {
        rerun(self).await
    }

    async fn exists(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        sqlx::query_scalar!(
            r#"select exists (select from pipeline.runs where id = $1) as "exists!""#,
            self.id().get()
        )
        .fetch_one(connection)
        .await
    }

    /// Begins a transaction that locks the run and the chained runs that may change with it, without waiting.
    /// Returns `None` if another transaction holds one of them.
    async fn lock(&self) -> Result<Option<Transaction<'static, Postgres>>> {
        let mut tx = self.client().pool().begin().await?;
        sqlx::query_file!("src/sql/limit_transaction.sql")
            .fetch_one(&mut *tx)
            .await?;
        let exists = self.exists(&mut tx).await?;
        let locked = exists
            && sqlx::query_scalar!(
                r#"select locked as "locked!" from pipeline.lock_runs_v1($1)"#,
                &[self.id().get()]
            )
            .fetch_one(&mut *tx)
            .await?;
        if locked {
            return Ok(Some(tx));
        }
        tx.rollback().await?;
        if exists {
            Ok(None)
        } else {
            Err(Error::NoRun(self.id()))
        }
    }

    /// Announces jobs in these queues, the ends of these runs, and new requests.
    async fn notify(&self, queues: &[String], ended: &[i64], has_requests: bool) {
        let mut all = notifications::runs_ended(ended);
        all.extend(has_requests.then(notifications::requests_added));
        notifications::send(self.client().pool(), queues, &all).await;
    }
}

/// Reopens a run when awaited.
#[derive(Debug)]
#[must_use = "a run is reopened when this is awaited"]
pub struct Reopen<'a, O> {
    run: &'a Run<O>,
    named: Vec<String>,
    forced: bool,
}

impl<O> Reopen<'_, O> {
    /// Also runs this step again, whose failure was ignored. Other failed steps need not be named.
    pub fn step(mut self, key: impl Into<String>) -> Self {
        self.named.push(key.into());
        self
    }

    /// Reopens the run even if no live worker knows a required job type, or knows only another version of it.
    pub fn force(mut self) -> Self {
        self.forced = true;
        self
    }

    async fn check(&self, tx: &mut PgConnection) -> Result<()> {
        let run = self.run.id();
        let steps = sqlx::query_file!("src/sql/named_steps.sql", run.get(), &self.named)
            .fetch_all(&mut *tx)
            .await?;
        for step in steps {
            match (step.status, step.is_ignored) {
                (None, _) => return Err(self.run.no_step(&mut *tx, &step.key).await),
                (Some(_), Some(true)) => {}
                (Some(status), _) => {
                    return Err(Error::NotIgnored {
                        run,
                        step: step.key,
                        status: status.parse().map_err(sqlx::Error::from)?,
                    });
                }
            }
        }
        let ignored = sqlx::query_scalar!(
            "select pipeline.only_ignored_failures_v1($1, $2)",
            run.get(),
            &self.named
        )
        .fetch_one(&mut *tx)
        .await?;
        if let Some(steps) = ignored {
            return Err(Error::OnlyIgnored { run, steps });
        }
        if self.forced {
            return Ok(());
        }
        let unknown = sqlx::query_scalar!(
            "select pipeline.unknown_job_types_v1($1, $2)",
            run.get(),
            &self.named
        )
        .fetch_one(&mut *tx)
        .await?;
        match unknown {
            Some(job_types) if !job_types.is_empty() => Err(Error::UnknownJobs { run, job_types }),
            _ => Ok(()),
        }
    }

    async fn reopen(self) -> Result<()> {
        let mut tries = Tries::new(self.run.client().lock_timeout());
        loop {
            match self.try_reopen().await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(Error::Database(error)) if is_conflict(&error) => {}
                Err(error) => return Err(error),
            }
            if !tries.wait().await {
                return Err(self.run.busy("reopened", &tries));
            }
        }
    }

    /// Reopens the run if it can be locked now. Returns whether it was reopened.
    async fn try_reopen(&self) -> Result<bool> {
        let Some(mut tx) = self.run.lock().await? else {
            return Ok(false);
        };
        let reopened = match self.reopen_in(&mut tx).await {
            Ok(reopened) => reopened,
            Err(error) => {
                // Roll back now: a dropped transaction stays open until its connection is used again.
                tx.rollback().await?;
                return Err(error);
            }
        };
        tx.commit().await?;
        self.run
            .notify(&reopened.queues, &reopened.ended, false)
            .await;
        if !reopened.pending.is_empty() {
            let pool = self.run.client().pool();
            requests::process_chain_requests(pool, &reopened.pending).await;
        }
        Ok(true)
    }

    async fn reopen_in(&self, tx: &mut PgConnection) -> Result<Reopened> {
        let run = self.run.id();
        let status = sqlx::query_scalar!(
            r#"select status::text as "status!" from pipeline.runs where id = $1"#,
            run.get()
        )
        .fetch_one(&mut *tx)
        .await?;
        if !["failed", "halted", "cancelled"].contains(&status.as_str()) {
            return Err(Error::NotReopenable {
                run,
                status: status.parse().map_err(sqlx::Error::from)?,
            });
        }
        self.check(&mut *tx).await?;
        let row = sqlx::query!(
            "select queues, array(select o.id from unnest(ended_runs) as o) as ended_runs, left_pending from pipeline.reopen_run_v1($1, $2)",
            run.get(),
            &self.named
        )
        .fetch_one(&mut *tx)
        .await?;
        Ok(Reopened {
            queues: row.queues.unwrap_or_default(),
            ended: row.ended_runs.unwrap_or_default(),
            pending: row.left_pending.unwrap_or_default(),
        })
    }
}

/// The result of a reopening.
struct Reopened {
    queues: Vec<String>,
    ended: Vec<i64>,
    /// Runs that wait in a chain until a request has checked their upstream runs.
    pending: Vec<i64>,
}

impl<'a, O: Send + Sync + 'a> IntoFuture for Reopen<'a, O> {
    type Output = Result<()>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.reopen())
    }
}
