//! Races, many rounds of each, with real connections. A deadlock anywhere fails the test: the harness
//! asks the server for them.

use std::time::Duration;

use ::jobs::testing::{ManualEngine, Outcome, Slots};
use futures_util::future::join_all;
use pipeline::{Client, Error, Pipeline, Run, RunStatus, Worker};
use tests::{until, with_database};

use super::support::{Act, Running, What, act, turn_until_written};

fn one_step(name: &str) -> Pipeline<String> {
    Pipeline::configure("one", |p| p.step("a", act(name))).unwrap()
}

fn three_steps(name: &str) -> Pipeline<String> {
    Pipeline::configure("three", |p| {
        let a = p.step("a", act(&format!("{name}.a")));
        let b = p.following(&a).step("b", act(&format!("{name}.b")));
        p.following(&b).step("c", act(&format!("{name}.c")))
    })
    .unwrap()
}

/// A little, and each time another.
async fn a_moment(round: u64, most_us: u64) {
    let micros = round.wrapping_mul(7_919) % most_us.max(1);
    tokio::time::sleep(Duration::from_micros(micros)).await;
}

async fn over<O: Send + Sync>(run: &Run<O>) -> RunStatus {
    let limit = Duration::from_secs(30);
    run.wait().timeout(limit).await.unwrap()
}

/// Every number of upstreams, every place of the one that fails, and none that does.
#[tokio::test(flavor = "multi_thread")]
async fn registration_and_settlement_cannot_miss_each_other() {
    with_database(async |db| {
        let it = Running::start(db);
        let mut round = 0;
        for count in 1..=5_usize {
            for failing in 0..=2 * count {
                round += 1;
                let names: Vec<String> = (0..count).map(|n| format!("{round}.{n}")).collect();
                for (n, name) in names.iter().enumerate() {
                    let fails = n + 1 == failing;
                    it.script
                        .tell(name, if fails { What::Fail } else { What::Succeed });
                }
                let ups: Vec<_> = names.iter().map(|name| one_step(name)).collect();
                let ups = it.client.start(ups).await.unwrap();
                let ids: Vec<_> = ups.iter().map(Run::id).collect();
                a_moment(round, 12_000).await;
                // Two at once, by two clients, of which one names them the other way round.
                let other = Client::new(db.pool().clone());
                let late = format!("{round}.late");
                let (first, second) = tokio::join!(
                    async { it.client.start(one_step(&late)).after(&ups).await },
                    async {
                        let mut tx = db.pool().begin().await.unwrap();
                        let chain = other.start_in(&mut tx, one_step(&late));
                        let chain = chain.after(ids.iter().rev().copied()).await;
                        a_moment(round * 31, 8_000).await;
                        tx.commit().await.unwrap();
                        chain
                    }
                );
                let wanted = if (1..=count).contains(&failing) {
                    RunStatus::Skipped
                } else {
                    RunStatus::Succeeded
                };
                for chain in [first.unwrap(), second.unwrap()] {
                    assert_eq!(over(&chain).await, wanted, "{count} {failing}");
                }
                for run in &ups {
                    assert!(over(run).await.is_ended());
                }
            }
        }
        it.stop().await;
    })
    .await;
}

