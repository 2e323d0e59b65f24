//! The workers and the database on which a case is played.

use std::time::Duration;

use ::jobs::testing::{ManualEngine, Turn};
use ::jobs::{Context, Job, JobError, Perform};
use futures_util::future::try_join_all;
use pipeline::graph::spec::Takes;
use pipeline::{Client, NewRun, Worker};
use proptest::test_runner::TestCaseError;
use serde::{Deserialize, Serialize};
use tests::Database;
use tests::model::index::Node;
use tests::model::{Model, Step, Why};

use super::case::Case;
use super::game::{Game, Part};

/// How many workers there are.
pub(super) const HANDS: usize = 3;
/// Longer than the lease of a step.
const LEASE: Duration = Duration::from_secs(31);

macro_rules! known {
    ($($name:ident)*) => {
        $(#[derive(Serialize, Deserialize, Job)]
        pub(super) struct $name;

        impl Perform for $name {
            type Input = ();
            type Output = ();
            async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
                Ok(())
            }
        })*
    };
}
known!(Work Decide);

/// The workers, and the database between them.
pub(super) struct Table<'a> {
    pub(super) db: &'a Database,
    client: Client,
    hands: Vec<ManualEngine>,
    failed: bool,
    pub(super) seen: Seen,
}

/// What has happened at the table: a proof that nothing of it was left out.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Seen {
    /// Ends that changed nothing.
    pub(super) stale: usize,
    /// Ends that another worker held up.
    pub(super) held: usize,
    /// Attempts that were taken over.
    pub(super) lost: usize,
    /// Steps that began where the one before them ended.
    pub(super) handed_over: usize,
    /// Ends that came together with others of their run.
    pub(super) grouped: usize,
    /// Error paths behind barriers that ran.
    pub(super) behind_barriers: usize,
    /// `after_any` steps of which no upstream was taken.
    pub(super) none_taken: usize,
}

impl<'a> Table<'a> {
    pub(super) async fn new(db: &'a Database) -> Self {
        let mut hands = Vec::new();
        for _ in 0..HANDS {
            let worker = Worker::new(db.pool().clone())
                .register::<(Work, Decide)>()
                .queue("*", 1_000);
            hands.push(worker.into_jobs().manual().await.unwrap());
        }
        Self {
            db,
            client: Client::new(db.pool().clone()),
            hands,
            failed: false,
            seen: Seen::default(),
        }
    }

    pub(super) async fn play(&mut self, case: &Case) -> Result<(), TestCaseError> {
        if std::mem::take(&mut self.failed) {
            // What the failed case before this one has left behind is no part of it.
            let clear = "truncate pipeline.runs, pipeline.steps, pipeline.events, pipeline.jobs";
            sqlx::raw_sql(clear).execute(self.db.pool()).await.unwrap();
        }
        let played = self.drive(case).await;
        self.failed = played.is_err();
        played.map_err(TestCaseError::fail)
    }

    async fn drive(&mut self, case: &Case) -> Result<(), String> {
        let mut game = Game::new(case);
        let runs = case.runs.iter().map(|(_, kept)| {
            let run = NewRun::new(case.pipeline());
            run.event_level(kept.history())
        });
        let runs: Vec<_> = runs.collect();
        let runs = self.client.start(runs).await.map_err(string)?;
        game.ids = runs.iter().map(|run| run.id().get()).collect();
        game.compare(self.db).await?;
        while !game.is_over() {
            let lost = if game.chance(8) {
                self.db.move_clock_without_leases(LEASE).await;
                self.hands[0].tick().await.map_err(string)?
            } else {
                Vec::new()
            };
            let round = game.round(lost);
            let turns = self.hands.iter_mut().zip(&round);
            let turns = turns.map(|(hand, part)| part.take(hand));
            let turns = try_join_all(turns).await.map_err(string)?;
            self.seen.note(&round, &turns);
            game.follow(self.db, &round, &turns).await?;
            game.compare(self.db).await?;
        }
        let (behind_barriers, none_taken) = error_paths(&game.model);
        self.seen.behind_barriers += behind_barriers;
        self.seen.none_taken += none_taken;
        Ok(())
    }
}

impl Seen {
    fn note(&mut self, parts: &[Part], turns: &[Turn]) {
        for (part, turn) in parts.iter().zip(turns) {
            self.stale += turn.stale.len();
            self.held += turn.held.len();
            self.lost += part.sent.iter().filter(|sent| sent.lost).count();
            if !part.slots.claim {
                self.handed_over += turn.claimed.len();
            }
            let mut runs: Vec<i64> = turn.ended.iter().map(|end| end.job() >> 18).collect();
            runs.sort_unstable();
            let all = runs.len();
            runs.dedup();
            self.grouped += all - runs.len();
        }
    }
}

/// The error paths behind barriers that ran, and the `after_any` steps of which no upstream was taken.
fn error_paths(model: &Model) -> (usize, usize) {
    let steps = || {
        let runs = model.runs().iter();
        runs.flat_map(|run| run.graph.nodes.iter().zip(&run.steps))
    };
    let is_behind_barrier = |(node, step): &(&Node, &Step)| {
        let mut links = node.links.iter();
        step.ended_by.is_some() && links.any(|link| link.takes == Takes::Ended)
    };
    let is_none_taken = |(_, step): &(&Node, &Step)| step.why == Some(Why::NoneTaken);
    (
        steps().filter(is_behind_barrier).count(),
        steps().filter(is_none_taken).count(),
    )
}

pub(super) fn string(error: impl std::fmt::Display) -> String {
    error.to_string()
}
