//! One job: look it up, retry it, delete it.

use sqlx::PgConnection;

use super::info::{AttemptInfo, JobInfo, JobRow};
use crate::attempt::is_owned;
use crate::{Client, Error, JobId, Result};

/// A handle to one job. It is cheap to create and to clone, and asks the database only when a method is awaited.
///
/// ```no_run
/// # async fn example(client: jobs::Client, id: jobs::JobId) -> jobs::Result<()> {
/// let job = client.job(id);
/// if let Some(info) = job.info().await? {
///     println!("{} is {}", info.job_type, info.status);
/// }
/// job.retry().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct JobHandle {
    client: Client,
    id: JobId,
}

impl Client {
    /// Returns a handle to the job with this id, whether the job exists or not.
    pub fn job(&self, id: JobId) -> JobHandle {
        JobHandle {
            client: self.clone(),
            id,
        }
    }
}

impl JobHandle {
    /// Returns the job's id.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Looks the job up. `None` means that the job never existed, or was deleted: by default, a job is deleted when it
    /// succeeds.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the database cannot be reached.
    pub async fn info(&self) -> Result<Option<JobInfo>> {
        let row = sqlx::query_file_as!(JobRow, "src/sql/job.sql", self.id.get())
            .fetch_optional(self.client.pool())
            .await?;
        Ok(row.map(JobInfo::try_from).transpose()?)
    }

    /// Returns the attempts of the job that did not succeed, the first one first.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the database cannot be reached.
    pub async fn attempts(&self) -> Result<Vec<AttemptInfo>> {
        let rows = sqlx::query!(
            "select attempt, token, outcome, error_class, error_message, ended_at
             from pipeline.attempts where job = $1 order by ended_at, token",
            self.id.get()
        )
        .fetch_all(self.client.pool())
        .await?;
        let attempts = rows.into_iter().map(|row| {
            Ok(AttemptInfo::new(
                row.attempt,
                row.token,
                row.outcome.parse()?,
                row.ended_at,
                (row.error_class, row.error_message),
                None,
            ))
        });
        Ok(attempts.collect::<Result<_, sqlx::Error>>()?)
    }

    /// Retries a job that failed or was discarded: the job gets all of its attempts again.
    ///
    /// # Errors
    ///
    /// [`Error::NoJob`] if the job does not exist; [`Error::WrongStatus`] if it has not failed;
    /// [`Error::KeyTaken`] if a live job has its key by now; [`Error::OwnedJob`] if the job has an owner;
    /// [`Error::Busy`] if another transaction held the job's row for thirty seconds.
    pub async fn retry(&self) -> Result<()> {
        self.check_not_owned()?;
        let outcome = loop {
            let change = self.client.change(format!("job {}", self.id), "retried");
            let retry = async |connection: &mut PgConnection| {
                sqlx::query!(
                    "select result, key, holder from pipeline.retry_job_v1($1)",
                    self.id.get()
                )
                .fetch_one(connection)
                .await
            };
            match change.make(self.client.pool(), retry).await {
                // Another job took the key at this moment; the next try sees which one.
                Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {}
                outcome => break outcome.map_err(|error| change.error(error))?,
            }
        };
        if let (Some(key), Some(by)) = (outcome.key, outcome.holder) {
            let (id, by) = (self.id, by.into());
            return Err(Error::KeyTaken { id, key, by });
        }
        self.check_result(outcome.result.as_deref(), "failed or discarded", "retried")
    }

    /// Deletes a job that has ended, or that no worker has claimed yet.
    ///
    /// # Errors
    ///
    /// [`Error::NoJob`] if the job does not exist; [`Error::WrongStatus`] if it is running; [`Error::OwnedJob`] if
    /// the job has an owner; [`Error::Busy`] if another transaction held the job's row for thirty seconds.
    pub async fn delete(&self) -> Result<()> {
        self.check_not_owned()?;
        let change = self.client.change(format!("job {}", self.id), "deleted");
        let delete = async |connection: &mut PgConnection| {
            sqlx::query_scalar!("select pipeline.delete_job_v1($1)", self.id.get())
                .fetch_one(connection)
                .await
        };
        let outcome = change.make(self.client.pool(), delete).await;
        let outcome = outcome.map_err(|error| change.error(error))?;
        self.check_result(outcome.as_deref(), "waiting or ended", "deleted")
    }

    /// Returns an error if an extension owns the job: only the extension may change the job.
    fn check_not_owned(&self) -> Result<()> {
        if is_owned(self.id.get()) {
            return Err(Error::OwnedJob { id: self.id });
        }
        Ok(())
    }

    /// Interprets the result of an SQL function that changes one job: `done`, null if there is no such job, or the
    /// status that does not allow the change.
    fn check_result(
        &self,
        result: Option<&str>,
        needed: &'static str,
        asked: &'static str,
    ) -> Result<()> {
        let id = self.id;
        match result {
            Some("done") => Ok(()),
            None => Err(Error::NoJob { id }),
            Some(status) => Err(Error::WrongStatus {
                id,
                status: status.parse().map_err(sqlx::Error::from)?,
                needed,
                asked,
            }),
        }
    }
}
