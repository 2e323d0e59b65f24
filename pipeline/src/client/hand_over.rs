//! Hands the first steps of a start over to a worker of this process.

use std::collections::HashSet;

use jobs::extension::{Claimed, HandOver, Input, Owner};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{PgConnection, Postgres};

use super::insert::StartRow;
use super::rows::StepRow;
use super::start_plan::Group;
use crate::db::graphs::options_json;
use crate::db::ids::{run_of, step_id};
use crate::db::shape::arrange;
use crate::graph::Node;

/// The maximum size of the params of a step that is handed over, in bytes. A step with larger params queues, because a
/// claim bounds the total size of the params that it loads.
const MAX_PARAMS_BYTES: usize = 8 << 10;

/// The statement of a start, ready to be sent.
pub(super) type Statement<F> = sqlx::query::Map<'static, Postgres, F, PgArguments>;

/// The first steps of a start for which a worker of this process has reserved slots.
#[derive(Debug)]
pub(super) struct Offer {
    hand_over: HandOver,
    jobs: Vec<Claimed>,
}

/// The answer to a start that was sent with an offer.
pub(super) struct Answer {
    pub(super) connection: PoolConnection<Postgres>,
    pub(super) row: Result<StartRow, sqlx::Error>,
    /// The offer, if the answer was lost. The worker may have claimed the jobs of the offer. When the offer is dropped,
    /// the worker releases such claims.
    pub(super) lost: Option<Offer>,
}

impl Offer {
    /// Reserves slots for first steps in a worker of this process that serves this database, and sets the tokens
    /// of these steps. Returns `None` if all first steps have to queue.
    pub(super) fn of(database: &str, group: &Group<'_>, steps: &mut [StepRow<'_>]) -> Option<Self> {
        if group.is_chained {
            return None;
        }
        HandOver::candidates(database)
            .into_iter()
            .find_map(|mut hand_over| {
                let first = steps.iter_mut().filter(|step| step.waits == 0);
                let jobs: Vec<Claimed> = first
                    .filter_map(|step| offer(&mut hand_over, group, step))
                    .collect();
                (!jobs.is_empty()).then_some(Self { hand_over, jobs })
            })
    }

    /// Returns the id of the worker and the identity of its database.
    pub(super) fn worker(&self) -> (i64, &str) {
        (self.hand_over.worker(), self.hand_over.database())
    }

    /// Sends the start, and starts the jobs that were handed over. Both happen in a task of their own, so that the jobs
    /// are started even if the caller stops waiting.
    pub(super) async fn send<F>(
        self,
        connection: PoolConnection<Postgres>,
        statement: Statement<F>,
    ) -> Result<Answer, sqlx::Error>
    where
        F: FnMut(PgRow) -> Result<StartRow, sqlx::Error> + Send + 'static,
    {
        let task = tokio::spawn(self.send_and_begin(connection, statement));
        // The task was aborted with its runtime, or it panicked.
        task.await.map_err(|_| sqlx::Error::WorkerCrashed)
    }

    async fn send_and_begin<F>(
        mut self,
        mut connection: PoolConnection<Postgres>,
        statement: Statement<F>,
    ) -> Answer
    where
        F: FnMut(PgRow) -> Result<StartRow, sqlx::Error> + Send,
    {
        let sent = statement.fetch_one(&mut *connection);
        let row = self.hand_over.send(sent).await;
        let lost = match &row {
            Ok(row) if row.handed_over => {
                self.begin(&mut connection, row).await;
                None
            }
            Ok(_) => {
                self.hand_over.unused();
                None
            }
            Err(_) => Some(self),
        };
        Answer {
            connection,
            row,
            lost,
        }
    }

    /// Starts the jobs of the new runs, or gives the jobs back if the worker can no longer start them.
    async fn begin(self, connection: &mut PgConnection, row: &StartRow) {
        let Self {
            mut hand_over,
            mut jobs,
        } = self;
        if let Some(found) = row.found() {
            let new: HashSet<i64> = found
                .filter(|(_, it)| *it == "new")
                .map(|(id, _)| id)
                .collect();
            jobs.retain(|job| new.contains(&run_of(job.id)));
        }
        let (ids, tokens): (Vec<i64>, Vec<i64>) =
            jobs.iter().map(|job| (job.id, job.token)).unzip();
        if hand_over.begin(jobs).await {
            return;
        }
        let given_back = sqlx::query_file!("src/sql/give_back_first.sql", &ids, &tokens)
            .fetch_one(connection)
            .await;
        match given_back {
            Ok(_) => hand_over.unused(),
            Err(error) => tracing::debug!(%error, "handed-over jobs could not be given back"),
        }
    }
}

/// Reserves a slot for a first step, and sets the step's token. Returns the job of the step.
fn offer(hand_over: &mut HandOver, group: &Group<'_>, step: &mut StepRow<'_>) -> Option<Claimed> {
    let node = group.graph.node(u32::try_from(step.no).ok()?)?;
    let (kind, version) = node.job()?;
    let options = node.options()?;
    let params = step.params.as_ref().map_or("null", |params| &*params.0);
    if options.delay_ms > 0 || params.len() > MAX_PARAMS_BYTES {
        return None;
    }
    let token = hand_over.reserve(&options.queue, kind, version, options.priority)?;
    step.token = Some(token);
    let id = step_id(step.run, node.no());
    let mut job = Claimed::handed_over(id, token, kind.to_owned(), options.queue.clone());
    job.priority = options.priority;
    job.max_attempts = i16::try_from(options.max_attempts).unwrap_or(i16::MAX);
    job.lease_ms = i32::try_from(options.lease_ms).unwrap_or(i32::MAX);
    job.args = params.to_owned();
    job.options = options_json(group.graph, node);
    job.input = input(node);
    job.owner = Some(Owner {
        id: step.run,
        label: node.key().to_owned(),
        generation: 1,
    });
    Some(job)
}

/// Returns the input of a step that has no upstream steps.
fn input(node: Node<'_>) -> Input {
    let shape = node.step().input.as_ref();
    shape.map_or(Input::None, |shape| {
        Input::Value(arrange(shape, &mut std::iter::empty()))
    })
}
