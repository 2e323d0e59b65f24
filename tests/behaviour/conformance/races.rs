//! Races, many rounds of each. Each side has an engine and connections of its own.

use ::jobs::extension::Claimed;
use ::jobs::testing::{ManualEngine, Slots};
use futures_util::future::join_all;
use pipeline::{Client, Continue, Pipeline, Run};
use tests::with_database;
use tokio::task::JoinHandle;

use super::hand::{
    CLAIM, Hand, callbacks, chose, declare, engine, named, success, work_or_nothing,
};
use crate::runs::support::{act, take_up_all, turn_until_written};

/// The steps before `last`, which comes after all of them.
fn fan_in(keys: &[&str]) -> Pipeline {
    declare(|p| {
        let steps: Vec<_> = keys.iter().map(|key| p.step(key, act(key))).collect();
        p.following(&steps).step("last", act("last"));
    })
}

/// Sends an end, and gives the engine back.
fn send(mut engine: ManualEngine, job: Claimed) -> JoinHandle<(ManualEngine, usize)> {
    tokio::spawn(async move {
        let ends = vec![ManualEngine::end(&job, &success())];
        let turn = turn_until_written(&mut engine, ends, Slots::default()).await;
        (engine, turn.ended.len())
    })
}

/// The steps of a fan-in end at once, each by another engine; the last is enqueued, once.
async fn ends_at_once(keys: &'static [&'static str], rounds: usize) {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let mut engines = Vec::new();
        for _ in keys {
            engines.push(engine(db.pool()).await);
        }
        for round in 0..rounds {
            let run = it.start(fan_in(keys)).await;
            let mut sent = Vec::new();
            for key in keys {
                let job = it.taken(&run, key).await;
                sent.push(send(engines.pop().unwrap(), job));
            }
            for done in join_all(sent).await {
                let (engine, ended) = done.unwrap();
                assert_eq!(ended, 1);
                engines.push(engine);
            }
            let steps: Vec<String> = keys.iter().map(|key| format!("{key} succeeded")).collect();
            let steps = format!("{}, last enqueued", steps.join(", "));
            it.is(&run, "running", &steps).await;
            assert_eq!(it.queued(&run).await, 1, "round {round}");
        }
    })
    .await;
}

/// Scenarios: T227
#[tokio::test(flavor = "multi_thread")]
async fn two_ends_at_once_never_leave_the_step_after_them_pending() {
    ends_at_once(&["a", "b"], 50).await;
}

/// Scenarios: T228
#[tokio::test(flavor = "multi_thread")]
async fn three_ends_at_once_never_leave_the_step_after_them_pending() {
    ends_at_once(&["a", "b", "c"], 50).await;
}

/// Scenarios: T230
#[tokio::test(flavor = "multi_thread")]
async fn one_end_sent_twice_at_once_enqueues_the_next_step_once() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let (mut one, mut other) = (engine(db.pool()).await, engine(db.pool()).await);
        for _ in 0..30 {
            let run = it.start(fan_in(&["a"])).await;
            let job = it.taken(&run, "a").await;
            let (first, second) = (send(one, job.clone()), send(other, job));
            let (first, second) = (first.await.unwrap(), second.await.unwrap());
            assert_eq!(first.1 + second.1, 1, "one of them counts");
            (one, other) = (first.0, second.0);
            it.is(&run, "running", "a succeeded, last enqueued").await;
            assert_eq!(it.queued(&run).await, 1);
        }
    })
    .await;
}

/// Cancels in a task of its own.
fn cancel(client: &Client, run: &Run) -> JoinHandle<()> {
    let run = client.run(run.id());
    tokio::spawn(async move { run.cancel().await.unwrap() })
}

/// Claims in a task of its own.
fn claim(mut engine: ManualEngine) -> JoinHandle<(ManualEngine, Vec<Claimed>)> {
    tokio::spawn(async move {
        let turn = engine.turn(Vec::new(), CLAIM, true).await.unwrap();
        (engine, turn.claimed)
    })
}

