//! The error handler of a worker, for steps; and jobs that belong to a run.

use std::sync::Arc;

use jobs::Error;
use parking_lot::Mutex;
use pipeline::{Pipeline, RunStatus};
use tests::with_database;

use super::support::{Running, What, act};

#[tokio::test(flavor = "multi_thread")]
async fn the_error_handler_knows_the_run_and_the_step_of_a_failed_attempt() {
    with_database(async |db| {
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let handler = Arc::clone(&seen);
        let it = Running::start_with(db, |worker| {
            worker.on_error(move |failed| {
                handler.lock().push(failed);
                async {}
            })
        });
        it.script.tell("b", What::Fail);
        let pipeline = Pipeline::configure("two", |p| {
            let a = p.step("a", act("a"));
            p.following(&a).step("last", act("b")).max_attempts(1);
        });
        let run = it.client.start(pipeline.unwrap()).await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Halted);
        let job = run.state().await.unwrap().step("last").unwrap().job_id;
        it.stop().await;
        let seen = seen.lock();
        let [failed] = &seen[..] else {
            panic!("{seen:?}")
        };
        assert_eq!((failed.job, failed.is_final), (job, true));
        assert_eq!(failed.owner_id, Some(run.id().get()));
        assert_eq!(failed.owner_label.as_deref(), Some("last"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_of_a_step_is_neither_retried_nor_deleted_and_the_error_names_the_calls_for_runs() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("a", What::Fail);
        let pipeline = Pipeline::configure("one", |p| p.step("a", act("a")).max_attempts(1));
        let run = it.client.start(pipeline.unwrap()).await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Halted);
        let job = run.state().await.unwrap().step("a").unwrap().job_id;
        let job = it.client.job(job);
        for outcome in [job.retry().await, job.delete().await] {
            let error = outcome.unwrap_err();
            assert!(matches!(error, Error::OwnedJob { .. }), "{error}");
            let message = error.to_string();
            assert!(message.contains("`run.reopen()`"), "{message}");
        }
        it.stop().await;
    })
    .await;
}
