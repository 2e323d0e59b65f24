//! An advance is one statement, which is its own transaction: its answer may be lost after it was committed.

use pipeline::{Client, Pipeline, RunStatus};
use tests::with_database;

use super::support::{Running, What, act};
use crate::jobs::proxy::Proxy;

/// The advance is committed, and its worker never hears so: the end is sent again and changes nothing, and the step
/// that was handed over with the lost answer is given back and performed once.
#[tokio::test(flavor = "multi_thread")]
async fn an_advance_whose_answer_is_lost_is_neither_repeated_nor_forgotten() {
    with_database(async |db| {
        let proxy = Proxy::start(db);
        let pool = proxy.pool();
        let it = Running::start_on(db, pool.clone(), |worker| worker);
        let chain = Pipeline::configure("chain", |p| {
            let first = p.step("a", act("a"));
            let lost = p.following(&first).step("b", act("lost-answer"));
            p.following(&lost).step("c", act("c"))
        });
        it.script.tell("lost-answer", What::Wait);
        let run = it.client.start(chain.unwrap()).await.unwrap();
        it.script.says("lost-answer").await;
        // The output of the step is in the statement that writes its end.
        proxy.lose_the_next_answer_to("lost-answer");
        it.script.let_through("lost-answer");
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        assert!(proxy.has_lost_it());
        for step in ["a", "lost-answer", "c"] {
            assert_eq!(it.script.count(step), 1, "{step}");
        }
        let attempts: Vec<i16> =
            sqlx::query_scalar("select attempt from pipeline.steps where run = $1 order by no")
                .bind(run.id())
                .fetch_all(db.pool())
                .await
                .unwrap();
        assert_eq!(attempts, [1, 1, 1], "the lost answer costs no attempt");
        it.stop().await;
        pool.close().await;
    })
    .await;
}

/// The first statement of an advance misses a row whose lease is renewed in the same moment: the row that it locks is
/// newer than its snapshot. The attempt is then ended by the second way, and ends its step with its output.
#[tokio::test]
async fn an_attempt_that_the_first_statement_misses_ends_its_step() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let one = Pipeline::configure("one", |p| p.step("a", act("a"))).unwrap();
        let run = client.start(one).await.unwrap();
        sqlx::query(
            "update pipeline.jobs
             set status = 'running', token = 7, attempt = 1, worker = 1, claimed_at = pipeline.now(),
                 lease_until = pipeline.now() + interval '1 h'",
        )
        .execute(db.pool())
        .await
        .unwrap();
        let moved = "select e.outcome::text, e.output::text, m.ended_runs is not null
             from pipeline.end_other_steps_v1(
                 array[row(pipeline.step_id($1, 0), 7, 'succeeded', 1, 1, 0, '\"a\"', null, null, 0)
                       ::pipeline.attempt_end],
                 '{}', 60000) as other
             cross join lateral unnest(other.ends) as e
             cross join lateral pipeline.advance_runs_v1(other.ends, 1, '{}', '{}') as m";
        let moved: (String, String, bool) = sqlx::query_as(moved)
            .bind(run.id())
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_eq!(moved, ("succeeded".into(), "\"a\"".into(), true));
        assert_eq!(run.output().await.unwrap(), "a");
    })
    .await;
}
