//! Re-running: a button on the reference system's page; here the part that concerns the engine.

use pipeline::Pipeline;
use tests::with_database;

use super::hand::{Hand, callbacks, named};
use crate::runs::support::act;

fn two(name: &str) -> Pipeline {
    named(name, |p| {
        let a = p.step("a", act(name));
        p.following(&a).step("b", act(name));
        callbacks(p);
    })
}

/// Scenarios: T095, T096
#[tokio::test]
async fn a_rerun_is_a_run_of_its_own_and_leaves_the_old_one_as_it_was() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let start = it.client.start(two("first")).then(two("second"));
        let first = start.then(two("third")).await.unwrap();
        it.succeed(&first, "a").await;
        it.succeed(&first, "b").await;
        let old = &first.chained().await.unwrap()[0];
        it.fail(old, "a").await;
        it.is(old, "halted", "a failed, b skipped").await;
        let rows = "select (select r::text from pipeline.runs r where id = $1)
                        || (select string_agg(s::text, '' order by no) from pipeline.steps s
                            where run = $1)";
        let before: String = it.ask(old, rows).await;

        let new = [old.rerun().await.unwrap(), old.rerun().await.unwrap()];
        assert_ne!(new[0].id(), new[1].id());
        for run in &new {
            it.is(run, "running", "a enqueued, b pending").await;
            let state = run.state().await.unwrap();
            assert_eq!(
                (&*state.pipeline, state.rerun_of),
                ("second", Some(old.id()))
            );
            assert!(!it.is_stamped(run).await);
            let params = "select array_agg(params::text order by no) from pipeline.steps
                          where run = $1";
            let same: Vec<String> = it.ask(old, params).await;
            assert_eq!(it.ask::<_, Vec<String>>(run, params).await, same);
            let chains =
                "select count(*) from pipeline.chains where upstream = $1 or downstream = $1";
            assert_eq!(it.ask::<_, i64>(run, chains).await, 0);
        }
        assert_eq!(it.ask::<_, String>(old, rows).await, before);
        it.drain(&[]).await;
        for run in &new {
            it.is(run, "succeeded", "a succeeded, b succeeded").await;
        }
        it.is(old, "halted", "a failed, b skipped").await;
    })
    .await;
}
