//! Callbacks, chains, cancelling, reopening.

use std::time::Duration;

use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Continue, Error, Pipeline, RunFilter, RunStatus, StepContext as _, Worker};
use serde::{Deserialize, Serialize};
use tests::with_database;

use super::support::{Running, Told, What, act, eventually};
use crate::logged::Captured;

fn simple(name: &str) -> Pipeline<String> {
    Pipeline::configure(name, |p| {
        let a = p.step("a", act(&format!("{name}.a")));
        let b = p.following(&a).step("b", act(&format!("{name}.b")));
        p.on_complete(Told("complete".into()));
        p.on_success(Told("success".into()));
        p.on_failure(Told("failure".into()));
        b
    })
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn callbacks_fire_once_for_what_they_are_for() {
    with_database(async |db| {
        let it = Running::start(db);
        let run = it.client.start(simple("good")).await.unwrap();
        it.becomes(&run, "succeeded").await;
        it.script.says("complete good succeeded 1 []").await;
        it.script.says("success good succeeded 1 []").await;
        it.script.tell("bad.a", What::Fail);
        let run = it.client.start(simple("bad")).await.unwrap();
        it.becomes(&run, "halted").await;
        it.script.says("complete bad halted 1 [a]").await;
        it.script.says("failure bad halted 1 [a]").await;
        it.script.tell("bad.a", What::Succeed);
        run.reopen().await.unwrap();
        it.becomes(&run, "succeeded").await;
        it.script.says("complete bad succeeded 2 []").await;
        it.script.says("success bad succeeded 2 []").await;
        let lines = it.script.log();
        assert_eq!(
            lines.iter().filter(|line| line.contains(" [")).count(),
            6,
            "{lines:?}"
        );
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_runs_stage_after_stage_and_is_skipped_after_a_failure() {
    with_database(async |db| {
        let it = Running::start(db);
        let run = it
            .client
            .start(simple("one"))
            .then(simple("two"))
            .then((simple("three"), simple("four")))
            .then(simple("five"))
            .await
            .unwrap();
        let chained = tests::chain_of(&run).await;
        assert_eq!(chained.len(), 4);
        it.becomes(&chained[3], "succeeded").await;
        let steps: Vec<String> = it
            .script
            .log()
            .into_iter()
            .filter(|l| !l.contains('['))
            .collect();
        let place = |line: &str| steps.iter().position(|it| it == line).unwrap();
        assert!(place("one.b") < place("two.a") && place("two.b") < place("three.a"));
        assert!(place("three.b") < place("five.a") && place("four.b") < place("five.a"));

        it.script.tell("two.a", What::Fail);
        let run = it
            .client
            .start(simple("one"))
            .then(simple("two"))
            .then(simple("six"))
            .await
            .unwrap();
        let chained = tests::chain_of(&run).await;
        it.becomes(&chained[1], "skipped").await;
        assert_eq!(it.steps(&chained[1]).await, ["a skipped", "b skipped"]);
        it.script.says("complete six skipped 1 []").await;
        it.script.tell("two.a", What::Succeed);
        chained[0].reopen().await.unwrap();
        it.becomes(&chained[1], "succeeded").await;
        // Late: what it is chained to has ended.
        let late = run.then(simple("late")).await.unwrap();
        it.becomes(&late, "succeeded").await;
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_stops_what_runs_and_never_starts_the_rest() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("x.a", What::Wait);
        let run = it
            .client
            .start(simple("x"))
            .then(simple("y"))
            .await
            .unwrap();
        it.script.says("x.a").await;
        run.cancel().await.unwrap();
        it.script.says("x.a stopped").await;
        it.becomes(&run, "cancelled").await;
        run.cancel().await.unwrap();
        assert_eq!(it.steps(&run).await, ["a cancelled", "b cancelled"]);
        it.becomes(&run.chained().await.unwrap()[0], "skipped")
            .await;
        it.script.says("complete x cancelled 1 []").await;
        it.script.tell("x.a", What::Succeed);
        run.reopen().await.unwrap();
        it.becomes(&run, "succeeded").await;
        it.becomes(&run.chained().await.unwrap()[0], "succeeded")
            .await;
        let refused = run.cancel().await.unwrap_err();
        assert!(
            matches!(
                refused,
                Error::NotCancellable {
                    status: RunStatus::Succeeded,
                    ..
                }
            ),
            "{refused}"
        );
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_fails_the_run() {
    with_database(async |db| {
        let it = Running::start(db);
        let pipeline = Pipeline::configure("slow", |p| {
            p.failure_strategy(Continue);
            p.deadline(Duration::from_secs(60));
            let a = p.step("a", act("slow.a"));
            p.following(&a).step("b", act("slow.b"));
            p.on_failure(Told("failure".into()));
        });
        it.script.tell("slow.a", What::WaitStubbornly);
        let run = it.client.start(pipeline.unwrap()).await.unwrap();
        it.script.says("slow.a").await;
        db.move_clock(Duration::from_secs(61)).await;
        it.becomes(&run, "cancelling").await;
        it.script.let_through("slow.a");
        it.becomes(&run, "failed").await;
        assert_eq!(it.steps(&run).await, ["a succeeded", "b cancelled"]);
        it.script.says("failure slow failed 1 []").await;
        assert!(run.state().await.unwrap().deadline_exceeded);
        let other = Pipeline::configure("quick", |p| {
            p.deadline(Duration::from_secs(60));
            p.step("a", act("quick.a"));
        });
        let other = it.client.start(other.unwrap()).await.unwrap();
        it.becomes(&other, "succeeded").await;
        let listed = it.client.runs(&RunFilter::default()).await.unwrap();
        let exceeded: Vec<_> = listed
            .items
            .iter()
            .map(|run| (run.id, run.deadline_exceeded))
            .collect();
        assert_eq!(exceeded, [(other.id(), false), (run.id(), true)]);
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_in_a_transaction_happens_when_it_is_committed() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("x.a", What::Wait);
        let run = it.client.start(simple("x")).await.unwrap();
        it.script.says("x.a").await;
        let mut tx = db.pool().begin().await.unwrap();
        run.cancel_in(&mut tx).await.unwrap();
        let late = run.then_in(&mut tx, simple("late")).await.unwrap();
        tx.rollback().await.unwrap();
        let mut tx = db.pool().begin().await.unwrap();
        let late_too = run.then_in(&mut tx, simple("late")).await.unwrap();
        tx.commit().await.unwrap();
        it.script.let_through("x.a");
        it.becomes(&late_too, "succeeded").await;
        let there: i64 = sqlx::query_scalar("select count(*) from pipeline.runs where id = $1")
            .bind(late.id())
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_eq!(there, 0);
        it.stop().await;
    })
    .await;
}

/// On one thread: the test's own.
#[tokio::test]
async fn a_step_that_fails_for_good_is_one_log_line_with_its_reason_run_step_and_key() {
    Captured::begin();
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("bad.b", What::Fail);
        let run = it.client.start(simple("bad")).key("order-7").await.unwrap();
        it.becomes(&run, "halted").await;
        it.stop().await;
        let log = Captured::text();
        let of_it = |line: &&str| line.contains("job failed for good");
        let lines: Vec<&str> = log.lines().filter(of_it).collect();
        assert_eq!(lines.len(), 1, "{log}");
        for part in [
            " WARN ".to_owned(),
            format!("run.id={}", run.id()),
            "step.key=\"b\"".to_owned(),
            "key=\"order-7\"".to_owned(),
            "job.type=\"act\"".to_owned(),
            "error.class=\"Told\"".to_owned(),
            "error.message=\"told to fail\"".to_owned(),
        ] {
            assert!(lines[0].contains(&part), "{part}: {}", lines[0]);
        }
        assert!(log.contains("worker stopped"), "{log}");
    })
    .await;
}

#[derive(Serialize, Deserialize, Job)]
struct Talk;

impl Perform for Talk {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        tracing::info!("inside");
        cx.end_run();
        Ok(())
    }
}

#[tokio::test]
async fn what_a_step_logs_stands_in_the_spans_of_its_run_and_its_job() {
    Captured::begin();
    with_database(async |db| {
        let it = Running::start_with(db, Worker::register::<Talk>);
        let pipeline = Pipeline::configure("x", |p| p.step("talk", Talk)).unwrap();
        let run = it.client.start(pipeline).await.unwrap();
        it.becomes(&run, "succeeded").await;
        let plain = it.client.enqueue(Talk).await.unwrap().id;
        let span = format!("job{{job.id={plain} ");
        eventually("the plain job has logged", async || {
            let log = Captured::so_far();
            let inside = |line: &&str| line.contains(&span) && line.ends_with("inside");
            let line = log.lines().find(inside)?;
            assert!(!line.contains("run{"), "{line}");
            Some(())
        })
        .await;
        it.stop().await;
        let log = Captured::text();
        let spans = format!("run{{run.id={} step.key=\"talk\"}}:job{{job.id=", run.id());
        let inside = |line: &&str| line.contains(&spans) && line.ends_with("inside");
        assert_eq!(log.lines().filter(inside).count(), 1, "{log}");
    })
    .await;
}

/// A job that is not a step has no run to end.
#[tokio::test(flavor = "multi_thread")]
async fn end_run_has_no_effect_in_a_job_that_is_not_a_step() {
    with_database(async |db| {
        let set_up = |worker: Worker| worker.register::<Talk>().keep_succeeded(true);
        let it = Running::start_with(db, set_up);
        let job = it.client.enqueue(Talk).await.unwrap().id;
        let status = eventually("the job has ended", async || {
            let query =
                "select status::text from pipeline.jobs where id = $1 and ended_at is not null";
            let status = sqlx::query_scalar::<_, String>(query).bind(job);
            status.fetch_optional(db.pool()).await.unwrap()
        })
        .await;
        assert_eq!(status, "succeeded");
        it.stop().await;
    })
    .await;
}

#[tokio::test]
async fn the_failure_of_an_optional_step_is_no_warning() {
    Captured::begin();
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("side", What::Fail);
        let pipeline = Pipeline::configure("video", |p| {
            p.step("side", act("side")).optional();
            p.step("main", act("main"))
        });
        let run = it.client.start(pipeline.unwrap()).await.unwrap();
        it.becomes(&run, "succeeded").await;
        it.stop().await;
        let log = Captured::text();
        let of_it = |line: &&str| line.contains("optional job failed");
        let lines: Vec<&str> = log.lines().filter(of_it).collect();
        assert_eq!(lines.len(), 1, "{log}");
        assert!(lines[0].contains(" INFO "), "{}", lines[0]);
        assert!(!log.contains("job failed for good"), "{log}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_that_cannot_be_done_keeps_nobody_from_the_others() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("late", What::Wait);
        let late = Pipeline::configure("late", |p| {
            p.deadline(Duration::from_secs(60));
            p.step("a", act("late"))
        });
        let late = it.client.start(late.unwrap()).await.unwrap();
        it.script.says("late").await;
        let run = it.client.start(simple("one")).await.unwrap();
        it.becomes(&run, "succeeded").await;
        sqlx::raw_sql(
            "create function refuse() returns trigger language plpgsql
             as $$ begin raise exception 'not this one'; end $$;
             create trigger refuse before delete on pipeline.requests for each row
             when (old.kind = 'cancel') execute function refuse();",
        )
        .execute(db.pool())
        .await
        .unwrap();
        let mut tx = db.pool().begin().await.unwrap();
        run.cancel_in(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        // The client takes up what there is, and is not told of the trouble of others.
        let chain = run.then(simple("two")).await.unwrap();
        it.becomes(&chain, "succeeded").await;
        let mut tx = db.pool().begin().await.unwrap();
        let chain = run.then_in(&mut tx, simple("three")).await.unwrap();
        tx.commit().await.unwrap();
        it.becomes(&chain, "succeeded").await;
        db.move_clock(Duration::from_secs(61)).await;
        it.becomes(&late, "failed").await;
        let heal = "drop trigger refuse on pipeline.requests";
        sqlx::raw_sql(heal).execute(db.pool()).await.unwrap();
        it.stop().await;
    })
    .await;
}
