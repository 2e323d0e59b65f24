//! What claims and ticks cost while a transaction elsewhere stays open and keeps dead rows alive, and
//! that nothing ready is missed because of what a worker remembers. Costs are counted in index entries,
//! not in time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::extension::{ClaimHook, Claimed};
use jobs::testing::Slots;
use jobs::{JobStatus, NewJob, Worker};
use parking_lot::Mutex;
use sqlx::{Connection as _, PgConnection, PgPool, Row as _};
use tests::{Database, with_database};

use super::support::{
    Do, Running, What, all_ended, ask, client, ended, eventually, job, sql, when,
};

/// A transaction that sees everything as it is now, until it is dropped.
async fn hold_the_horizon(db: &Database) -> PgConnection {
    let mut connection = PgConnection::connect(db.url()).await.unwrap();
    sqlx::raw_sql("begin isolation level repeatable read; select count(*) from pipeline.jobs")
        .execute(&mut connection)
        .await
        .unwrap();
    connection
}

/// Counts what each claim takes, and what of the index `jobs_ready` it meets.
#[derive(Debug, Default)]
struct Claims {
    /// By backend, what it had met before. The statistics are sent, and begin again, between transactions.
    met: Mutex<HashMap<i32, Met>>,
    /// Of each claim that took something: how many, and what it met.
    seen: Mutex<Vec<(usize, Met)>>,
}

/// Entries that led to a row, dead or not, and blocks that were read.
#[derive(Debug, Clone, Copy, Default)]
struct Met {
    entries: i64,
    blocks: i64,
}

impl ClaimHook for Claims {
    fn load<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        claimed: &'a mut Vec<Claimed>,
    ) -> BoxFuture<'a, Result<(), sqlx::Error>> {
        Box::pin(async move {
            let row = sqlx::query(
                "select pg_backend_pid(), pg_stat_get_xact_tuples_returned(it.oid),
                        pg_stat_get_xact_blocks_fetched(it.oid)
                 from pg_class it where it.oid = 'pipeline.jobs_ready'::regclass",
            )
            .fetch_one(connection)
            .await?;
            let (backend, entries, blocks): (i32, i64, i64) = (row.get(0), row.get(1), row.get(2));
            let now = Met { entries, blocks };
            let before = self.met.lock().insert(backend, now).unwrap_or_default();
            let since = |now: i64, before: i64| if now >= before { now - before } else { now };
            let met = Met {
                entries: since(now.entries, before.entries),
                blocks: since(now.blocks, before.blocks),
            };
            if !claimed.is_empty() {
                self.seen.lock().push((claimed.len(), met));
            }
            Ok(())
        })
    }
}

impl Claims {
    /// The most that a claim met, of all claims after the first ones.
    fn most_after(&self, first: usize) -> Met {
        let seen = self.seen.lock();
        assert!(seen.len() > first, "there were only {} claims", seen.len());
        let met = || seen.iter().skip(first).map(|(_, met)| *met);
        Met {
            entries: met().map(|met| met.entries).max().unwrap(),
            blocks: met().map(|met| met.blocks).max().unwrap(),
        }
    }

    /// What half of the claims after the first ones did not exceed.
    fn median_after(&self, first: usize) -> i64 {
        let seen = self.seen.lock();
        let mut entries: Vec<i64> = seen.iter().skip(first).map(|it| it.1.entries).collect();
        entries.sort_unstable();
        entries[entries.len() / 2]
    }

    fn count(&self) -> usize {
        self.seen.lock().len()
    }

    fn most_taken(&self) -> usize {
        self.seen
            .lock()
            .iter()
            .map(|(taken, _)| *taken)
            .max()
            .unwrap()
    }
}

fn many(count: usize, queue: impl Fn(usize) -> String) -> Vec<NewJob> {
    let new = |at: usize| NewJob::new(&Do::new("a", What::Succeed)).queue(queue(at));
    (0..count).map(new).collect()
}

