//! Three workers and their plain jobs.

use super::check::Verdict;
use super::crew::Crew;
use super::naps::Naps;
use super::worker::{self, NAP};
use super::{END_TIMEOUT, LEASE};
use crate::frame::Result;

const WORKERS: usize = 3;

pub(super) struct Arena {
    pub(super) crew: Crew,
    naps: Naps,
}

impl Arena {
    pub(super) async fn open() -> Result<Self> {
        let mut crew = Crew::new(worker::JOBS).await?;
        crew.start(WORKERS).await?;
        Ok(Self {
            naps: Naps::new(crew.pool(), LEASE),
            crew,
        })
    }

    pub(super) async fn enqueue(&mut self, count: u64) -> Result<()> {
        self.naps.enqueue(count, NAP).await?;
        Ok(())
    }

    /// Waits until every job has ended, stops the workers in good order, and compares their records with the database.
    pub(super) async fn close(mut self) -> Result<Verdict> {
        let ended = self.crew.all_ended(END_TIMEOUT).await?;
        let stuck = self.crew.dismiss().await?;
        let lines = self.crew.lines()?;
        let mut verdict = self.naps.check(self.crew.pool(), &lines).await?;
        verdict.violations.extend(stuck);
        if !ended {
            verdict
                .violations
                .push("not all jobs have ended".to_owned());
        }
        self.crew.pool().close().await;
        Ok(verdict)
    }
}
