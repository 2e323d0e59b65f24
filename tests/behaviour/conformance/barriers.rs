//! Barriers: resolved by the coordinator, never a job.

use pipeline::{NodeKind, Pipeline, PipelineBuilder, Step};
use tests::with_database;

use super::hand::{Choose, Hand, WayArms, chose, declare, work_or_nothing};
use crate::runs::support::act;

/// Two steps, a barrier, one step.
fn gathered() -> Pipeline {
    declare(|p| {
        p.step("a", act("a"));
        p.step("b", act("b"));
        p.barrier();
        p.step("publish", act("publish"));
    })
}

/// Scenarios: T196, T197
#[tokio::test]
async fn barriers_split_a_run_into_phases_and_are_no_jobs() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                p.step("fetch_1", act("fetch_1"));
                p.step("fetch_2", act("fetch_2"));
                p.barrier();
                p.step("mix_1", act("mix_1"));
                p.step("mix_2", act("mix_2"));
                p.barrier();
                p.step("publish", act("publish"));
            }))
            .await;
        it.drain(&[]).await;
        let end = "fetch_1 succeeded, fetch_2 succeeded, barrier:1 succeeded, mix_1 succeeded, \
                   mix_2 succeeded, barrier:2 succeeded, publish succeeded";
        it.is(&run, "succeeded", end).await;
        let state = run.state().await.unwrap();
        for step in &state.steps {
            let is_barrier = step.kind == NodeKind::Barrier;
            assert_eq!(step.job.is_none(), is_barrier, "{}", step.key);
            assert_eq!(step.enqueued_at.is_none(), is_barrier, "{}", step.key);
            assert_eq!(step.attempt == 0, is_barrier, "{}", step.key);
        }
        let batches: i64 = it
            .ask(&run, "select count(*) from pipeline.batches where run = $1")
            .await;
        assert_eq!(batches, 5);
    })
    .await;
}

/// A branch of which one arm may have work, as a root.
fn branch(p: &PipelineBuilder, work: bool) -> Step<()> {
    if work {
        work_or_nothing(p, &[])
    } else {
        let none: [Step<String>; 0] = [];
        let (hd, sd) = (|| {}, || {});
        p.after(&none).branch("way", Choose, WayArms { hd, sd })
    }
}

/// Scenarios: T198, T199
#[tokio::test]
async fn a_barrier_after_a_branch_lets_the_rest_through_whatever_it_chose() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        for (work, arm) in [(true, "Hd"), (true, "Sd"), (false, "Sd")] {
            let run = it
                .start(declare(|p| {
                    branch(p, work);
                    p.barrier();
                    p.step("publish", act("publish"));
                }))
                .await;
            it.drain(&[("way", chose(arm))]).await;
            let work = match (work, arm) {
                (true, "Hd") => "work succeeded, ",
                (true, _) => "work skipped_by_branch, ",
                (false, _) => "",
            };
            let end = format!(
                "way succeeded, {work}merge:way succeeded, barrier:1 succeeded, publish succeeded"
            );
            it.is(&run, "succeeded", &end).await;
            let state = run.state().await.unwrap();
            assert_eq!(state.step("way").unwrap().arm.as_deref(), Some(arm));
        }
    })
    .await;
}

/// Scenarios: T200, T201
#[tokio::test]
async fn a_branch_after_a_barrier_waits_for_it_and_leads_on() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        for (work, arm) in [(true, "Hd"), (true, "Sd"), (false, "Hd"), (false, "Sd")] {
            let run = it
                .start(declare(|p| {
                    p.step("first", act("first"));
                    p.barrier();
                    let way = branch(p, work);
                    p.following(&way).step("publish", act("publish"));
                }))
                .await;
            let waits: String = it
                .ask(
                    &run,
                    "select status from pipeline.run_steps where run = $1 and step = 'way'",
                )
                .await;
            assert_eq!(waits, "pending");
            it.drain(&[("way", chose(arm))]).await;
            let work = match (work, arm) {
                (true, "Hd") => "work succeeded, ",
                (true, _) => "work skipped_by_branch, ",
                (false, _) => "",
            };
            let end = format!(
                "first succeeded, barrier:1 succeeded, way succeeded, {work}merge:way succeeded, \
                 publish succeeded"
            );
            it.is(&run, "succeeded", &end).await;
            let state = run.state().await.unwrap();
            assert_eq!(state.step("way").unwrap().arm.as_deref(), Some(arm));
        }
    })
    .await;
}

/// Scenarios: T206
#[tokio::test]
async fn an_end_that_comes_again_is_not_counted_again() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(gathered()).await;
        let waits = "select open_edges from pipeline.steps s
                     where run = $1 and no = (select no from pipeline.run_steps v
                                              where v.run = s.run and v.step = 'barrier:1')";
        it.succeed(&run, "a").await;
        assert_eq!(it.ask::<_, i32>(&run, waits).await, 1);
        it.again(&run, "a", super::hand::success()).await;
        assert_eq!(it.ask::<_, i32>(&run, waits).await, 1);
        it.is(
            &run,
            "running",
            "a succeeded, b enqueued, barrier:1 pending, publish pending",
        )
        .await;
        it.succeed(&run, "b").await;
        assert_eq!(it.ask::<_, i32>(&run, waits).await, 0);
        it.is(
            &run,
            "running",
            "a succeeded, b succeeded, barrier:1 succeeded, publish enqueued",
        )
        .await;
    })
    .await;
}

/// Scenarios: T214
#[tokio::test]
async fn cancelling_stops_a_barrier_and_all_behind_it() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(gathered()).await;
        it.take().await;
        run.cancel().await.unwrap();
        let asked = "a enqueued, b enqueued, barrier:1 cancelled, publish cancelled";
        it.is(&run, "cancelling", asked).await;
        it.succeed(&run, "a").await;
        let after = "a succeeded, b enqueued, barrier:1 cancelled, publish cancelled";
        it.is(&run, "cancelling", after).await;
        it.succeed(&run, "b").await;
        assert_eq!(it.queued(&run).await, 0);
        let never: bool = it
            .ask(
                &run,
                "select enqueued_at is null from pipeline.run_steps
                 where run = $1 and step = 'publish'",
            )
            .await;
        assert!(never);
    })
    .await;
}