/// A cancel that succeeds leaves a cancelled run, and one that is refused a run that had ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_races_with_the_start_the_ends_and_the_hand_over() {
    with_database(async |db| {
        let it = Running::start(db);
        let mut cancelled = 0;
        for round in 0..120_u64 {
            let name = format!("c{round}");
            let run = it.client.start(three_steps(&name)).then(one_step(&name));
            let run = run.await.unwrap();
            a_moment(round, 15_000).await;
            // Two at once: cancelling twice is fine.
            let (one, two) = tokio::join!(run.cancel(), run.cancel());
            let status = over(&run).await;
            for outcome in [one, two] {
                match outcome {
                    Ok(()) => assert_eq!(status, RunStatus::Cancelled),
                    Err(Error::NotCancellable { status: was, .. }) => {
                        assert_eq!((was, status), (RunStatus::Succeeded, RunStatus::Succeeded));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            let chained = over(&run.chained().await.unwrap()[0]).await;
            let wanted = match status {
                RunStatus::Cancelled => RunStatus::Skipped,
                _ => RunStatus::Succeeded,
            };
            assert_eq!(chained, wanted);
            cancelled += usize::from(status == RunStatus::Cancelled);
        }
        // How many cancels come in time is up to the scheduler.
        eprintln!("{cancelled} of 120 runs were cancelled");
        it.stop().await;
    })
    .await;
}

/// Whoever comes first: the run is cancelled at once again, or it is opened after the cancel.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_races_with_a_reopening() {
    with_database(async |db| {
        let it = Running::start(db);
        for round in 0..60_u64 {
            let name = format!("r{round}");
            it.script.tell(&name, What::Fail);
            let run = it.client.start(one_step(&name)).then(one_step("after"));
            let run = run.await.unwrap();
            assert_eq!(over(&run).await, RunStatus::Halted);
            it.script.tell(&name, What::Succeed);
            let (reopened, cancelled) = tokio::join!(async { run.reopen().await }, async {
                a_moment(round, 10_000).await;
                run.cancel().await
            });
            reopened.unwrap();
            let status = over(&run).await;
            match cancelled {
                Ok(()) => assert_eq!(status, RunStatus::Cancelled),
                Err(Error::NotCancellable { .. } | Error::Reopened { .. }) => {
                    assert_eq!(status, RunStatus::Succeeded);
                }
                Err(error) => panic!("{error}"),
            }
            let chained = over(&run.chained().await.unwrap()[0]).await;
            let wanted = match status {
                RunStatus::Cancelled => RunStatus::Skipped,
                _ => RunStatus::Succeeded,
            };
            assert_eq!(chained, wanted);
        }
        it.stop().await;
    })
    .await;
}

/// The worker that lost its lease in one round reports while the next one is opened, and after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_end_of_the_round_before_changes_nothing() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let mut hands: Vec<ManualEngine> = Vec::new();
        for _ in 0..2 {
            let worker = Worker::new(db.pool().clone())
                .register::<Act>()
                .queue("*", 1);
            hands.push(worker.into_jobs().manual().await.unwrap());
        }
        let mut hands = hands.into_iter();
        let (mut late, mut quick) = (hands.next().unwrap(), hands.next().unwrap());
        let claim = Slots {
            free: 1,
            claim: true,
        };
        for round in 0..40_u64 {
            let pipeline = Pipeline::configure("late", |p| p.step("a", act("a")).max_attempts(2));
            let run = client.start(pipeline.unwrap()).await.unwrap();
            let old = late
                .turn(Vec::new(), claim, true)
                .await
                .unwrap()
                .claimed
                .remove(0);
            let lapse = "update pipeline.jobs set lease_until = pipeline.now() - interval '1 s'";
            sqlx::query(lapse).execute(db.pool()).await.unwrap();
            let lost = quick.tick().await.unwrap();
            quick.turn(lost, Slots::default(), true).await.unwrap();
            let new = quick
                .turn(Vec::new(), claim, true)
                .await
                .unwrap()
                .claimed
                .remove(0);
            let failed = Outcome::Fail("Told".to_owned(), "told to fail".to_owned());
            let end = ManualEngine::end(&new, &failed);
            quick.turn(vec![end], Slots::default(), true).await.unwrap();
            assert_eq!(over(&run).await, RunStatus::Halted);
            let stale = ManualEngine::end(&old, &Outcome::Success("\"late\"".to_owned()));
            let (reopened, turn) = tokio::join!(async { run.reopen().force().await }, async {
                a_moment(round, 3_000).await;
                turn_until_written(&mut late, vec![stale.clone()], Slots::default()).await
            });
            reopened.unwrap();
            assert_eq!(turn.stale.len(), 1);
            let new = quick
                .turn(Vec::new(), claim, true)
                .await
                .unwrap()
                .claimed
                .remove(0);
            let turn = late.turn(vec![stale], Slots::default(), true).await;
            assert_eq!(turn.unwrap().stale.len(), 1);
            let end = ManualEngine::end(&new, &Outcome::Success("\"new\"".to_owned()));
            quick.turn(vec![end], Slots::default(), true).await.unwrap();
            assert_eq!(over(&run).await, RunStatus::Succeeded);
            assert_eq!(run.output().await.unwrap(), "new");
        }
    })
    .await;
}

