//! Pruning: old runs are deleted with all their rows.

use std::time::Duration;

use pipeline::Run;
use tests::with_database;

use super::hand::{Hand, callbacks, declare};
use crate::runs::support::{act, eventually, take_up_all};

const DAY: Duration = Duration::from_secs(86_400);

/// Scenarios: T034, T035, T036, T037, T038, T039, T040, T041
#[tokio::test]
async fn old_runs_that_have_ended_go_and_others_stay() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let one = || {
            declare(|p| {
                let a = p.step("a", act("a"));
                p.following(&a).step("b", act("b"));
                callbacks(p);
            })
        };
        let start = async |it: &Hand<'_>| it.client.start(one()).await.unwrap();
        let succeeded = it.client.start(one()).then(one()).await.unwrap();
        let chained = &succeeded.chained().await.unwrap()[0];
        it.drain(&[]).await;
        let halted = start(&it).await;
        it.fail(&halted, "a").await;
        let cancelled = start(&it).await;
        cancelled.cancel().await.unwrap();
        let cancelling = start(&it).await;
        it.taken(&cancelling, "a").await;
        cancelling.cancel().await.unwrap();
        let running = start(&it).await;
        db.move_clock(40 * DAY).await;
        let recent = start(&it).await;
        it.fail(&recent, "a").await;
        assert_eq!(it.status(cancelling.id()).await, "cancelling");
        let attempts = "select count(*) from pipeline.attempts where job >> 18 = $1";
        assert_eq!(it.ask::<_, i64>(&halted, attempts).await, 1);

        assert_eq!(it.client.prune_runs(365 * DAY).await.unwrap(), 0);
        assert_eq!(it.client.prune_runs(30 * DAY).await.unwrap(), 4);
        let rows = |of: &'static str, run: i64| async move {
            let count: i64 = sqlx::query_scalar(of)
                .bind(run)
                .fetch_one(db.pool())
                .await
                .unwrap();
            count
        };
        for run in [&succeeded, chained, &halted, &cancelled].map(Run::id) {
            for of in [
                "select count(*) from pipeline.runs where id = $1",
                "select count(*) from pipeline.steps where run = $1",
                "select count(*) from pipeline.events where run = $1",
                "select count(*) from pipeline.dispatched_callbacks where run = $1",
                "select count(*) from pipeline.chains where $1 in (upstream, downstream)",
                attempts,
            ] {
                assert_eq!(rows(of, run.get()).await, 0, "{of}");
            }
        }
        for run in [&cancelling, &running, &recent] {
            let of = "select count(*) from pipeline.steps where run = $1";
            assert_eq!(rows(of, Run::id(run).get()).await, 2);
        }
    })
    .await;
}

#[tokio::test]
async fn what_jobs_of_your_own_went_through_stays_when_runs_go() {
    with_database(async |db| {
        // Where the ids of jobs have come to those of the first run's steps.
        let far = "alter sequence pipeline.ids restart with 262145";
        sqlx::raw_sql(far).execute(db.pool()).await.unwrap();
        let mut it = Hand::new(db).await;
        let run = it.client.start(declare(|p| {
            p.step("a", act("a"));
        }));
        let run = run.await.unwrap();
        it.fail(&run, "a").await;
        let own = jobs::Client::new(db.pool().clone());
        let job = own.enqueue(act("own")).await.unwrap().id;
        assert_eq!(job.get() >> 18, run.id().get(), "it lies among them");
        let failed = "insert into pipeline.attempts (job, attempt, token, outcome, error_class,
                                                     error_message, ended_at)
                      values ($1, 1, 1, 'retried', 'Told', 'told to', pipeline.now())";
        let failed = sqlx::query(failed).bind(job).execute(db.pool());
        failed.await.unwrap();
        db.move_clock(40 * DAY).await;
        assert_eq!(it.client.prune_runs(30 * DAY).await.unwrap(), 1);
        assert_eq!(own.job(job).attempts().await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_run_that_another_is_being_chained_to_stays() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let one = || {
            declare(|p| {
                p.step("a", act("a"));
            })
        };
        let run = it.client.start(one()).await.unwrap();
        it.fail(&run, "a").await;
        db.move_clock(40 * DAY).await;
        let mut tx = db.pool().begin().await.unwrap();
        let chain = run.then_in(&mut tx, one()).await.unwrap();
        assert_eq!(it.client.prune_runs(30 * DAY).await.unwrap(), 0);
        tx.commit().await.unwrap();
        assert_eq!(it.client.prune_runs(30 * DAY).await.unwrap(), 0);
        // Taken up: it is skipped, and nothing holds the other any more.
        take_up_all(db.pool()).await;
        assert_eq!(it.status(chain.id()).await, "skipped");
        assert_eq!(it.client.prune_runs(30 * DAY).await.unwrap(), 1);
        let error = run.then(one()).await.unwrap_err();
        assert!(matches!(error, pipeline::Error::NoRun(_)), "{error}");

        // And while somebody deletes it, nobody chains to it.
        let run = it.client.start(one()).await.unwrap();
        it.fail(&run, "a").await;
        db.move_clock(40 * DAY).await;
        let mut tx = db.pool().begin().await.unwrap();
        let pruned = "select pipeline.prune_runs_v1(1000, 500, 10000)";
        let pruned: i64 = sqlx::query_scalar(pruned)
            .fetch_one(&mut *tx)
            .await
            .unwrap();
        assert!(pruned >= 1);
        let chained = tokio::spawn({
            let run = run.clone();
            async move { run.then(one()).await }
        });
        eventually("it waits", async || {
            let waiting = "select count(*) from pg_stat_activity
                           where datname = current_database() and wait_event_type = 'Lock'";
            let waiting: i64 = sqlx::query_scalar(waiting)
                .fetch_one(db.pool())
                .await
                .unwrap();
            (waiting > 0).then_some(())
        })
        .await;
        tx.commit().await.unwrap();
        let error = chained.await.unwrap().unwrap_err();
        assert!(matches!(error, pipeline::Error::NoRun(_)), "{error}");
    })
    .await;
}

