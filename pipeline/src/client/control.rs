//! What is asked of a run that is there: cancel it, open it again, run it again.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::seams::News;
use sqlx::{PgConnection, PgPool, Postgres, Transaction};

use super::Run;
use super::send::copy;
use crate::coordinator::{REQUESTS, is_in_the_way, news};
use crate::{Error, Result};

/// How long it is tried to lock a run that others hold.
const PATIENCE: Duration = Duration::from_secs(30);

impl<O> Run<O> {
    /// Cancels the run: what has not started never will, what runs is asked to stop
    /// ([`Context::cancelled`](jobs::Context::cancelled)), and no attempt is followed by another. The
    /// run is `cancelling` until the last of them has ended. Cancelling twice is fine.
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`]; [`Error::RunEnded`], which names its status.
    pub async fn cancel(&self) -> Result<()> {
        loop {
            match self.try_cancel().await {
                Err(Error::Database(error)) if is_in_the_way(&error) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn try_cancel(&self) -> Result<()> {
        let mut tx = self.lock(false).await?;
        let row = sqlx::query!(
            "select refused, queues, over from pipeline.cancel_v1($1, 'cancel')",
            self.id()
        )
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        if let Some(status) = row.refused {
            return Err(Error::RunEnded {
                run: self.id(),
                status: status.parse().map_err(sqlx::Error::from)?,
                asked: "cancelled",
                remedy: "only a run that has not ended can be",
            });
        }
        let (queues, over) = (row.queues.unwrap_or_default(), row.over.unwrap_or_default());
        self.tell(&queues, &over, true).await;
        Ok(())
    }

    /// The same from a transaction of yours, when it is committed: a worker takes it up then. Of a run
    /// that has ended meanwhile, an event is all that remains of it.
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`], as far as this transaction can see.
    pub async fn cancel_in(&self, tx: &mut PgConnection) -> Result<()> {
        if !self.exists(tx).await? {
            return Err(Error::NoRun(self.id()));
        }
        request(tx, "cancel", &[self.id()]).await?;
        Ok(())
    }

    /// Opens a run again that failed, was halted or cancelled: its next round begins when this is
    /// awaited. Steps that failed, were skipped or cancelled are done again; what succeeded stays.
    pub fn reopen(&self) -> Reopen<'_, O> {
        Reopen {
            run: self,
            named: Vec::new(),
            forced: false,
        }
    }

    /// Starts a new run with the same graph and the same params.
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`].
    pub async fn rerun(&self) -> Result<Run<O>> {
        copy(self).await
    }

    async fn exists(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        sqlx::query_scalar!(
            r#"select exists (select from pipeline.runs where id = $1) as "exists!""#,
            self.id()
        )
        .fetch_one(connection)
        .await
    }

    /// A transaction that holds the run, and with it all that may change because of it; and what comes
    /// before it, where that decides. Nobody is waited for while something is held: whoever does not get
    /// all of them lets go and tries again.
    async fn lock(&self, before: bool) -> Result<Transaction<'static, Postgres>> {
        let began = tokio::time::Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            let mut tx = self.client().pool().begin().await?;
            if !self.exists(&mut tx).await? {
                return Err(Error::NoRun(self.id()));
            }
            let locked = sqlx::query_file_scalar!("src/sql/lock_runs.sql", self.id(), before)
                .fetch_one(&mut *tx)
                .await?;
            if locked {
                return Ok(tx);
            }
            tx.rollback().await?;
            if began.elapsed() > PATIENCE {
                return Err(Error::Busy { run: self.id() });
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    async fn tell(&self, queues: &[String], over: &[i64], requests: bool) {
        tell(self.client().pool(), queues, news(over), requests).await;
    }
}

/// Tells workers and waiters of it. What is not heard, their polls find.
pub(super) async fn tell(pool: &PgPool, queues: &[String], news: Vec<News>, requests: bool) {
    let requests = requests.then(|| News {
        channel: REQUESTS,
        text: String::new(),
    });
    let all: Vec<News> = news.into_iter().chain(requests).collect();
    let channels: Vec<&str> = all.iter().map(|news| news.channel).collect();
    let texts: Vec<&str> = all.iter().map(|news| news.text.as_str()).collect();
    let told = sqlx::query_file!(
        "src/sql/tell.sql",
        queues,
        &channels as &[&str],
        &texts as &[&str]
    )
    .fetch_one(pool)
    .await;
    if let Err(error) = told {
        tracing::debug!(%error, "nobody was told; they will find it");
    }
}

/// Leaves a request for the workers.
pub(super) async fn request(
    connection: &mut PgConnection,
    kind: &str,
    runs: &[i64],
) -> Result<(), sqlx::Error> {
    sqlx::query_file!("src/sql/request.sql", runs, kind)
        .execute(connection)
        .await?;
    Ok(())
}

/// Opens a run again when awaited.
#[derive(Debug)]
#[must_use = "a run is reopened when this is awaited"]
pub struct Reopen<'a, O> {
    run: &'a Run<O>,
    named: Vec<String>,
    forced: bool,
}

impl<O> Reopen<'_, O> {
    /// Does this step again too, whose failure was ignored. Others are done again without being named.
    pub fn step(mut self, key: impl Into<String>) -> Self {
        self.named.push(key.into());
        self
    }

    /// Even where no live worker knows a job type that is needed, or only in another version.
    pub fn force(mut self) -> Self {
        self.forced = true;
        self
    }

    async fn check(&self, tx: &mut PgConnection) -> Result<()> {
        let run = self.run.id();
        let steps = sqlx::query_file!("src/sql/named_steps.sql", run, &self.named)
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
        if self.forced {
            return Ok(());
        }
        let unknown =
            sqlx::query_scalar!("select pipeline.unknown_jobs_v1($1, $2)", run, &self.named)
                .fetch_one(&mut *tx)
                .await?;
        match unknown {
            Some(jobs) if !jobs.is_empty() => Err(Error::UnknownJobs {
                run,
                jobs: jobs.join(", "),
            }),
            _ => Ok(()),
        }
    }

    async fn reopen(self) -> Result<()> {
        loop {
            match self.try_reopen().await {
                Err(Error::Database(error)) if is_in_the_way(&error) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn try_reopen(&self) -> Result<()> {
        let run = self.run.id();
        let mut tx = self.run.lock(true).await?;
        let status = sqlx::query_scalar!(
            r#"select status::text as "status!" from pipeline.runs where id = $1"#,
            run
        )
        .fetch_one(&mut *tx)
        .await?;
        if !["failed", "halted", "cancelled"].contains(&status.as_str()) {
            return Err(Error::RunEnded {
                run,
                status: status.parse().map_err(sqlx::Error::from)?,
                asked: "reopened",
                remedy: "only a run that failed, was halted or cancelled can be",
            });
        }
        self.check(&mut tx).await?;
        let row = sqlx::query!(
            "select queues, over from pipeline.reopen_v1($1, $2)",
            run,
            &self.named
        )
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        let (queues, over) = (row.queues.unwrap_or_default(), row.over.unwrap_or_default());
        self.run.tell(&queues, &over, false).await;
        Ok(())
    }
}

impl<'a, O: Send + Sync + 'a> IntoFuture for Reopen<'a, O> {
    type Output = Result<()>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.reopen())
    }
}