/// Many runs that end together, chained crosswise: their settlements meet in one direction.
#[tokio::test(flavor = "multi_thread")]
async fn settlements_that_share_what_comes_after_them_do_not_deadlock() {
    with_database(async |db| {
        let workers = [Running::start(db), Running::start(db)];
        let it = &workers[0];
        for round in 0..15 {
            let ups = (0..6).map(|n| one_step(&format!("{round}.{n}")));
            let ups = it.client.start(ups.collect::<Vec<_>>()).await.unwrap();
            let ids: Vec<_> = ups.iter().map(Run::id).collect();
            let chains = (0..6).map(|n| {
                let (one, other) = (ids[n], ids[(n + 3) % 6]);
                let client = Client::new(db.pool().clone());
                async move {
                    let down = client.start(one_step("down")).after([one, other]);
                    down.then((one_step("x"), one_step("y")))
                        .then(one_step("end"))
                        .await
                }
            });
            for chain in join_all(chains).await {
                let chain = chain.unwrap();
                assert_eq!(
                    over(&tests::chain_of(&chain).await[2]).await,
                    RunStatus::Succeeded
                );
            }
        }
        for worker in workers {
            worker.stop().await;
        }
    })
    .await;
}

/// A run in a chain is opened again in the moment in which the run before it ends, or is opened again.
#[tokio::test(flavor = "multi_thread")]
async fn a_reopening_in_a_chain_races_with_what_comes_before() {
    with_database(async |db| {
        let it = Running::start(db);
        // A reopening is refused while no live worker knows the type.
        let first = it.client.start(one_step("first")).await.unwrap();
        assert_eq!(over(&first).await, RunStatus::Succeeded);
        for round in 0..80_u64 {
            let name = format!("u{round}");
            let fails = round % 2 == 1;
            it.script
                .tell(&name, if fails { What::Fail } else { What::Wait });
            let run = it.client.start(one_step(&name)).then(one_step("down"));
            let run = run.await.unwrap();
            let down = &run.chained().await.unwrap()[0];
            if fails {
                // The run before it is chained in its turn, so that it is there to be cancelled.
                assert_eq!(over(&run).await, RunStatus::Halted);
                assert_eq!(over(down).await, RunStatus::Skipped);
                it.script.tell(&name, What::Wait);
                run.reopen().await.unwrap();
                down.cancel().await.unwrap();
                run.cancel().await.unwrap();
                assert_eq!(over(&run).await, RunStatus::Cancelled);
                it.script.tell(&name, What::Succeed);
                let (up, below) = tokio::join!(
                    async {
                        a_moment(round, 3_000).await;
                        run.reopen().await
                    },
                    async {
                        a_moment(round * 31, 3_000).await;
                        down.reopen().await
                    }
                );
                up.unwrap();
                below.unwrap();
            } else {
                down.cancel().await.unwrap();
                assert_eq!(over(down).await, RunStatus::Cancelled);
                let ((), below) = tokio::join!(
                    async {
                        a_moment(round, 3_000).await;
                        it.script.let_through(&name);
                    },
                    async {
                        a_moment(round * 31, 6_000).await;
                        down.reopen().await
                    }
                );
                below.unwrap();
            }
            assert_eq!(over(&run).await, RunStatus::Succeeded);
            assert_eq!(over(down).await, RunStatus::Succeeded, "round {round}");
        }
        it.stop().await;
    })
    .await;
}

/// Rule 26, at any moment: what was claimed or handed over in the moment of the stop goes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_races_with_claims_and_hand_over_and_costs_no_attempt() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        // With one attempt each: an attempt that is lost is a run that fails.
        let runs = (0..150).map(|n| three_steps(&format!("s{n}")));
        let runs = client.start(runs.collect::<Vec<_>>()).await.unwrap();
        let mut rounds = 0_u64;
        let count = async |of: &'static str| {
            let count = sqlx::query_scalar::<_, i64>(of);
            count.fetch_one(db.pool()).await.unwrap()
        };
        let ended = "select count(*) from pipeline.steps where ended_at is not null";
        loop {
            let before = count(ended).await;
            let it = Running::start_with(db, |worker| worker.queue("default", 1));
            // Each worker ends some steps.
            until(async || count(ended).await > before).await;
            a_moment(rounds, 15_000).await;
            it.stop().await;
            rounds += 1;
            let running = "select count(*) from pipeline.jobs where status = 'running'";
            assert_eq!(count(running).await, 0, "after {rounds} stops");
            if count("select count(*) from pipeline.runs where ended_at is null").await == 0 {
                break;
            }
        }
        eprintln!("150 runs took {rounds} workers");
        for run in &runs {
            assert_eq!(over(run).await, RunStatus::Succeeded);
        }
        assert_eq!(count("select count(*) from pipeline.attempts").await, 0);
    })
    .await;
}
