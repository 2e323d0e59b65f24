//! The least that a set-based engine can do: bare tables, arrays, 100 steps a transaction.
//!
//! What it keeps of an engine's promises: a step is ended by none but who has claimed it; its end,
//! what that unlocks and the count of its run are one transaction; and rows are locked in order, so
//! that two connections with steps of one run wait for each other and never deadlock. What it leaves
//! out: all else.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use sqlx::{Connection as _, PgConnection, PgPool};

use super::{CONNECTIONS, STEPS};
use crate::frame::{Measured, Result};

/// The most that a connection ends, and claims, in one transaction.
const GROUP: i64 = 100;
/// How long a connection waits that finds nothing to claim: the others hold all that there is.
const PAUSE: Duration = Duration::from_millis(1);
const LIMIT: Duration = Duration::from_secs(300);

/// Half of each page is left free for what comes in place of its rows, which then needs no new index
/// entries. The queue has one index, so that a claim touches none: finding the next row means
/// passing over those that are claimed, at most 100 for each connection.
const TABLES: &str = "
create table runs (id bigint primary key, live int not null) with (fillfactor = 50);
create table steps (
    run bigint, no int, ended bool not null, waits int not null, primary key (run, no)
) with (fillfactor = 50);
create table dependencies (no int, dependent int, primary key (no, dependent));
create table queue (
    run bigint, no int, owner int, primary key (no, run)
) with (fillfactor = 50)";

/// There are no statistics yet, and an index is always the way. With what is switched off, the planner
/// thinks so much of the costs that it would compile each statement.
const PLANS: &str = "
set enable_seqscan = off; set enable_bitmapscan = off; set enable_hashjoin = off;
set enable_mergejoin = off; set jit = off; set plan_cache_mode = force_generic_plan";

const START: &str = "
with graph as materialized (
    select step, (select count(*) from dependencies where dependent = step) as waits
    from generate_series(0, $2 - 1) as step
), started as (
    insert into runs select id, $2 from unnest($1::bigint[]) as id
), with_steps as (
    insert into steps select id, step, false, waits from unnest($1::bigint[]) as id, graph
)
insert into queue (run, no) select id, 0 from unnest($1::bigint[]) as id";

const CLAIM: &str = "
update queue set owner = $1
where ctid = any (array(
    select ctid from queue where owner is null order by no, run limit $2 for update skip locked))
returning run, no";

/// A run's row is the lock on all that is in it; `locked` takes them in the order of their ids, and
/// all that follows reads from it.
const END: &str = "
with mine as (
    delete from queue using unnest($2::bigint[], $3::int[]) as done (run, no)
    where queue.run = done.run and queue.no = done.no and owner = $1
    returning queue.run, queue.no
), locked as materialized (
    select run, no from mine join runs on id = run order by run for no key update of runs
), ended as (
    update steps set ended = true from locked
    where steps.run = locked.run and steps.no = locked.no
), unlocked as (
    update steps set waits = waits - count
    from (select run, dependent, count(*)::int from locked join dependencies using (no)
          group by run, dependent) as these
    where steps.run = these.run and steps.no = dependent
    returning steps.run, steps.no, waits
), enqueued as (
    insert into queue (run, no) select run, no from unlocked where waits = 0
), counted as (
    update runs set live = live - count
    from (select run, count(*)::int from locked group by run) as these
    where id = run
    returning live
)
select count(*) from counted where live = 0";

pub(super) fn settings() -> String {
    format!(
        "{CONNECTIONS} connections, up to {GROUP} ends, unlocks and claims a transaction, all runs \
         started at once"
    )
}

pub(super) async fn prepare(pool: &PgPool) -> Result<Measured> {
    sqlx::raw_sql(TABLES).execute(pool).await?;
    sqlx::query("insert into dependencies select no, no + 1 from generate_series(0, $1 - 2) as no")
        .bind(STEPS.cast_signed())
        .execute(pool)
        .await?;
    Ok(Measured::default())
}

/// From the first start to the last end.
pub(super) async fn run(pool: &PgPool, runs: u64) -> Result<Measured> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = pool.acquire().await?;
        sqlx::raw_sql(PLANS).execute(&mut *connection).await?;
        connections.push(connection);
    }
    let left = AtomicU64::new(runs);
    let clock = Instant::now();
    start(runs, &mut connections[0]).await?;
    let workers = (0..)
        .zip(&mut connections)
        .map(|(owner, connection)| work(owner, &left, connection));
    tokio::time::timeout(LIMIT, try_join_all(workers))
        .await
        .map_err(|_| format!("not all runs are over after {LIMIT:?}"))??;
    let took = clock.elapsed();
    check(&mut connections[0]).await?;
    Ok(Measured {
        items: runs * u64::from(STEPS),
        seconds: took.as_secs_f64(),
        settings: settings(),
        ..Measured::default()
    })
}

/// Every run, its steps, and its first step's place in the queue.
async fn start(runs: u64, connection: &mut PgConnection) -> Result<()> {
    let ids: Vec<i64> = (0..runs.cast_signed()).collect();
    sqlx::query(START)
        .bind(&ids)
        .bind(STEPS.cast_signed())
        .execute(connection)
        .await?;
    Ok(())
}

/// One connection: ends what it has claimed and claims what is there, until no run is left.
async fn work(owner: i32, left: &AtomicU64, connection: &mut PgConnection) -> Result<()> {
    let mut claimed: Vec<(i64, i32)> = Vec::new();
    while left.load(Ordering::Acquire) > 0 {
        let mut transaction = connection.begin().await?;
        let over = end(owner, &claimed, &mut transaction).await?;
        claimed = sqlx::query_as(CLAIM)
            .bind(owner)
            .bind(GROUP)
            .fetch_all(&mut *transaction)
            .await?;
        transaction.commit().await?;
        left.fetch_sub(over, Ordering::Release);
        if claimed.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Ends these steps; how many runs are over by that.
async fn end(owner: i32, claimed: &[(i64, i32)], connection: &mut PgConnection) -> Result<u64> {
    if claimed.is_empty() {
        return Ok(0);
    }
    let (runs, numbers): (Vec<i64>, Vec<i32>) = claimed.iter().copied().unzip();
    let over: i64 = sqlx::query_scalar(END)
        .bind(owner)
        .bind(&runs)
        .bind(&numbers)
        .fetch_one(connection)
        .await?;
    Ok(over.cast_unsigned())
}

/// All has ended in the database too.
async fn check(connection: &mut PgConnection) -> Result<()> {
    let left: (i64, i64, i64) = sqlx::query_as(
        "select (select count(*) from runs where live <> 0),
                (select count(*) from steps where waits <> 0 or not ended),
                (select count(*) from queue)",
    )
    .fetch_one(connection)
    .await?;
    match left {
        (0, 0, 0) => Ok(()),
        (runs, steps, queued) => Err(format!(
            "{runs} runs are not over, {steps} steps have not ended, {queued} are in the queue"
        )
        .into()),
    }
}
