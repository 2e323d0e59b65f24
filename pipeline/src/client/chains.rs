//! Chains: the runs before and after a run.

use sqlx::PgConnection;

use super::stage::IntoStage;
use super::start::Target;
use super::{Run, Start};
use crate::{Error, Result, RunId};

impl<O> Run<O> {
    /// Starts runs after this run when awaited, whether this run has ended or not: they begin when this run has
    /// succeeded, and are skipped if it ends otherwise. Returns the new runs, like [`Client::start`](crate::Client::start).
    ///
    /// ```no_run
    /// # use pipeline::{Pipeline, Run};
    /// # async fn example(run: Run, check: Pipeline<bool>) -> pipeline::Result<()> {
    /// let check: Run<bool> = run.then(check).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Client::start`](crate::Client::start); [`Error::NoRun`] if this run does not exist.
    pub fn then<S: IntoStage>(&self, stage: S) -> Start<'_, S::Runs> {
        let client = self.client();
        Start::new(client, Target::Pool(client.pool()), stage).after([self])
    }

    /// Starts runs after this run in the caller's transaction: a worker starts or skips them after the commit.
    pub fn then_in<'a, S: IntoStage>(
        &self,
        tx: &'a mut PgConnection,
        stage: S,
    ) -> Start<'a, S::Runs> {
        Start::new(self.client(), Target::Connection(tx), stage).after([self])
    }

    /// Returns the runs that come directly after this run in its chain, in the order of their ids.
    ///
    /// ```no_run
    /// # use pipeline::Client;
    /// # async fn example(client: Client, order: &str) -> pipeline::Result<()> {
    /// if let Some(run) = client.run_by_key("fulfil", order).await? {
    ///     for next in run.chained().await? {
    ///         println!("run {} is {}", next.id(), next.status().await?);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`] if the run does not exist, also while the transaction that starts it is open.
    pub async fn chained(&self) -> Result<Vec<Run>> {
        let row = sqlx::query_file!("src/sql/run_chained.sql", self.id().get())
            .fetch_optional(self.client().pool())
            .await?;
        let row = row.ok_or(Error::NoRun(self.id()))?;
        Ok(self.all(row.runs))
    }

    /// Returns the runs that this run comes directly after in its chain, in the order of their ids.
    ///
    /// A run that succeeded and was [pruned](crate::Client::prune_runs) is no longer part of the chain.
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`] if the run does not exist, also while the transaction that starts it is open.
    pub async fn upstream(&self) -> Result<Vec<Run>> {
        let row = sqlx::query_file!("src/sql/run_upstream.sql", self.id().get())
            .fetch_optional(self.client().pool())
            .await?;
        let row = row.ok_or(Error::NoRun(self.id()))?;
        Ok(self.all(row.runs))
    }

    fn all(&self, runs: Vec<i64>) -> Vec<Run> {
        runs.into_iter()
            .map(|id| self.client().run(id.into()))
            .collect()
    }
}

impl<O> From<&Run<O>> for RunId {
    fn from(run: &Run<O>) -> Self {
        run.id()
    }
}

impl<O> From<Run<O>> for RunId {
    fn from(run: Run<O>) -> Self {
        run.id()
    }
}