/// Either the step was withdrawn before it was taken, or it was taken and runs on.
async fn cancel_against_claim(roots: &'static [&'static str], rounds: usize) {
    with_database(async |db| {
        let it = Hand::new(db).await;
        let mut hand = engine(db.pool()).await;
        for round in 0..rounds {
            let run = it
                .start(declare(|p| {
                    for key in roots {
                        p.step(key, act(key));
                    }
                }))
                .await;
            let taking = claim(hand);
            if round % 2 == 0 {
                tokio::task::yield_now().await;
            }
            let cancelling = cancel(&it.client, &run);
            let (engine, taken) = taking.await.unwrap();
            hand = engine;
            cancelling.await.unwrap();
            let queued = it.queued(&run).await;
            assert_eq!(queued, i64::try_from(taken.len()).unwrap());
            let step = |key: &&str| {
                let no = roots.iter().position(|it| it == key);
                let no = i64::try_from(no.unwrap()).unwrap();
                let is_taken = taken.iter().any(|job| (job.id & 0x3_FFFF) / 2 == no);
                format!("{key} {}", if is_taken { "enqueued" } else { "cancelled" })
            };
            let steps: Vec<String> = roots.iter().map(step).collect();
            let status = if taken.is_empty() {
                "cancelled"
            } else {
                "cancelling"
            };
            it.is(&run, status, &steps.join(", ")).await;
            let ends = taken.iter().map(|job| ManualEngine::end(job, &success()));
            let turn = hand.turn(ends.collect(), Slots::default(), true).await;
            assert_eq!(turn.unwrap().ended.len(), taken.len());
            assert_eq!(it.status(run.id()).await, "cancelled");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_and_the_claim_of_a_step_leave_it_taken_or_withdrawn() {
    cancel_against_claim(&["a"], 50).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_and_the_claim_of_several_steps_leave_each_taken_or_withdrawn() {
    cancel_against_claim(&["a", "b", "c", "d"], 50).await;
}

/// The end of `first` enqueues the steps after it, which start at once where it ended. The run is
/// cancelled before that, and they never have a job; or after it, and they run on.
async fn cancel_against_release(next: &'static [&'static str], rounds: usize) {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let mut hand = engine(db.pool()).await;
        for _ in 0..rounds {
            let run = it
                .start(declare(|p| {
                    let first = p.step("first", act("first"));
                    for key in next {
                        p.following(&first).step(key, act(key));
                    }
                }))
                .await;
            let job = it.taken(&run, "first").await;
            let mut engine = hand;
            let ending = tokio::spawn(async move {
                let ends = vec![ManualEngine::end(&job, &success())];
                let turn = turn_until_written(&mut engine, ends, CLAIM).await;
                assert_eq!(turn.ended.len(), 1);
                (engine, turn.claimed)
            });
            let cancelling = cancel(&it.client, &run);
            let (engine, taken) = ending.await.unwrap();
            hand = engine;
            cancelling.await.unwrap();
            let (status, each) = match taken.len() {
                0 => ("cancelled", "cancelled"),
                _ => ("cancelling", "enqueued"),
            };
            assert!(taken.is_empty() || taken.len() == next.len());
            assert_eq!(it.queued(&run).await, i64::try_from(taken.len()).unwrap());
            let steps = next.iter().map(|key| format!(", {key} {each}"));
            let steps = format!("first succeeded{}", steps.collect::<String>());
            it.is(&run, status, &steps).await;
            let ends = taken.iter().map(|job| ManualEngine::end(job, &success()));
            let turn = hand.turn(ends.collect(), Slots::default(), true).await;
            assert_eq!(turn.unwrap().ended.len(), taken.len());
            assert_eq!(it.status(run.id()).await, "cancelled");
        }
    })
    .await;
}

/// Scenarios: T031
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_and_the_end_that_enqueues_a_step_leave_it_running_or_without_a_job() {
    cancel_against_release(&["a"], 50).await;
}

/// Scenarios: T032
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_and_the_end_that_enqueues_several_steps_leave_all_running_or_none() {
    cancel_against_release(&["a", "b", "c", "d"], 50).await;
}

/// The last two ends of a run come at once: it ends once, and fires once.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_ends_of_a_run_at_once_fire_its_callbacks_once() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let (mut one, mut other) = (engine(db.pool()).await, engine(db.pool()).await);
        for _ in 0..30 {
            let run = it
                .start(declare(|p| {
                    p.step("a", act("a"));
                    p.step("b", act("b"));
                    callbacks(p);
                }))
                .await;
            let (a, b) = (it.taken(&run, "a").await, it.taken(&run, "b").await);
            let (first, second) = (send(one, a), send(other, b));
            let (first, second) = (first.await.unwrap(), second.await.unwrap());
            assert_eq!(first.1 + second.1, 2);
            (one, other) = (first.0, second.0);
            it.is(&run, "succeeded", "a succeeded, b succeeded").await;
            assert_eq!(it.fired(&run).await, "complete, success");
        }
    })
    .await;
}

/// The deciding step at the root ends, and the run is cancelled.
///
/// Scenarios: H086
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_and_the_decision_of_a_branch_at_the_root_leave_the_run_cancelled() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let mut hand = engine(db.pool()).await;
        for _ in 0..30 {
            let run = it
                .start(declare(|p| {
                    let way = work_or_nothing(p, &[]);
                    p.following(&way).step("finish", act("finish"));
                }))
                .await;
            let job = it.taken(&run, "way").await;
            let mut engine = hand;
            let deciding = tokio::spawn(async move {
                let ends = vec![ManualEngine::end(&job, &chose("Hd"))];
                let turn = turn_until_written(&mut engine, ends, Slots::default()).await;
                assert_eq!(turn.ended.len(), 1);
                engine
            });
            let cancelling = cancel(&it.client, &run);
            hand = deciding.await.unwrap();
            cancelling.await.unwrap();
            // Nobody has taken what the decision may have set free.
            assert_eq!(it.status(run.id()).await, "cancelled");
            let left: i64 = it
                .ask(
                    &run,
                    "select count(*) from pipeline.run_steps
                     where run = $1 and status in ('pending', 'enqueued')",
                )
                .await;
            assert_eq!((left, it.queued(&run).await), (0, 0));
        }
    })
    .await;
}

fn single(name: &str) -> Pipeline {
    named(name, |p| {
        p.failure_strategy(Continue);
        p.step(name, act(name));
    })
}

/// Rule 17: registration and settlement cannot miss each other.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_chained_while_its_upstreams_end_starts_once_and_is_never_forgotten() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let (mut one, mut other) = (engine(db.pool()).await, engine(db.pool()).await);
        for _ in 0..30 {
            let (a, b) = (it.start(single("a")).await, it.start(single("b")).await);
            let (first, second) = (it.taken(&a, "a").await, it.taken(&b, "b").await);
            let client = it.client.clone();
            let ids = [a.id(), b.id()];
            let chaining =
                tokio::spawn(async move { client.start(single("c")).after(ids).await.unwrap() });
            let (first, second) = (send(one, first), send(other, second));
            let (first, second) = (first.await.unwrap(), second.await.unwrap());
            (one, other) = (first.0, second.0);
            let late = chaining.await.unwrap();
            let late = &late;
            // A request that somebody held is taken up by a worker's errand.
            take_up_all(db.pool()).await;
            it.is(late, "running", "c enqueued").await;
            assert_eq!(it.queued(late).await, 1);
        }
    })
    .await;
}
