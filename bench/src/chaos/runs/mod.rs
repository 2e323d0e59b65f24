//! Runs under two workers, one of which is killed and replaced about every second, until all have
//! ended.
//!
//! The runs are started in shares, each a moment before a blow, so that it falls in the middle of
//! something. Steps and callbacks write down that they are executed (see [`steps`]); when all is over,
//! that is compared with the record (see [`record`]), and how the runs ended with how they had to.
//! The loads themselves ([`Diamonds`], [`Chains`]) are shared with the benches that mix them.

mod chains;
mod diamonds;
pub(super) mod record;
mod steps;

use std::time::{Duration, Instant};

pub(super) use chains::{Chains, chains};
pub(super) use diamonds::{Diamonds, diamonds};
use record::Tally;
pub(super) use steps::{GRACE, RUNS, SLOTS, work};

use super::crew::Crew;
use super::{Blow, close, moment, share};
use crate::frame::Result;

const WORKERS: usize = 2;
/// How long it may take until all have ended, from the last start on.
const LIMIT: Duration = Duration::from_secs(180);

/// What was done to the workers.
struct Storm {
    crew: Crew,
    blow: Blow,
    began: Instant,
    blows: u64,
    /// Those that fell on a worker with something under way.
    hits: u64,
    ended: bool,
    /// Workers that did not stop.
    stuck: Vec<String>,
}

impl Storm {
    /// Starts `items` in as many shares as there are to be blows at least, and strikes on until all is
    /// over.
    async fn over(
        mut crew: Crew,
        blow: Blow,
        items: u64,
        blows: u64,
        mut start: impl AsyncFnMut(u64) -> Result<()>,
    ) -> Result<Self> {
        let began = Instant::now();
        let (mut at, mut hits) = (0, 0);
        let mut last_start = began;
        let ended = loop {
            let round = Instant::now();
            if at < blows {
                start(share(items, at, blows)).await?;
                last_start = Instant::now();
            } else if !crew.busy().await? {
                break true;
            } else if last_start.elapsed() > LIMIT {
                break false;
            }
            moment(50, 250).await;
            let victim = crew.any_worker(None);
            hits += u64::from(crew.under_way(victim).await? > 0);
            match blow {
                Blow::Kill => crew.kill_and_replace(victim).await?,
                Blow::Stop => crew.relieve(victim).await?,
            }
            at += 1;
            tokio::time::sleep(Duration::from_secs(1).saturating_sub(round.elapsed())).await;
        };
        let stuck = crew.dismiss().await?;
        Ok(Self {
            crew,
            blow,
            began,
            blows: at,
            hits,
            ended,
            stuck,
        })
    }

    /// Says what is wrong: these, and what is wrong with any runs.
    async fn close(self, name: &str, what: &str, mut violations: Vec<String>) -> Result<()> {
        let pool = self.crew.pool();
        violations.extend(self.stuck);
        violations.extend(record::check(pool, &self.crew.lines()?).await?);
        let tally = Tally::of(pool).await?;
        if !self.ended {
            violations.push(format!("not all has ended {LIMIT:?} after the last start"));
        }
        let (done, in_vain) = match self.blow {
            Blow::Kill => ("killed", tally.lost == 0),
            Blow::Stop => ("stopped", false),
        };
        if self.hits == 0 || in_vain {
            violations.push("no blow has hit anything: nothing was put to the proof".to_owned());
        }
        if self.blow == Blow::Stop && tally.lost > 0 {
            violations.push(format!(
                "{} attempts were lost, and nobody died",
                tally.lost
            ));
        }
        let (blows, hits) = (self.blows, self.hits);
        println!(
            "{what}: {blows} workers {done}, {hits} of them with steps under way, of {WORKERS} with {} \
             slots each, in {:.1} s",
            steps::SLOTS,
            self.began.elapsed().as_secs_f64()
        );
        println!("{tally}\n");
        pool.close().await;
        close(name, &violations)
    }
}

/// Two workers that know the steps.
async fn crew() -> Result<Crew> {
    crew_of(WORKERS).await
}

/// So many workers that know all steps, callbacks and plain jobs.
pub(super) async fn crew_of(workers: usize) -> Result<Crew> {
    let mut crew = Crew::new(RUNS).await?;
    steps::prepare(crew.pool()).await?;
    crew.start(workers).await?;
    Ok(crew)
}
