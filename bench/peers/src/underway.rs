//! underway: a job is a list of steps; each step is a row of the queue, which enqueues the next.
//!
//! A `Job` notes the step that it last ran, and starts new runs with that step. So the worker and the client each
//! have a `Job` of their own. What the last step returns is not stored, and there is no wait for the end of a run:
//! the last step tells its client in the process (see [`crate::ends`]).
//!
//! It takes no part in the workload `jobs`: a look into its queue has no index to go by, so the cost of a job grows with
//! the rows.

use std::time::Instant;

use sqlx::PgPool;
use sqlx_0_8::postgres::{PgPool as UnderwayPool, PgPoolOptions};
use tokio_util::sync::CancellationToken;
use underway::job::Context;
use underway::task::Result as TaskResult;
use underway::{Job, Task, To, Worker};

use crate::drive::{CHUNK, IN_FLIGHT, WARM_UP, each_alone};
use crate::ends;
use crate::floor::Floor;
use crate::payload::{CHAIN_STEPS, Large, Payload, chain_output};
use crate::performed::PERFORMED;
use crate::protocol::ChildArguments;
use crate::{Result, Took, unknown};

/// Steps that its worker runs at a time.
const CONCURRENCY: usize = 16;
/// Connections besides two for each running step: one for its transaction and one for its heartbeat.
const MORE_CONNECTIONS: usize = 6;

pub(crate) async fn measure(child: &ChildArguments, numbers: &[usize]) -> Result<Took> {
    let pool = child.pool(2).await?;
    let concurrency = numbers.first().copied().unwrap_or(CONCURRENCY);
    let its_pool = PgPoolOptions::new()
        .max_connections(u32::try_from(2 * concurrency + MORE_CONNECTIONS)?)
        .connect(&child.url)
        .await?;
    let system = System {
        pool: pool.clone(),
        its_pool: its_pool.clone(),
        concurrency,
    };
    let took = match (child.bench.as_str(), child.phase.as_str()) {
        (_, "prepare") => {
            underway::run_migrations(&its_pool).await?;
            Floor::prepare(&pool).await?;
            Took::default()
        }
        ("peers.chain", "run") => system.chain::<u64>(child.items).await?,
        ("peers.chain_10kb", "run") => system.chain::<Large>(child.items).await?,
        ("peers.single", "run") => system.single(child.items).await?,
        ("peers.latency", "run") => system.latency(child.items).await?,
        _ => return unknown(child),
    };
    its_pool.close().await;
    pool.close().await;
    Ok(took)
}

struct System {
    /// For what the bench asks of the database.
    pool: PgPool,
    its_pool: UnderwayPool,
    concurrency: usize,
}

async fn next<P: Payload>(_: Context<()>, input: P) -> TaskResult<To<P>> {
    To::next(input.next())
}

async fn last<P: Payload>(_: Context<()>, input: P) -> TaskResult<To<()>> {
    let output = input.next().number();
    ends::ended(output - CHAIN_STEPS, output);
    To::done()
}

impl System {
    fn settings(&self, starts: &str) -> String {
        format!(
            "{starts}, concurrency {}, told of new work by notifications, a pool of at most {} connections",
            self.concurrency,
            2 * self.concurrency + MORE_CONNECTIONS
        )
    }

    async fn job<P: Payload>(&self) -> Result<Job<P, ()>> {
        Ok(Job::builder()
            .step(next::<P>)
            .step(next::<P>)
            .step(next::<P>)
            .step(next::<P>)
            .step(last::<P>)
            .name("chain")
            .pool(self.its_pool.clone())
            .build()
            .await?)
    }

    /// Lets the worker work until the token is cancelled.
    fn start<T: Task + Sync>(&self, mut worker: Worker<T>) -> Running {
        let stop = CancellationToken::new();
        worker.set_concurrency_limit(self.concurrency);
        worker.set_shutdown_token(stop.clone());
        let working = tokio::spawn(async move { worker.run().await.map_err(|e| e.to_string()) });
        Running { stop, working }
    }

