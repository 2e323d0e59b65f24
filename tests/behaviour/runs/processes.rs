//! Runs in processes of their own: several at once, and killed before and after a commit.

use std::collections::BTreeMap;

use std::time::Duration;

use pipeline::{Client, NewRun, Pipeline};
use rustix::process::Signal;
use tests::model::{Model, Outcome, StepStatus};
use tests::steps::{self, Begin, Break, Choose, Join, Mend, Perhaps, Plus, WayArms, worker};
use tests::{Database, with_database};

use super::working::{Working, run_ended, steps as steps_of};
use crate::jobs::support::eventually;
use crate::processes::Staying;

type Declared = Pipeline<i64>;

fn linear() -> Declared {
    Pipeline::configure("linear", |p| {
        let first = p.step("first", Begin(1));
        first.then("second", Plus(1)).then("third", Plus(1))
    })
    .unwrap()
}

fn diamond() -> Declared {
    Pipeline::configure("diamond", |p| {
        let source = p.step("source", Begin(1));
        let (left, right) = (source.then("left", Plus(1)), source.then("right", Plus(2)));
        p.after((&left, &right)).step("join", Join(0))
    })
    .unwrap()
}

fn error_path() -> Declared {
    Pipeline::configure("error_path", |p| {
        let source = p.step("source", Begin(1));
        let risky = source.then("risky", Break(0)).optional();
        p.after_failure(&risky).step("mend", Mend(2));
        risky.then("go_on", Perhaps(3))
    })
    .unwrap()
}

/// It fails under Halt with others before it and after it.
fn halted() -> Declared {
    Pipeline::configure("halted", |p| {
        let source = p.step("source", Begin(1));
        let risky = source.then("risky", Break(0));
        p.after_failure(&risky).step("mend", Mend(2));
        risky.then("never", Plus(3))
    })
    .unwrap()
}

fn conditional() -> Declared {
    Pipeline::configure("conditional", |p| {
        let number = p.step("number", Begin(1));
        let way = number.branch(
            "choose",
            Choose(10),
            WayArms {
                high: || number.then("lower", Plus(-10)),
                low: || number.then("raise", Plus(10)),
            },
        );
        way.then("after", Plus(100))
    })
    .unwrap()
}

#[tokio::test]
async fn a_hundred_lines_and_fifty_diamonds_end_and_no_step_is_executed_twice() {
    with_database(async |db| {
        steps::prepare(db.pool()).await;
        let processes = [(); 2].map(|()| Staying::spawn(&["steps", db.url(), "8", "never", "0"]));
        eventually("two workers", async || {
            let workers: i64 = sqlx::query_scalar("select count(*) from pipeline.workers")
                .fetch_one(db.pool())
                .await
                .unwrap();
            (workers == 2).then_some(())
        })
        .await;
        let client = Client::new(db.pool().clone());
        let lines = (0..100).map(|_| NewRun::new(linear()));
        let diamonds = (0..50).map(|_| NewRun::new(diamond()));
        let runs = client
            .start(lines.chain(diamonds).collect::<Vec<_>>())
            .await
            .unwrap();
        for run in &runs {
            assert_eq!(run_ended(db, run.id()).await, "succeeded");
        }
        let wrong: Vec<(i64, String, Option<String>)> = sqlx::query_as(
            "select v.run, v.step, s.output::text from pipeline.run_steps v
             join pipeline.steps s on s.run = v.run and s.no = v.no
             where v.status <> 'succeeded' or v.step = 'join' and s.output::text <> '5'
                or v.step = 'third' and s.output::text <> '3'",
        )
        .fetch_all(db.pool())
        .await
        .unwrap();
        assert_eq!(wrong, []);
        // A lost lease is an attempt that did not succeed, and leaves a row.
        let twice: Vec<(i64, i64, i64)> = sqlx::query_as(
            "select job, count(*), (select count(*) from pipeline.attempts a where a.job = e.job)
             from executed e group by job
             having count(*) > 1 + (select count(*) from pipeline.attempts a where a.job = e.job)",
        )
        .fetch_all(db.pool())
        .await
        .unwrap();
        assert_eq!(twice, []);
        let (steps, processes_that_worked): (i64, i64) =
            sqlx::query_as("select count(distinct job), count(distinct pid) from executed")
                .fetch_one(db.pool())
                .await
                .unwrap();
        assert_eq!((steps, processes_that_worked), (100 * 3 + 50 * 4, 2));
        for process in processes {
            process.signal(Signal::TERM);
            assert!(process.wait().await.success());
        }
    })
    .await;
}

