//! Three workers, the jobs they were given, and what they write down.

use std::time::{Duration, Instant};

use jobs::Client;
use tempfile::TempDir;

use super::check::Evidence;
use super::crew::Crew;
use super::log;
use super::worker::{self, Nap};
use crate::frame::Result;

const WORKERS: usize = 3;

pub(super) struct Arena {
    pub(super) crew: Crew,
    client: Client,
    enqueued: Vec<i64>,
    logs: TempDir,
}

impl Arena {
    pub(super) async fn open() -> Result<Self> {
        let logs = tempfile::tempdir()?;
        let mut crew = Crew::new(worker::JOBS)
            .await?
            .with_logs(logs.path().to_owned());
        worker::prepare(crew.pool()).await?;
        crew.start(WORKERS).await?;
        Ok(Self {
            client: Client::new(crew.pool().clone()),
            crew,
            enqueued: Vec::new(),
            logs,
        })
    }

    pub(super) async fn enqueue(&mut self, count: u64) -> Result<()> {
        let enqueued = self.client.enqueue_many((0..count).map(|_| Nap)).await?;
        self.enqueued.extend(enqueued.iter().map(|job| job.id));
        Ok(())
    }

    /// Whether all jobs have ended in time.
    pub(super) async fn all_ended(&self, limit: Duration) -> Result<bool> {
        let began = Instant::now();
        while began.elapsed() < limit {
            if !self.crew.busy().await? {
                return Ok(true);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(false)
    }

    /// Lets the workers go in good order, and gathers what they and the database say.
    pub(super) async fn close(mut self) -> Result<Evidence> {
        self.crew.dismiss().await?;
        let mut lines = Vec::new();
        for entry in std::fs::read_dir(self.logs.path())? {
            lines.extend(log::read(&entry?.path())?);
        }
        let evidence = Evidence::gather(self.crew.pool(), self.enqueued, lines).await?;
        self.crew.pool().close().await;
        Ok(evidence)
    }
}
