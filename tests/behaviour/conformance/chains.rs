//! Chains: runs that start after other runs.

use pipeline::{Continue, Pipeline, Run, RunFilter};
use tests::with_database;

use super::hand::{Hand, callbacks, failure, named, success};
use crate::runs::support::{Running, act};

/// One step called like the pipeline, and callbacks.
fn one(name: &str) -> Pipeline {
    named(name, |p| {
        p.step(name, act(name));
        callbacks(p);
    })
}

async fn chain(it: &Hand<'_>, names: [&str; 3]) -> [Run; 3] {
    let [a, b, c] = names.map(one);
    let run = it.client.start(a).then(b).then(c).await.unwrap();
    let [second, third] = tests::chain_of(&run).await.try_into().unwrap();
    [run, second, third]
}

/// Scenarios: T033
#[tokio::test]
async fn a_chain_can_be_followed_up_and_down() {
    with_database(async |db| {
        let it = Hand::new(db).await;
        let runs = chain(&it, ["a", "b", "c"]).await;
        let ids = runs.each_ref().map(Run::id);
        for (at, (up, down)) in [(None, Some(1)), (Some(0), Some(2)), (Some(1), None)]
            .into_iter()
            .enumerate()
        {
            let id = |at: Option<usize>| at.map(|at| ids[at]).into_iter().collect::<Vec<_>>();
            let of = |runs: Vec<Run>| runs.iter().map(Run::id).collect::<Vec<_>>();
            let run = it.client.run(ids[at]);
            assert_eq!(of(run.upstream().await.unwrap()), id(up));
            assert_eq!(of(run.chained().await.unwrap()), id(down));
            let state = run.state().await.unwrap();
            assert_eq!((state.upstream, state.chained), (id(up), id(down)));
        }
    })
    .await;
}

/// Scenarios: T252, H005, H009
#[tokio::test]
async fn one_run_starts_in_the_transaction_that_ends_the_one_before() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let [a, b, c] = chain(&it, ["a", "b", "c"]).await;
        it.is(&b, "pending", "b pending").await;
        it.succeed(&a, "a").await;
        it.is(&a, "succeeded", "a succeeded").await;
        it.is(&b, "running", "b enqueued").await;
        it.is(&c, "pending", "c pending").await;
        it.drain(&[]).await;
        it.is(&b, "succeeded", "b succeeded").await;
        it.is(&c, "succeeded", "c succeeded").await;
    })
    .await;
}

/// Scenarios: T253, T262
#[tokio::test]
async fn what_comes_after_a_run_that_halted_is_skipped_and_says_so() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let [a, b, c] = chain(&it, ["a", "b", "c"]).await;
        it.fail(&a, "a").await;
        it.is(&a, "halted", "a failed").await;
        // The steps with it, and so on down.
        it.is(&b, "skipped", "b skipped").await;
        it.is(&c, "skipped", "c skipped").await;
        assert!(it.is_stamped(&b).await && it.is_stamped(&c).await);
        assert_eq!(it.fired(&b).await, "complete");
        assert_eq!(it.fired(&c).await, "complete");
    })
    .await;
}

#[tokio::test]
async fn a_stage_without_runs_is_passed_over() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let start = it.client.start(Vec::<Pipeline>::new());
        let start = start.then(one("a")).then(one("b")).tag("none");
        assert!(start.await.unwrap().is_empty());
        let runs = it.client.runs(&RunFilter::new()).await.unwrap().items;
        let id = |name: &str| runs.iter().find(|run| run.pipeline == name).unwrap().id;
        let (a, b) = (it.client.run(id("a")), it.client.run(id("b")));
        it.is(&a, "running", "a enqueued").await;
        it.is(&b, "pending", "b pending").await;
        it.succeed(&a, "a").await;
        it.is(&b, "running", "b enqueued").await;
        // Also between existing runs and the next stage.
        let start = it.client.start(Vec::<Pipeline>::new()).after([&b]);
        start.then(one("c")).await.unwrap();
        let c = &b.chained().await.unwrap()[0];
        it.is(c, "pending", "c pending").await;
        it.succeed(&b, "b").await;
        it.is(c, "running", "c enqueued").await;
    })
    .await;
}

#[tokio::test]
async fn the_chain_of_a_run_that_does_not_exist_is_an_error() {
    with_database(async |db| {
        let it = Hand::new(db).await;
        let run = it.client.run(7.into());
        for chain in [run.chained().await, run.upstream().await] {
            let error = chain.unwrap_err();
            assert!(matches!(error, pipeline::Error::NoRun(_)), "{error}");
        }
    })
    .await;
}

