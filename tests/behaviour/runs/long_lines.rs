//! A long chain of steps that one end decides.

use pipeline::{Continue, Pipeline};
use tests::with_database;

use super::support::{Running, What, act};

/// Longer than the pieces in which an advance gathers what it has decided.
const STEPS: usize = 1_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_long_line_of_steps_is_skipped_by_one_end_and_each_step_is_counted_once() {
    with_database(async |db| {
        let pipeline = Pipeline::configure("line", |p| {
            p.failure_strategy(Continue);
            let first = p.step("s0", act("s0"));
            (1..STEPS).fold(first, |up, n| {
                let key = format!("s{n}");
                p.following(&up).step(&key, act(&key))
            })
        });
        let it = Running::start(db);
        it.script.tell("s0", What::Fail);
        let run = it.client.start(pipeline.unwrap()).await.unwrap();
        it.becomes(&run, "failed").await;
        let counts: (i64, i64, i64) = sqlx::query_as(
            "select count(*) filter (where s.status = 'skipped'),
                    count(*) filter (where s.cause = s.no - 1),
                    (select count(*) from pipeline.events e
                     where e.run = $1 and e.status = 'skipped' and e.step is not null)
             from pipeline.steps s where s.run = $1",
        )
        .bind(run.id())
        .fetch_one(db.pool())
        .await
        .unwrap();
        let skipped = i64::try_from(STEPS).unwrap() - 1;
        assert_eq!(counts, (skipped, skipped, skipped));
        it.stop().await;
    })
    .await;
}
