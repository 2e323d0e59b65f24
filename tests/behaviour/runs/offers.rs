//! The queue pattern that takes a released step: the most specific pattern of the worker, and no other.

use pipeline::{Client, Pipeline};
use tests::with_database;

use super::support::act;

/// Patterns, their free slots, the lowest priorities that start at once; whether the step starts here.
type Case = (
    &'static [&'static str],
    &'static [i32],
    &'static [i16],
    bool,
);

#[tokio::test]
async fn the_most_specific_pattern_takes_a_queue_and_a_full_one_does_not_spill() {
    let cases: [Case; 9] = [
        (&["*"], &[1], &[0], true),
        (&["pay"], &[1], &[0], false),
        (&["*", "payments"], &[8, 0], &[0, 0], false),
        (&["payments", "*"], &[0, 8], &[0, 0], false),
        (&["*", "payments"], &[0, 1], &[0, 0], true),
        (&["*", "pay*", "p*"], &[8, 0, 8], &[0, 0, 0], false),
        (&["*", "p*", "pay*"], &[0, 0, 1], &[0, 0, 0], true),
        (
            &["pay*", "payments*", "payments"],
            &[8, 8, 0],
            &[0, 0, 0],
            false,
        ),
        // The line is chosen first: that others came before it there does not send it elsewhere.
        (&["*", "payments"], &[8, 8], &[0, 1], false),
    ];
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let pipeline = Pipeline::configure("x", |p| p.step("a", act("x")).queue("payments"));
        let run = client.start(pipeline.unwrap()).await.unwrap();
        for (patterns, free, floors, here) in cases {
            let mut tx = db.pool().begin().await.unwrap();
            let clear = sqlx::query("delete from pipeline.jobs");
            clear.execute(&mut *tx).await.unwrap();
            let is_started: bool = sqlx::query_scalar(
                "select e.started is not null from pipeline.runs r
                 join pipeline.nodes n on n.graph = r.graph
                 cross join lateral pipeline.enqueue_steps_v1(
                     array[row(r.id, n.no, null, null, null, n.job_type, n.queue, n.priority, n.max_attempts,
                               n.lease_ms, n.delay_ms, n.key, n.options, n.input)::pipeline.released_step],
                     1,
                     array(select row(o.pattern, o.free, o.floor)::pipeline.slot_offer
                           from unnest($2::text[], $3::integer[], $4::smallint[]) as o (pattern, free, floor)),
                     '{act}') as e
                 where r.id = $1",
            )
            .bind(run.id())
            .bind(patterns)
            .bind(free)
            .bind(floors)
            .fetch_one(&mut *tx)
            .await
            .unwrap();
            assert_eq!(is_started, here, "{patterns:?} {free:?} {floors:?}");
            tx.rollback().await.unwrap();
        }
    })
    .await;
}