    async fn chain<P: Payload>(&self, runs: u64) -> Result<Took> {
        let running = self.start(self.job::<P>().await?.worker());
        let client = self.job::<P>().await?;
        let start = Instant::now();
        for first in (0..runs).step_by(CHUNK as usize) {
            let mut tx = self.its_pool.begin().await?;
            for number in first..runs.min(first + CHUNK) {
                client.enqueue_using(&mut *tx, &P::new(number)).await?;
            }
            tx.commit().await?;
        }
        self.until_ended(runs).await?;
        let time = start.elapsed();
        running.stop().await?;
        self.check_chains(runs).await?;
        let starts = format!("{CHUNK} runs enqueued in a transaction");
        Ok(self.took(runs * CHAIN_STEPS, time, &starts))
    }

    async fn single(&self, runs: u64) -> Result<Took> {
        let running = self.start(self.job::<u64>().await?.worker());
        let client = self.job::<u64>().await?;
        let start = Instant::now();
        each_alone(runs, IN_FLIGHT, chain_output, move |number| {
            run_alone(client.clone(), number)
        })
        .await?;
        self.until_ended(runs).await?;
        let time = start.elapsed();
        running.stop().await?;
        self.check_chains(runs).await?;
        Ok(self.took(
            runs * CHAIN_STEPS,
            time,
            &format!("{IN_FLIGHT} runs in flight"),
        ))
    }

    async fn latency(&self, times: u64) -> Result<Took> {
        let running = self.start(self.job::<u64>().await?.worker());
        let client = self.job::<u64>().await?;
        let start = Instant::now();
        let mut floor = Floor::connect(&self.pool).await?;
        let series = floor
            .in_turn(times, async |number| {
                run_alone(client.clone(), number).await
            })
            .await?;
        drop(floor);
        let time = start.elapsed();
        self.until_ended(times + WARM_UP).await?;
        running.stop().await?;
        self.check_chains(times + WARM_UP).await?;
        Ok(Took {
            series,
            ..self.took(times, time, "one run at a time")
        })
    }

    fn took(&self, items: u64, time: std::time::Duration, starts: &str) -> Took {
        Took {
            items,
            time,
            settings: self.settings(starts),
            ..Took::default()
        }
    }

    /// Waits until so many runs have been performed and all rows of the queue have succeeded.
    async fn until_ended(&self, runs: u64) -> Result<()> {
        PERFORMED
            .until_ended(
                &self.pool,
                runs,
                "select $1::bigint > 0 and not exists (select from underway.task where state <> 'succeeded')",
            )
            .await
    }

    /// Checks in the database that all steps have succeeded, and what the last step of each run was given: what it
    /// returned is not stored. The sum of what the last steps returned was taken in the process.
    async fn check_chains(&self, runs: u64) -> Result<()> {
        PERFORMED.check(runs)?;
        let found: (i64, i64, i64) = sqlx::query_as(
            "select count(*),
                    count(*) filter (where last),
                    coalesce(sum(case jsonb_typeof(value) when 'object' then (value ->> 'n')::bigint
                                                          else value::bigint end) filter (where last), 0)::bigint
             from (select input -> 'step_input' as value, (input ->> 'step_index')::bigint = $1 as last
                   from underway.task where state = 'succeeded') as tasks",
        )
        .bind((CHAIN_STEPS - 1).cast_signed())
        .fetch_one(&self.pool)
        .await?;
        let sum: u64 = (0..runs).map(|run| chain_output(run) - 1).sum();
        let expected = [runs * CHAIN_STEPS, runs, sum].map(u64::cast_signed);
        if [found.0, found.1, found.2] != expected {
            return Err(
                format!("steps, runs, their sum: {found:?} instead of {expected:?}").into(),
            );
        }
        Ok(())
    }
}

async fn run_alone(client: Job<u64, ()>, number: u64) -> Result<u64> {
    let output = ends::expect(number);
    client.enqueue(&number).await?;
    ends::output(output).await
}

/// A worker at work.
struct Running {
    stop: CancellationToken,
    working: tokio::task::JoinHandle<Result<(), String>>,
}

impl Running {
    async fn stop(self) -> Result<()> {
        self.stop.cancel();
        self.working.await??;
        Ok(())
    }
}