#[tokio::test]
async fn one_transaction_deletes_so_many_steps_and_a_large_run_goes_alone() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let steps = |count: usize| {
            declare(move |p| {
                for n in 0..count {
                    p.step(&format!("s{n}"), act("s"));
                }
            })
        };
        for count in [2, 2, 2, 7, 2] {
            it.start(steps(count)).await;
        }
        it.drain(&[]).await;
        db.move_clock(40 * DAY).await;
        let sizes = "select coalesce(array_agg(g.size order by g.size), '{}') \
                     from pipeline.runs r join pipeline.graphs g on g.id = r.graph";
        let mut left: Vec<i32> = sqlx::query_scalar(sizes)
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_eq!(left, [2, 2, 2, 2, 7]);
        while !left.is_empty() {
            let page = "select pipeline.prune_runs_v1(1000, 500, 5)";
            let page: i64 = sqlx::query_scalar(page).fetch_one(db.pool()).await.unwrap();
            let now: Vec<i32> = sqlx::query_scalar(sizes)
                .fetch_one(db.pool())
                .await
                .unwrap();
            let steps = left.iter().sum::<i32>() - now.iter().sum::<i32>();
            assert!(
                page == 1 || page == 2 && steps <= 5,
                "{page} runs, {steps} steps"
            );
            left = now;
        }
    })
    .await;
}

/// Rule 17 holds for a run whose upstream is not there any more: it had failed.
#[tokio::test]
async fn a_run_behind_a_deleted_one_that_failed_is_skipped_when_it_is_opened_again() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let one = || {
            declare(|p| {
                p.step("a", act("a"));
            })
        };
        let run = it.client.start(one()).then(one()).then(one());
        let run = run.await.unwrap();
        let [down, last] = &tests::chain_of(&run).await[..] else {
            panic!("two runs come after it");
        };
        down.cancel().await.unwrap();
        it.fail(&run, "a").await;
        it.is(down, "cancelled", "a cancelled").await;
        // The others ended a little later.
        let younger = "update pipeline.runs set created_at = pipeline.now() + interval '20 days'
                       where id <> $1";
        sqlx::query(younger)
            .bind(run.id())
            .execute(db.pool())
            .await
            .unwrap();
        db.move_clock(40 * DAY).await;
        assert_eq!(it.client.prune_runs(30 * DAY).await.unwrap(), 1);
        down.reopen().force().await.unwrap();
        it.is(down, "skipped", "a skipped").await;
        it.is(last, "skipped", "a skipped").await;
        // What came after one that succeeded begins.
        let run = it.client.start(one()).then(one()).await.unwrap();
        let down = &run.chained().await.unwrap()[0];
        down.cancel().await.unwrap();
        it.succeed(&run, "a").await;
        sqlx::query(younger)
            .bind(run.id())
            .execute(db.pool())
            .await
            .unwrap();
        db.move_clock(40 * DAY).await;
        it.client.prune_runs(30 * DAY).await.unwrap();
        down.reopen().force().await.unwrap();
        it.is(down, "running", "a enqueued").await;
    })
    .await;
}
