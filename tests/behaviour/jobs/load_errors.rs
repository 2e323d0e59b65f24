//! Claims whose inputs cannot be loaded after the statement that ended an attempt and claimed them has committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use jobs::JobStatus;
use jobs::extension::{ClaimHook, Claimed};
use sqlx::PgConnection;
use tests::with_database;

use super::support::{Do, Running, What, client, ended};

/// A hook that fails once, for the job `bad`, with this statement.
#[derive(Debug)]
struct FailsOnce(AtomicBool, &'static str);

impl ClaimHook for FailsOnce {
    fn load<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        claimed: &'a mut Vec<Claimed>,
    ) -> BoxFuture<'a, Result<(), sqlx::Error>> {
        Box::pin(async move {
            let is_bad = |job: &Claimed| job.args.contains("\"bad\"");
            if claimed.iter().any(is_bad) && !self.0.swap(true, Ordering::SeqCst) {
                sqlx::query(self.1).execute(connection).await?;
            }
            Ok(())
        })
    }
}

/// The job has one attempt and a lease of 5 s: if its claim is left to the lease, it fails with `WorkerDied`.
async fn the_claim_is_given_back(statement: &'static str) {
    with_database(async |db| {
        let client = client(db);
        let first = client.enqueue(Do::new("a", What::Succeed)).priority(1);
        let first = first.await.unwrap();
        let bad = client.enqueue(Do::new("bad", What::Succeed));
        let bad = bad.max_attempts(1).await.unwrap();
        let hook = Arc::new(FailsOnce(AtomicBool::new(false), statement));
        // One slot, and more jobs than one: the end of the first job and the claim of the second are one statement.
        let worker = Running::start(db, |worker| {
            let worker = worker.queue("default", 1).keep_succeeded(true);
            worker.claim_hook(hook.clone())
        });
        ended(db, first.id).await;
        let job = ended(db, bad.id).await;
        assert!(hook.0.load(Ordering::SeqCst), "the hook has failed");
        assert_eq!(
            (job.status, job.attempt),
            (JobStatus::Succeeded, 1),
            "{job:?}"
        );
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_claim_whose_input_is_refused_is_given_back_at_once() {
    the_claim_is_given_back("select 1 / 0").await;
}

#[tokio::test]
async fn a_claim_whose_connection_breaks_before_its_input_is_loaded_is_given_back_at_once() {
    the_claim_is_given_back("select pg_terminate_backend(pg_backend_pid())").await;
}
