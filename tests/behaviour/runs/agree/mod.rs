//! Model and Postgres agree.
//!
//! Random graphs, several runs of each at once, random outcomes. Attempts end in groups of any size, sent
//! by several workers at the same time, some twice, some late. The same ends go through the reference
//! model, and after every round every row must be what the model says.
//!
//! `PIPELINE_AGREE_CASES` says how many cases each of the tests tries.

mod case;
mod compare;
mod game;
mod outside;
mod table;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use tests::model::arbitrary::Knobs;
use tests::model::histories::{History, chained_history, history, reopened_history};
use tests::with_database;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use case::{Case, case};
use outside::{Outside, Seen};
use table::Table;

/// How many cases, and who tries them.
fn runner(cases: u32) -> (u32, TestRunner) {
    let cases = std::env::var("PIPELINE_AGREE_CASES")
        .map_or(cases, |cases| cases.parse().expect("a number of cases"));
    let runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 500,
        ..Config::default()
    });
    (cases, runner)
}

fn disagree<C: std::fmt::Debug>(error: TestError<C>) -> ! {
    match error {
        TestError::Fail(why, case) => panic!("{case:#?}\n{why}"),
        TestError::Abort(why) => panic!("{why}"),
    }
}

/// Cases of one test, one after the other in one database.
async fn agree(cases: u32, knobs: Knobs) {
    with_database(async |db| {
        let (cases, mut runner) = runner(cases);
        let mut table = Table::new(db).await;
        let table = std::cell::RefCell::new(&mut table);
        let outcome = runner.run(&case(knobs), |case: Case| {
            let mut table = table.borrow_mut();
            block_in_place(|| Handle::current().block_on(table.play(&case)))
        });
        let seen = table.borrow().seen;
        match outcome {
            Ok(()) if cases < 100 => {}
            // Each of these follows from the drawn cases, and is large in hundreds of them: zero means that the
            // cases no longer contain such events. `held` depends on the scheduler, and is only printed.
            Ok(()) => {
                let ends = [seen.stale, seen.lost, seen.handed_over, seen.grouped];
                let paths = [seen.behind_barriers, seen.none_taken];
                assert!(
                    ends.iter().chain(&paths).all(|count| *count > 0),
                    "{seen:?}"
                );
                eprintln!("{cases} cases: {seen:?}");
            }
            Err(why) => disagree(why),
        }
    })
    .await;
}

/// Scenarios: T140, T141, T142, T186, T187, T189
#[tokio::test(flavor = "multi_thread")]
async fn model_and_postgres_agree() {
    agree(300, Knobs::JOBS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn model_and_postgres_agree_where_nothing_halts() {
    let knobs = Knobs {
        halt: false,
        end_run: false,
        ..Knobs::JOBS
    };
    agree(200, knobs).await;
}

/// Histories with what comes from outside, one after the other in one database.
/// `required` picks the counts that must not be zero: each is expected to be large, so that a zero means that
/// the histories no longer contain such events.
async fn agree_outside(
    cases: u32,
    histories: impl Strategy<Value = History>,
    required: impl Fn(&Seen) -> Vec<usize>,
) {
    with_database(async |db| {
        let (cases, mut runner) = runner(cases);
        let mut table = Outside::new(db).await;
        let table = std::cell::RefCell::new(&mut table);
        let outcome = runner.run(&histories, |history: History| {
            let mut table = table.borrow_mut();
            // What other histories have left in the queue is no part of this one.
            let played = block_in_place(|| {
                Handle::current().block_on(async {
                    let clear = "truncate pipeline.jobs, pipeline.runs, pipeline.steps, \
                                 pipeline.events, pipeline.chains, pipeline.dispatched_callbacks, pipeline.requests";
                    sqlx::raw_sql(clear).execute(db.pool()).await.unwrap();
                    table.play(&history).await
                })
            });
            played.map_err(TestCaseError::fail)
        });
        let seen = table.borrow().seen;
        match outcome {
            Ok(()) => {
                assert!(required(&seen).iter().all(|count| *count > 0), "{seen:?}");
                eprintln!("{cases} histories: {seen:?}");
            }
            Err(why) => disagree(why),
        }
    })
    .await;
}

/// Small graphs: the subject is what happens around them.
const SMALL: Knobs = Knobs {
    blocks: 3,
    ..Knobs::JOBS
};

#[tokio::test(flavor = "multi_thread")]
async fn model_and_postgres_agree_on_chained_cancelled_and_reopened_runs() {
    let required = |seen: &Seen| {
        let outside = vec![seen.chained, seen.cancelled, seen.reopened, seen.skipped];
        [outside, vec![seen.stale, seen.taken_over, seen.callbacks]].concat()
    };
    agree_outside(300, chained_history(SMALL), required).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn model_and_postgres_agree_on_cancelled_runs() {
    let required = |seen: &Seen| vec![seen.cancelled, seen.stale, seen.taken_over, seen.callbacks];
    agree_outside(200, history(SMALL), required).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn model_and_postgres_agree_on_runs_that_are_reopened_again_and_again() {
    // The other two counts of reopenings are too small to require them: `runs::reopening` has a test for each.
    let required = |seen: &Seen| vec![seen.reopened, seen.refused, seen.callbacks];
    let knobs = Knobs { blocks: 5, ..SMALL };
    agree_outside(200, reopened_history(knobs), required).await;
}
