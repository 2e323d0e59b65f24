//! `Plan::asynchronous_commit`: advances in which no run ends do not wait for the disk; everything else does.

use ::jobs::testing::{ManualEngine, Outcome, Slots};
use pipeline::{Client, Invalid, Pipeline, RunStatus, Worker};
use tests::{Database, with_database};

use super::support::{Act, Running, act};

/// A chain of three steps.
fn chain(name: &str, asynchronous: bool) -> Result<Pipeline, Invalid> {
    Pipeline::configure(name, |p| {
        let first = p.step("a", act("a"));
        let second = p.following(&first).step("b", act("b"));
        p.following(&second).step("c", act("c"));
        if asynchronous {
            p.asynchronous_commit();
        }
    })
}

/// Records the value of `synchronous_commit` in each transaction that ends a step or a run, when it commits. The test
/// server has `synchronous_commit = off`: this database sets it to `on` for new connections.
async fn record_commits(db: &Database) {
    sqlx::raw_sql(
        "create table commits (run bigint, what text, setting text);
         create function record_commit() returns trigger language plpgsql as $$
         begin
             if tg_table_name = 'steps' then
                 insert into commits
                 select new.run, n.key, current_setting('synchronous_commit')
                 from pipeline.runs r join pipeline.nodes n on n.graph = r.graph and n.no = new.no
                 where r.id = new.run;
             else
                 insert into commits
                 values (new.id, new.status, current_setting('synchronous_commit'));
             end if;
             return null;
         end $$;
         create constraint trigger ended_step after update on pipeline.steps
             deferrable initially deferred for each row
             when (new.status = 'succeeded') execute function record_commit();
         create constraint trigger ended_run after update on pipeline.runs
             deferrable initially deferred for each row
             when (new.status = 'succeeded') execute function record_commit();
         do $$ begin
             execute format('alter database %I set synchronous_commit = on', current_database());
         end $$;",
    )
    .execute(db.pool())
    .await
    .unwrap();
}

/// What was recorded of a run, each once.
async fn commits(db: &Database, run: pipeline::RunId) -> Vec<(String, String)> {
    sqlx::query_as("select distinct what, setting from commits where run = $1 order by what")
        .bind(run)
        .fetch_all(db.pool())
        .await
        .unwrap()
}

fn pairs(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    let pair = |(what, setting): &(&str, &str)| ((*what).to_owned(), (*setting).to_owned());
    rows.iter().map(pair).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_advances_in_which_no_run_ends_commit_asynchronously() {
    with_database(async |db| {
        record_commits(db).await;
        let it = Running::start(db);
        // An advance that also claims is durable, so several runs may be needed.
        let mut tries = 0;
        loop {
            tries += 1;
            assert!(tries <= 50, "no advance committed asynchronously");
            let run = it
                .client
                .start(chain("relaxed", true).unwrap())
                .await
                .unwrap();
            assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
            let found = commits(db, run.id()).await;
            let setting = |what: &str| {
                let of = found.iter().filter(|(it, _)| it == what);
                of.map(|(_, setting)| setting.as_str()).collect::<Vec<_>>()
            };
            assert_eq!(setting("c"), ["on"], "the last step ends the run");
            assert_eq!(setting("succeeded"), ["on"]);
            if setting("a") == ["off"] && setting("b") == ["off"] {
                break;
            }
        }
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_setting_every_advance_is_durable() {
    with_database(async |db| {
        record_commits(db).await;
        let it = Running::start(db);
        for _ in 0..20 {
            let run = it
                .client
                .start(chain("durable", false).unwrap())
                .await
                .unwrap();
            assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
            let all = ["a", "b", "c", "succeeded"].map(|what| (what, "on"));
            assert_eq!(commits(db, run.id()).await, pairs(&all));
        }
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_durable_end_makes_the_whole_advance_durable() {
    with_database(async |db| {
        record_commits(db).await;
        let worker = Worker::new(db.pool().clone())
            .register::<Act>()
            .queue("*", 10);
        let mut engine = worker.into_jobs().manual().await.unwrap();
        let client = Client::new(db.pool().clone());
        let start = async |asynchronous| {
            let pipeline = chain("mixed", asynchronous).unwrap();
            client.start(pipeline).await.unwrap().id()
        };
        let runs = [start(true).await, start(true).await, start(false).await];
        let slots = Slots {
            free: 3,
            claim: true,
        };
        let claimed = engine.turn(Vec::new(), slots, true).await.unwrap().claimed;
        let end = |run: pipeline::RunId| {
            let job = claimed
                .iter()
                .find(|job| job.id == run.get() << 18)
                .unwrap();
            ManualEngine::end(job, &Outcome::Success("null".to_owned()))
        };
        let alone = vec![end(runs[0])];
        engine.turn(alone, Slots::default(), true).await.unwrap();
        let mixed = vec![end(runs[1]), end(runs[2])];
        engine.turn(mixed, Slots::default(), true).await.unwrap();
        let mut settings = Vec::new();
        for run in runs {
            let found = commits(db, run).await;
            settings.extend(found.into_iter().filter(|(what, _)| what == "a"));
        }
        assert_eq!(settings, pairs(&[("a", "off"), ("a", "on"), ("a", "on")]));
    })
    .await;
}
