//! Old runs go, and with them all that was theirs.

use std::time::Duration;

use pipeline::Run;
use tests::with_database;

use super::hand::{Hand, callbacks, declare};
use crate::runs::support::act;

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::test]
async fn t034_t035_t036_t037_t038_t039_t040_t041_old_runs_that_have_ended_go_and_others_stay() {
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

        assert_eq!(it.client.prune(365 * DAY).await.unwrap(), 0);
        assert_eq!(it.client.prune(30 * DAY).await.unwrap(), 4);
        let rows = |of: &'static str, run: i64| async move {
            let count: i64 = sqlx::query_scalar(of)
                .bind(run)
                .fetch_one(db.pool())
                .await
                .unwrap();
            count
        };
        let chained = &succeeded.chained()[0];
        for run in [&succeeded, chained, &halted, &cancelled].map(Run::id) {
            for of in [
                "select count(*) from pipeline.runs where id = $1",
                "select count(*) from pipeline.steps where run = $1",
                "select count(*) from pipeline.events where run = $1",
                "select count(*) from pipeline.fired where run = $1",
                "select count(*) from pipeline.chains where $1 in (up, down)",
                attempts,
            ] {
                assert_eq!(rows(of, run).await, 0, "{of}");
            }
        }
        for run in [&cancelling, &running, &recent] {
            let of = "select count(*) from pipeline.steps where run = $1";
            assert_eq!(rows(of, Run::id(run)).await, 2);
        }
    })
    .await;
}
