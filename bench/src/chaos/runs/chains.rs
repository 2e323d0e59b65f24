//! Chains of four runs, a → (b, c) → d, in which steps fail as was drawn, with callbacks.

mod drawn;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use pipeline::graph::spec::CallbackOn;
use pipeline::{Client, Run};
use sqlx::PgPool;

use drawn::{CALLBACKS, Drawn, Link};

use super::super::{Blow, LEASE};
use super::{Storm, crew};
use crate::frame::Result;

/// Chains of four runs, and how each of the runs has to end.
pub(in super::super) struct Chains {
    client: Client,
    lease: Duration,
    rng: fastrand::Rng,
    links: Vec<Link>,
}

impl Chains {
    pub(in super::super) fn new(pool: &PgPool, lease: Duration, seed: u64) -> Self {
        Self {
            client: Client::new(pool.clone()),
            lease,
            rng: fastrand::Rng::with_seed(seed),
            links: Vec::new(),
        }
    }

    /// Starts one, and returns the ids of its runs a, b, c and d.
    pub(in super::super) async fn start(&mut self) -> Result<Vec<i64>> {
        let drawn: [Drawn; 4] = std::array::from_fn(|_| Drawn::new(&mut self.rng));
        let [a, b, c, d] = &drawn;
        let first = self
            .client
            .start(a.pipeline(self.lease)?)
            .then((b.pipeline(self.lease)?, c.pipeline(self.lease)?))
            .then(d.pipeline(self.lease)?)
            .await?;
        let second = first.chained().await?;
        let last = second[0].chained().await?;
        let ids: Vec<i64> = std::iter::once(first.id())
            .chain(second.iter().chain(&last).map(Run::id))
            .map(i64::from)
            .collect();
        self.links.extend(drawn::links(ids.iter().copied(), drawn));
        Ok(ids)
    }

    /// Takes over the chains that another one has started.
    pub(in super::super) fn absorb(&mut self, other: Self) {
        self.links.extend(other.links);
    }

    /// Every run and step has ended as drawn, and each callback that was due was enqueued once.
    pub(in super::super) async fn check(&self, pool: &PgPool) -> Result<Vec<String>> {
        let mut violations = check_ends(pool, &self.links).await?;
        violations.extend(check_callbacks(pool, &self.links).await?);
        Ok(violations)
    }

    /// How many runs have to end how.
    pub(in super::super) fn summary(&self) -> String {
        counted(&self.links)
    }
}

pub(in super::super) async fn chains(count: u64, kills: u64, seed: u64) -> Result<()> {
    let crew = crew().await?;
    let mut chains = Chains::new(crew.pool(), LEASE, seed);
    let storm = Storm::over(crew, Blow::Kill, count, kills, async |share| {
        for _ in 0..share {
            chains.start().await?;
        }
        Ok(())
    })
    .await?;
    let violations = chains.check(storm.crew.pool()).await?;
    let what = format!(
        "{count} chains of 4 runs, seed {seed}; {}",
        chains.summary()
    );
    storm.close("chaos/chains", &what, violations).await
}

fn counted(links: &[Link]) -> String {
    let count = |status| links.iter().filter(|link| link.status == status).count();
    ["succeeded", "failed", "halted", "skipped"]
        .map(|status| format!("{} {status}", count(status)))
        .join(", ")
}

/// Runs and steps have ended as they had to.
async fn check_ends(pool: &PgPool, links: &[Link]) -> Result<Vec<String>> {
    let rows: Vec<(i64, String, Vec<String>)> = sqlx::query_as(
        "select r.id, r.status::text, array_agg(s.status::text order by n.key)
         from pipeline.runs r
         join pipeline.steps s on s.run = r.id
         join pipeline.nodes n on n.graph = r.graph and n.no = s.no
         where r.pipeline = 'bench'
         group by r.id",
    )
    .fetch_all(pool)
    .await?;
    let mut violations = Vec::new();
    if rows.len() != links.len() {
        let (there, all) = (rows.len(), links.len());
        violations.push(format!("{there} runs are there, and {all} were started"));
    }
    let rows: HashMap<i64, _> = rows
        .into_iter()
        .map(|(run, status, steps)| (run, (status, steps)))
        .collect();
    for link in links {
        let Some((status, steps)) = rows.get(&link.run) else {
            violations.push(format!("run {}: is not there", link.run));
            continue;
        };
        if status != link.status || !link.allows(steps) {
            violations.push(format!(
                "run {}: is {status} with steps {steps:?}, and had to be {} with {:?}",
                link.run, link.status, link.steps
            ));
        }
    }
    Ok(violations)
}

/// Each callback was enqueued once in its run's one round, and was told how that ended. That it was
/// executed, and more than once only after a lost lease, the record says.
async fn check_callbacks(pool: &PgPool, links: &[Link]) -> Result<Vec<String>> {
    let fired: Vec<(i64, i32, i32, i64)> =
        sqlx::query_as("select run, round, position, job from pipeline.dispatched_callbacks")
            .fetch_all(pool)
            .await?;
    let enqueued: Vec<i64> =
        sqlx::query_scalar("select id from pipeline.jobs where job_type = 'chaos.told'")
            .fetch_all(pool)
            .await?;
    let told: Vec<(i64, i64, i32, String)> =
        sqlx::query_as("select job, run, round, status from told")
            .fetch_all(pool)
            .await?;

    let mut violations = Vec::new();
    let mut expected: BTreeSet<(i64, i32, i32)> = links.iter().flat_map(due).collect();
    for (run, round, pos, _) in &fired {
        if !expected.remove(&(*run, *round, *pos)) {
            violations.push(format!(
                "run {run}: callback {pos} was enqueued in round {round}, and had not to be, or twice"
            ));
        }
    }
    for (run, round, pos) in expected {
        violations.push(format!(
            "run {run}: callback {pos} was not enqueued in round {round}"
        ));
    }
    let of_job: HashMap<i64, (i64, i32)> = fired
        .iter()
        .map(|(run, round, _, job)| (*job, (*run, *round)))
        .collect();
    for job in &enqueued {
        if !of_job.contains_key(job) {
            violations.push(format!(
                "job {job}: is a callback's, and nothing has fired it"
            ));
        }
    }
    if enqueued.len() != of_job.len() {
        let (there, all) = (enqueued.len(), of_job.len());
        violations.push(format!(
            "{there} jobs of callbacks are there, and {all} were fired"
        ));
    }
    let statuses: HashMap<i64, &str> = links.iter().map(|link| (link.run, link.status)).collect();
    for (job, run, round, status) in &told {
        if of_job.get(job) != Some(&(*run, *round)) || statuses.get(run) != Some(&status.as_str()) {
            violations.push(format!(
                "job {job}: was told that run {run} is {status} in round {round}, and that is not so"
            ));
        }
    }
    let told: BTreeSet<i64> = told.iter().map(|(job, ..)| *job).collect();
    for job in of_job.keys().filter(|job| !told.contains(job)) {
        violations.push(format!("job {job}: is a callback's, and was told nothing"));
    }
    Ok(violations)
}

/// The callbacks that a run's end fires, by run, round and place.
fn due(link: &Link) -> Vec<(i64, i32, i32)> {
    (0..)
        .zip(CALLBACKS)
        .filter(|(_, on)| match on {
            CallbackOn::Complete => true,
            CallbackOn::Success => link.status == "succeeded",
            CallbackOn::Failure => ["failed", "halted"].contains(&link.status),
        })
        .map(|(pos, _)| (link.run, 1, pos))
        .collect()
}