/// How the model says that a run of it ends, all attempts ending as these steps do.
fn by_the_model(pipeline: &Declared) -> (String, Vec<(String, String)>) {
    let mut model = Model::new(pipeline.graph().spec());
    let run = model.start();
    while let Some(key) = model
        .statuses(run)
        .into_iter()
        .find(|(_, status)| *status == StepStatus::Enqueued)
        .map(|(key, _)| key)
    {
        let outcome = match &*key {
            "risky" => Outcome::Failed,
            "choose" => Outcome::Chose("Low".to_owned()),
            _ => Outcome::Success(1),
        };
        model.run_attempt(run, &key, outcome);
    }
    let statuses = model.statuses(run).into_iter();
    let statuses = statuses.map(|(key, status)| (key.to_string(), status.to_string()));
    (model.status(run).to_string(), statuses.collect())
}

/// How often each step of a run was executed.
async fn executions(db: &Database, run: pipeline::RunId) -> BTreeMap<String, i64> {
    let rows: Vec<(String, i64)> = sqlx::query_as(
        "select v.step, count(*) from executed e join pipeline.run_steps v on v.batch = e.job
         where v.run = $1 group by v.step",
    )
    .bind(run)
    .fetch_all(db.pool())
    .await
    .unwrap();
    rows.into_iter().collect()
}

/// A worker is killed when so many advances have come to the moment; another goes on.
async fn killed_and_continued(db: &Database, declare: fn() -> Declared, moment: &str, time: usize) {
    let client = Client::new(db.pool().clone());
    let run = client.start(declare()).await.unwrap().id();
    let process = Staying::spawn(&["steps", db.url(), "1", moment, &time.to_string()]);
    eventually("the moment", async || {
        sqlx::query_scalar::<_, i32>("select pid from reached where pid = $1")
            .bind(process.pid())
            .fetch_optional(db.pool())
            .await
            .unwrap()
    })
    .await;
    process.kill();
    let before = executions(db, run).await;
    // Nobody renews what it had.
    db.move_clock_without_leases(Duration::from_secs(31)).await;
    let working = Working::start(worker(db.pool(), 1));
    let status = run_ended(db, run).await;
    working.stop().await;
    let pipeline = declare();
    let about = format!("{} killed {moment} commit {time}", pipeline.name());
    let (expected, mut statuses) = by_the_model(&pipeline);
    let mut found: Vec<(String, String)> = steps_of(db, run)
        .await
        .into_iter()
        .map(|(key, status, _)| (key, status))
        .collect();
    found.sort_unstable();
    statuses.sort_unstable();
    assert_eq!((status, found), (expected, statuses), "{about}");
    assert_eq!(
        before.values().sum::<i64>(),
        i64::try_from(time).unwrap(),
        "{about}"
    );
    let twice = executions(db, run)
        .await
        .into_values()
        .filter(|count| *count != 1);
    let twice: Vec<i64> = twice.collect();
    // What was written down is not done again; what was not, is.
    let allowed: &[i64] = if moment == "before" { &[2] } else { &[] };
    assert_eq!(twice, allowed, "{about}");
}

async fn killed_at_each_advance(declare: fn() -> Declared) {
    with_database(async |db| {
        steps::prepare(db.pool()).await;
        let (_, statuses) = by_the_model(&declare());
        let ran = |(key, status): &&(String, String)| {
            !key.contains(':') && !status.starts_with("skipped")
        };
        let ends = statuses.iter().filter(ran).count();
        for time in 1..=ends {
            killed_and_continued(db, declare, "before", time).await;
            killed_and_continued(db, declare, "after", time).await;
        }
    })
    .await;
}

macro_rules! killed {
    ($($name:ident $shape:ident)*) => {
        $(#[tokio::test]
        async fn $name() {
            killed_at_each_advance($shape).await;
        })*
    };
}

killed! {
    a_line_survives_a_kill_at_each_commit linear
    a_diamond_survives_a_kill_at_each_commit diamond
    an_error_path_survives_a_kill_at_each_commit error_path
    a_halted_run_survives_a_kill_at_each_commit halted
    a_branch_survives_a_kill_at_each_commit conditional
}