/// Goes through so many jobs, a few at a time, while the horizon is held and many others have come and
/// gone before. Returns the most that one of the later claims met.
async fn churn(
    db: &Database,
    count: usize,
    queue: impl Fn(usize) -> String,
    set_up: impl FnOnce(Worker) -> Worker,
) -> Met {
    let _held = hold_the_horizon(db).await;
    sql(
        db,
        "insert into pipeline.jobs (id, status, run_at, created_at, job_type, queue, priority, max_attempts,
                                    lease_ms, args)
         select 2 * at + 1, 'ready', pipeline.now() + at * interval '1 us' - interval '1 minute',
                pipeline.now(), 'gone', queue, 0, 3, 1000, 'null'
         from generate_series(1, 20000) as at
         cross join lateral (
             select case at % 4 when 0 then 'default' when 1 then 'media.1' when 2 then 'media.22'
                                else 'media.3' end as queue
         ) as queue;
         select setval('pipeline.ids', 50001);
         delete from pipeline.jobs",
    )
    .await;
    client(db).enqueue_many(many(count, queue)).await.unwrap();
    let claims = Arc::new(Claims::default());
    let worker = Running::start(db, |worker| set_up(worker).claim_hook(claims.clone()));
    all_ended(db, count).await;
    worker.stop().await;
    claims.most_after(10)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_meets_few_dead_rows_however_many_there_are() {
    with_database(async |db| {
        let most = churn(db, 1_500, |_| "default".into(), |it| it.queue("default", 8)).await;
        assert!(most.entries < 1_000 && most.blocks < 60, "{most:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_over_many_queues_meets_few_dead_rows_however_many_there_are() {
    with_database(async |db| {
        let queue = |at: usize| format!("media.{}", at % 3);
        let most = churn(db, 1_500, queue, |it| it.queue("*", 8)).await;
        assert!(most.entries < 2_500 && most.blocks < 150, "{most:?}");
    })
    .await;
}

/// Ready jobs that somebody holds stand at the head of the queue: claims do not step over everything that was
/// claimed behind them, and find them when they are let go.
async fn beside_held_jobs(db: &Database, pattern: &str) {
    let held: Vec<jobs::JobId> = client(db)
        .enqueue_many(many(20, |_| "default".into()))
        .await
        .unwrap()
        .iter()
        .map(|job| job.id)
        .collect();
    let mut holder = db.pool().begin().await.unwrap();
    sqlx::query("select from pipeline.jobs for update")
        .execute(&mut *holder)
        .await
        .unwrap();
    let claims = Arc::new(Claims::default());
    let worker = Running::start(db, |worker| {
        worker.queue(pattern, 8).claim_hook(claims.clone())
    });
    let jobs = || many(2_000, |_| "default".into());
    client(db).enqueue_many(jobs()).await.unwrap();
    all_ended(db, 2_000).await;
    // The rows have been held for long.
    db.move_clock(Duration::from_secs(10)).await;
    let before = claims.count();
    client(db).enqueue_many(jobs()).await.unwrap();
    all_ended(db, 4_000).await;
    let met = claims.median_after(before);
    assert!(met < 1_000, "{met} entries");
    holder.rollback().await.unwrap();
    for job in held {
        assert_eq!(ended(db, job).await.status, JobStatus::Succeeded);
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_meets_few_dead_rows_behind_ready_rows_that_somebody_holds() {
    with_database(async |db| beside_held_jobs(db, "default").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_over_many_queues_meets_few_dead_rows_behind_rows_that_somebody_holds() {
    with_database(async |db| beside_held_jobs(db, "*").await).await;
}

/// The search for a locked row starts at the range of the claim, not at the first entry of the queue.
#[tokio::test]
async fn a_search_for_a_locked_row_reads_no_dead_entries_before_its_range() {
    with_database(async |db| {
        let _held = hold_the_horizon(db).await;
        sql(
            db,
            "insert into pipeline.jobs (id, status, run_at, created_at, job_type, queue, priority, max_attempts,
                                        lease_ms, args)
             select 2 * at + 1, 'ready', pipeline.now() - interval '1 minute', pipeline.now(), 'gone',
                    'default', 0, 3, 1000, 'null'
             from generate_series(1, 20000) as at",
        )
        .await;
        sql(db, "delete from pipeline.jobs").await;
        sql(
            db,
            "insert into pipeline.jobs (id, status, run_at, created_at, job_type, queue, priority, max_attempts,
                                        lease_ms, args, token, attempt, worker, claimed_at, lease_until)
             select job.id, job.status::pipeline.job_status, '2026-01-01'::timestamptz + job.after, pipeline.now(),
                    'a', 'default', 0, 3, 1000, 'null', job.token, (job.token is not null)::integer, job.token,
                    job.at, job.at + interval '1 s'
             from (values (50001, 'ready', interval '0 s', null, null::timestamptz),
                          (50003, 'running', interval '1 s', 7 # 50003, '2026-01-02'))
                  as job (id, status, after, token, at);
             update pipeline.jobs set run_at = pipeline.now() + (id - 50001) * interval '1 ms'",
        )
        .await;
        let mut tx = db.pool().begin().await.unwrap();
        // The settings of claim_jobs_v1, in which the search runs.
        sqlx::raw_sql(
            "set local enable_seqscan = off; set local enable_bitmapscan = off;
             set local enable_hashjoin = off; set local enable_mergejoin = off",
        )
        .execute(&mut *tx)
        .await
        .unwrap();
        let held: Vec<i64> = sqlx::query_scalar(
            "select heads.held from pipeline.jobs j
             cross join lateral pipeline.held_heads_v1(
                 7, '2026-01-02', '{default}', '{null}', '{0}', array[j.run_at], '{50001}', '{1}') as heads
             where j.id = 50001",
        )
        .fetch_all(&mut *tx)
        .await
        .unwrap();
        assert_eq!(held, [50_001]);
        let blocks: i64 = sqlx::query_scalar(
            "select pg_stat_get_xact_blocks_fetched('pipeline.jobs_ready'::regclass)",
        )
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        assert!(blocks < 20, "{blocks} blocks of the index");
        tx.rollback().await.unwrap();
        sql(db, "delete from pipeline.jobs").await;
    })
    .await;
}

/// One call of `tick_v1`, and the entries of an index that it meets.
async fn tick(connection: &mut PgConnection, from: &str, index: &str) -> (i64, String) {
    let mut tx = connection.begin().await.unwrap();
    let met = format!("select pg_stat_get_xact_tuples_returned('pipeline.{index}'::regclass)");
    let before: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(met.as_str()))
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    let tick = format!(
        "select format('%L, %L', due_from, claimed_from)
         from pipeline.tick_v1(0, true, {from}, '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}')"
    );
    let next: String = sqlx::query_scalar(sqlx::AssertSqlSafe(tick))
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    let after: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(met))
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    (after - before, next)
}

#[tokio::test]
async fn a_tick_meets_no_dead_rows_that_one_before_it_has_met() {
    with_database(async |db| {
        let _held = hold_the_horizon(db).await;
        sql(
            db,
            "insert into pipeline.jobs (id, status, token, attempt, worker, claimed_at, lease_until,
                                        run_at, created_at, job_type, queue, priority, max_attempts, lease_ms,
                                        args)
             select 2 * at + 1, (case when at <= 1000 then 'scheduled' else 'running' end)::pipeline.job_status,
                    case when at > 1000 then at end, (at > 1000)::integer, 1,
                    pipeline.now() - interval '10 s', case when at > 1000 then pipeline.now() end,
                    pipeline.now() - interval '10 s', pipeline.now(), 'gone', 'default', 0, 3, 1000,
                    'null'
             from generate_series(1, 2000) as at",
        )
        .await;
        sql(db, "delete from pipeline.jobs").await;
        let mut connection = PgConnection::connect(db.url()).await.unwrap();
        for index in ["jobs_scheduled", "jobs_running"] {
            let (met, next) = tick(&mut connection, "null, null", index).await;
            assert!(met >= 1_000, "{index}: {met} at first");
            let (met, _) = tick(&mut connection, &next, index).await;
            assert!(met < 10, "{index}: {met} then");
        }
    })
    .await;
}

/// A worker whose claims begin at a mark: so many jobs have come and gone. Those of another transaction
/// that were enqueued before them, and are committed now, lie behind the mark.
async fn marked(db: &Database, poll: Duration) -> Running {
    let worker = Running::start(db, |worker| worker.queue("default", 8).poll(poll));
    let jobs = many(1_000, |_| "default".into());
    client(db).enqueue_many(jobs).await.unwrap();
    all_ended(db, 1_000).await;
    worker
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_transaction_commits_late_is_found_behind_the_mark() {
    with_database(async |db| {
        let _held = hold_the_horizon(db).await;
        let mut tx = db.pool().begin().await.unwrap();
        let late = client(db)
            .enqueue_in(&mut tx, Do::new("late", What::Succeed))
            .await
            .unwrap();
        let worker = marked(db, Duration::from_secs(10)).await;
        tx.commit().await.unwrap();
        assert_eq!(ended(db, late.id).await.status, JobStatus::Succeeded);
        worker.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_nobody_tells_of_is_found_behind_the_mark() {
    with_database(async |db| {
        let _held = hold_the_horizon(db).await;
        let worker = marked(db, Duration::from_millis(10)).await;
        sql(
            db,
            r#"insert into pipeline.jobs (id, status, run_at, created_at, job_type, queue, priority, max_attempts,
                                          lease_ms, args)
               select 999999999, 'ready', min(run_at) - interval '1 s', pipeline.now(), job_type, queue, 0, 3, 1000,
                      '{"name": "quiet", "what": "Succeed"}'
               from pipeline.jobs group by job_type, queue"#,
        )
        .await;
        worker.log.says("quiet 1").await;
        ended(db, 999_999_999.into()).await;
        worker.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_a_failed_claim_has_skipped_is_found_behind_the_mark() {
    with_database(async |db| {
        let _held = hold_the_horizon(db).await;
        let first = client(db).enqueue(Do::new("first", What::Succeed)).await;
        // Somebody is about to claim it, and does not come to it.
        let mut other = db.pool().begin().await.unwrap();
        sqlx::query("select from pipeline.jobs for update")
            .execute(&mut *other)
            .await
            .unwrap();
        let worker = marked(db, Duration::from_secs(10)).await;
        let first = first.unwrap().id;
        assert_eq!(job(db, first).await.status, JobStatus::Ready);
        other.rollback().await.unwrap();
        assert_eq!(ended(db, first).await.status, JobStatus::Succeeded);
        worker.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_given_back_keeps_its_place_and_is_found_behind_the_mark() {
    with_database(async |db| {
        let _held = hold_the_horizon(db).await;
        let old = client(db).enqueue(Do::new("old", What::AtGate)).await;
        let old = old.unwrap().id;
        let worker = marked(db, Duration::from_secs(10)).await;
        worker.log.says("old 1").await;
        // Its worker never heard of the claim: the row becomes ready again, where it was.
        sql(
            db,
            "update pipeline.jobs set worker = 0 where status = 'running';
             select pipeline.notify_queues_v1(given.queues, given.since)
             from pipeline.release_unknown_claims_v1(0, '{}', 60000) as given",
        )
        .await;
        // It costs no attempt: the next one is the first again.
        eventually("it begins again", async || {
            let begun = worker.log.lines();
            let times = begun.iter().filter(|line| *line == "old 1").count();
            (times == 2).then_some(())
        })
        .await;
        worker.gate.let_through(2);
        assert_eq!(ended(db, old).await.status, JobStatus::Succeeded);
        worker.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_belongs_to_the_most_specific_pattern() {
    with_database(async |db| {
        let at_gate = |queue: &str| NewJob::new(&Do::new(queue, What::AtGate)).queue(queue);
        let payments = (0..6).map(|_| at_gate("payments"));
        client(db).enqueue_many(payments).await.unwrap();
        let mails: Vec<jobs::JobId> = client(db)
            .enqueue_many((0..3).map(|_| at_gate("mail")))
            .await
            .unwrap()
            .iter()
            .map(|enqueued| enqueued.id)
            .collect();
        let worker = Running::start(db, |worker| worker.queue("*", 8).queue("payments", 2));
        // What came last to `*` runs: what came before it has been looked at.
        for id in mails {
            when(db, id, |job| job.status == JobStatus::Running).await;
        }
        eventually("payments run", async || {
            let running = "select count(*) from pipeline.jobs
                           where status = 'running' and queue = 'payments'";
            (ask::<i64>(db, running).await >= 2).then_some(())
        })
        .await;
        let running = "select count(*) from pipeline.jobs
                       where status = 'running' and queue = 'payments'";
        assert_eq!(ask::<i64>(db, running).await, 2);
        worker.gate.let_through(9);
        eventually("all have ended", async || {
            let left = "select count(*) from pipeline.jobs where ended_at is null";
            (ask::<i64>(db, left).await == 0).then_some(())
        })
        .await;
        worker.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_takes_no_more_bytes_than_it_may_and_at_least_one_job() {
    with_database(async |db| {
        let large = |size: usize| NewJob::new(&Do::new(&"x".repeat(size), What::Succeed));
        let mut jobs: Vec<NewJob> = (0..6).map(|_| large(20_000)).collect();
        jobs.push(large(100_000));
        jobs.push(large(10));
        client(db).enqueue_many(jobs).await.unwrap();
        let claims = Arc::new(Claims::default());
        let worker = Running::start(db, |worker| {
            worker
                .queue("default", 20)
                .claim_bytes(45_000)
                .claim_hook(claims.clone())
        });
        all_ended(db, 8).await;
        worker.stop().await;
        // Two large ones, and the small one.
        assert!(
            claims.most_taken() <= 3,
            "a claim took {}",
            claims.most_taken()
        );
    })
    .await;
}

/// What a replica that lagged behind, or a backup, looks like after the fact: no sequence knows what it
/// has given out, and the jobs are as they were before they were claimed.
const RESTORED: &str = "
    select setval(c.oid::regclass, 1, false) from pg_class c
    where c.relkind = 'S' and c.relnamespace = 'pipeline'::regnamespace;
    update pipeline.jobs set status = 'ready', token = null, lease_until = null, attempt = 0";

async fn tokens(pool: &PgPool) -> Vec<i64> {
    let worker = Worker::new(pool.clone())
        .register::<Do>()
        .queue("default", 5);
    let mut hand = worker.manual().await.unwrap();
    let slots = Slots {
        free: 5,
        claim: true,
    };
    let turn = hand.turn(Vec::new(), slots, false).await.unwrap();
    turn.claimed.iter().map(|job| job.token).collect()
}

#[tokio::test]
async fn two_claims_never_share_a_token_also_after_a_restore() {
    with_database(async |db| {
        let jobs = many(5, |_| "default".into());
        client(db).enqueue_many(jobs).await.unwrap();
        let before = tokens(db.pool()).await;
        sql(db, RESTORED).await;
        let after = tokens(db.pool()).await;
        assert_eq!((before.len(), after.len()), (5, 5));
        assert!(
            before.iter().all(|token| !after.contains(token)),
            "{before:?} {after:?}"
        );
        sql(db, "delete from pipeline.jobs").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_due_jobs_than_one_tick_moves_do_not_wait_for_the_poll() {
    with_database(async |db| {
        sql(
            db,
            r#"insert into pipeline.jobs (id, status, run_at, created_at, job_type, queue, priority, max_attempts,
                                          lease_ms, args)
               select 2 * at + 1, 'scheduled', pipeline.now(), pipeline.now(), 'do', 'elsewhere', 0, 3, 1000,
                      'null'
               from generate_series(1, 12000) as at"#,
        )
        .await;
        let mut connection = PgConnection::connect(db.url()).await.unwrap();
        let mut due_ms = Vec::new();
        for _ in 0..4 {
            let due: Option<i64> = sqlx::query_scalar(
                "select due_ms from pipeline.tick_v1(0, true, null, null, '{}', '{}', '{}', '{}', '{}',
                                                     '{}', '{}')",
            )
            .fetch_one(&mut connection)
            .await
            .unwrap();
            due_ms.push(due);
        }
        assert_eq!(due_ms, [Some(0), Some(0), None, None]);
    })
    .await;
}