/// Scenarios: T254, T255
#[tokio::test]
async fn several_come_after_one() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        for (end, status, steps) in [
            (success(), "succeeded", ["b succeeded", "c succeeded"]),
            (failure(), "skipped", ["b skipped", "c skipped"]),
        ] {
            let start = it.client.start(one("a")).then((one("b"), one("c")));
            let run = start.await.unwrap();
            it.end(&run, "a", end).await;
            it.drain(&[]).await;
            for (run, steps) in run.chained().await.unwrap().iter().zip(steps) {
                it.is(run, status, steps).await;
            }
        }
    })
    .await;
}

/// Scenarios: T256, U016
#[tokio::test]
async fn one_comes_after_several_that_start_together() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let start = it.client.start((one("a"), one("b"))).then(one("c"));
        let (a, b) = &start.await.unwrap();
        let c = &a.chained().await.unwrap()[0];
        it.is(a, "running", "a enqueued").await;
        it.is(b, "running", "b enqueued").await;
        it.succeed(a, "a").await;
        it.is(c, "pending", "c pending").await;
        it.succeed(b, "b").await;
        it.is(c, "running", "c enqueued").await;
        it.drain(&[]).await;
        it.is(c, "succeeded", "c succeeded").await;
    })
    .await;
}

/// Scenarios: T260, H065
#[tokio::test]
async fn cancelling_a_run_skips_what_comes_after_it() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        // One that waits in its chain.
        let [a, b, c] = chain(&it, ["a", "b", "c"]).await;
        b.cancel().await.unwrap();
        it.is(&b, "cancelled", "b cancelled").await;
        it.is(&c, "skipped", "c skipped").await;
        it.succeed(&a, "a").await;
        it.is(&b, "cancelled", "b cancelled").await;
        // One that runs.
        let [a, b, c] = chain(&it, ["a", "b", "c"]).await;
        it.take().await;
        a.cancel().await.unwrap();
        it.is(&a, "cancelling", "a enqueued").await;
        it.is(&b, "pending", "b pending").await;
        it.succeed(&a, "a").await;
        it.is(&a, "cancelled", "a succeeded").await;
        it.is(&b, "skipped", "b skipped").await;
        it.is(&c, "skipped", "c skipped").await;
    })
    .await;
}

/// Scenarios: T248, H017
#[tokio::test]
async fn what_is_chained_to_a_run_that_has_succeeded_starts_at_once() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(one("a")).await;
        it.succeed(&run, "a").await;
        let late = run.then(one("b")).await.unwrap();
        it.is(&late, "running", "b enqueued").await;
        it.drain(&[]).await;
        it.is(&late, "succeeded", "b succeeded").await;
    })
    .await;
}

/// Scenarios: T249
#[tokio::test]
async fn what_is_chained_to_a_run_that_has_halted_is_skipped_at_once() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(one("a")).await;
        it.fail(&run, "a").await;
        let late = run.then(one("b")).then(one("c")).await.unwrap();
        it.is(&late, "skipped", "b skipped").await;
        it.is(&late.chained().await.unwrap()[0], "skipped", "c skipped")
            .await;
        assert_eq!(it.fired(&late).await, "complete");
    })
    .await;
}

/// Scenarios: T250
#[tokio::test]
async fn what_is_chained_to_several_that_have_ended_starts_at_once() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let (a, b) = (it.start(one("a")).await, it.start(one("b")).await);
        it.drain(&[]).await;
        let late = it.client.start(one("c")).after([&a, &b]).await.unwrap();
        it.is(&late, "running", "c enqueued").await;
        it.drain(&[]).await;
        it.is(&late, "succeeded", "c succeeded").await;
    })
    .await;
}

/// The end of a run, what is skipped because of it and the callbacks of both: one transaction.
///
/// Scenarios: H006
#[tokio::test]
async fn what_is_rolled_back_has_moved_no_chain() {
    with_database(async |db| {
        let it = Hand::new(db).await;
        let [a, b, _] = chain(&it, ["a", "b", "c"]).await;
        let mut tx = db.pool().begin().await.unwrap();
        sqlx::query(
            "select pipeline.lock_runs_v1(array[$1]), pipeline.cancel_run_v1($1, 'cancel')",
        )
        .bind(a.id())
        .execute(&mut *tx)
        .await
        .unwrap();
        let inside: Vec<String> =
            sqlx::query_scalar("select status::text from pipeline.runs order by id")
                .fetch_all(&mut *tx)
                .await
                .unwrap();
        assert_eq!(inside, ["cancelled", "skipped", "skipped"]);
        tx.rollback().await.unwrap();
        it.is(&a, "running", "a enqueued").await;
        it.is(&b, "pending", "b pending").await;
        assert!(!it.is_stamped(&a).await && !it.is_stamped(&b).await);
        assert_eq!(it.fired(&b).await, "");
        assert_eq!(it.queued(&a).await, 1);
    })
    .await;
}

/// Scenarios: H010
#[tokio::test]
async fn an_end_that_comes_again_starts_nothing_again() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let [a, b, _] = chain(&it, ["a", "b", "c"]).await;
        it.succeed(&a, "a").await;
        it.again(&a, "a", success()).await;
        assert_eq!(it.queued(&b).await, 1);
        let begun: i64 = it
            .ask(
                &b,
                "select count(*) from pipeline.events where run = $1 and status = 'running'",
            )
            .await;
        assert_eq!(begun, 1);
    })
    .await;
}

/// The first try to start a chained run is a deadlock's victim: the whole advance is sent again.
///
/// Scenarios: H013, H014
#[tokio::test(flavor = "multi_thread")]
async fn an_advance_that_the_database_breaks_off_is_done_again() {
    with_database(async |db| {
        sqlx::raw_sql(
            "create sequence public.tries;
             create function public.break_off() returns trigger language plpgsql as $$
             begin
                 if nextval('public.tries') = 1 then
                     raise exception 'broken off' using errcode = '40P01';
                 end if;
                 return new;
             end $$;
             create trigger break_off before update on pipeline.runs for each row
             when (old.status = 'pending' and new.status = 'running')
             execute function public.break_off();",
        )
        .execute(db.pool())
        .await
        .unwrap();
        let it = Running::start(db);
        let start = it.client.start(one("a")).then((one("b"), one("c")));
        let run = start.await.unwrap();
        for chained in run.chained().await.unwrap() {
            it.becomes(&chained, "succeeded").await;
        }
        let tries: i64 = sqlx::query_scalar("select last_value from public.tries")
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert!(tries > 2, "{tries}");
        for name in ["a", "b", "c"] {
            assert_eq!(it.script.count(name), 1, "{name}");
        }
        it.stop().await;
    })
    .await;
}

/// Scenarios: H018
#[tokio::test]
async fn a_chain_that_cannot_be_registered_leaves_nothing_behind() {
    with_database(async |db| {
        let it = Hand::new(db).await;
        let run = it.start(one("a")).await;
        sqlx::raw_sql(
            "create function public.refuse() returns trigger language plpgsql as $$
             begin raise exception 'refused'; end $$;
             create trigger refuse before insert on pipeline.chains for each row
             execute function public.refuse();",
        )
        .execute(db.pool())
        .await
        .unwrap();
        run.then(one("b")).await.unwrap_err();
        let rows: i64 = it
            .ask(
                &run,
                "select (select count(*) from pipeline.runs where id <> $1)
                      + (select count(*) from pipeline.steps where run <> $1)
                      + (select count(*) from pipeline.chains)
                      + (select count(*) from pipeline.requests)",
            )
            .await;
        assert_eq!(rows, 0);
    })
    .await;
}

#[tokio::test]
async fn a_chain_goes_on_after_a_run_whose_failures_are_optional_and_not_after_one_that_failed() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let optional = named("a", |p| {
            p.step("a", act("a")).optional();
        });
        let run = it.client.start(optional).then(one("b")).await.unwrap();
        it.fail(&run, "a").await;
        it.is(&run.chained().await.unwrap()[0], "running", "b enqueued")
            .await;
        let failed = named("c", |p| {
            p.failure_strategy(Continue);
            p.step("c", act("c"));
        });
        let run = it.client.start(failed).then(one("d")).await.unwrap();
        it.fail(&run, "c").await;
        it.is(&run.chained().await.unwrap()[0], "skipped", "d skipped")
            .await;
    })
    .await;
}

/// As far as it goes, in the transaction that ends the first.
#[tokio::test]
async fn a_failure_skips_all_of_a_long_chain_at_once() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let quiet = |name: &str| {
            named(name, |p| {
                p.step(name, act(name));
            })
        };
        let mut start = it.client.start(quiet("a"));
        for _ in 0..100 {
            start = start.then((quiet("b"), quiet("c")));
        }
        let run = start.await.unwrap();
        it.fail(&run, "a").await;
        let chained = tests::chain_of(&run).await;
        assert_eq!(chained.len(), 200);
        for pair in chained.chunks(2) {
            it.is(&pair[0], "skipped", "b skipped").await;
            it.is(&pair[1], "skipped", "c skipped").await;
        }
        // And it all begins again with the first.
        run.reopen().await.unwrap();
        it.is(&chained[199], "pending", "c pending").await;
        it.take().await;
        it.succeed(&run, "a").await;
        it.is(&chained[0], "running", "b enqueued").await;
        it.is(&chained[1], "running", "c enqueued").await;
        it.is(&chained[2], "pending", "b pending").await;
    })
    .await;
}
