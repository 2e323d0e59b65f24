//! A worker that reconnects compares its claims with the attempts that it knows: in linear work.

use jobs::NewJob;
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use tests::{Database, with_database};

use super::support::{Do, What, client, sql};

/// The rows that pass through the nodes of a plan. A filter that compares with a whole array counts for each
/// of its elements: the plan does not show these comparisons.
fn rows(node: &Value, elements: f64) -> f64 {
    let number = |key: &str| node[key].as_f64().unwrap_or(0.0);
    let removed = [
        "Rows Removed by Filter",
        "Rows Removed by Join Filter",
        "Rows Removed by Index Recheck",
    ];
    let seen = number("Actual Rows") + removed.into_iter().map(number).sum::<f64>();
    let filters = ["Filter", "Join Filter", "Recheck Cond"].map(|key| node[key].as_str());
    let compares_an_array = |filter: &str| filter.contains("ALL (") || filter.contains("ANY (");
    let compares_an_array = filters.into_iter().flatten().any(compares_an_array);
    let cost = if compares_an_array { elements } else { 1.0 };
    let below = node["Plans"].as_array().into_iter().flatten();
    let below: f64 = below.map(|node| rows(node, elements)).sum();
    number("Actual Loops") * seen * cost + below
}

/// Runs the body of `unknown_claims_v1` as the function does, and returns its plan as it was executed.
async fn executed(connection: &mut PgConnection, known: &str) -> Value {
    let function: (String, Vec<String>) = sqlx::query_as(
        "select prosrc, coalesce(proconfig, '{}') from pg_proc
         where oid = 'pipeline.unknown_claims_v1'::regproc",
    )
    .fetch_one(&mut *connection)
    .await
    .unwrap();
    let (body, settings) = function;
    let settings = settings
        .iter()
        .map(|setting| format!("set local {setting};"));
    let settings: String = settings.collect();
    let body = body
        .replace("p_worker", "$1")
        .replace("p_known", "$2")
        .replace("p_within_ms", "$3");
    let statement = format!(
        "begin; {settings} set local plan_cache_mode to force_generic_plan;
         prepare body (bigint, bigint[], bigint) as {body};
         explain (analyze, format json) execute body (1, '{{{known}}}', 60000)"
    );
    let plan = sqlx::raw_sql(AssertSqlSafe(statement))
        .fetch_one(&mut *connection)
        .await
        .unwrap();
    let plan: String = plan.get_unchecked(0);
    sqlx::raw_sql("rollback; deallocate body")
        .execute(connection)
        .await
        .unwrap();
    serde_json::from_str(&plan).unwrap()
}

/// A worker that holds so many attempts, and knows all but one of them.
async fn work(db: &Database, attempts: usize) -> f64 {
    sql(db, "delete from pipeline.jobs").await;
    let jobs = (0..attempts).map(|_| NewJob::new(&Do::new("a", What::Succeed)));
    client(db).enqueue_many(jobs).await.unwrap();
    sql(
        db,
        "update pipeline.jobs set status = 'running', token = id, worker = 1, attempt = 1,
                claimed_at = pipeline.now(), lease_until = pipeline.now() + interval '1 hour';
         analyze pipeline.jobs",
    )
    .await;
    let tokens: Vec<i64> = sqlx::query_scalar("select token from pipeline.jobs order by id")
        .fetch_all(db.pool())
        .await
        .unwrap();
    let known: Vec<String> = tokens[1..].iter().map(i64::to_string).collect();
    let mut connection = db.pool().acquire().await.unwrap();
    let plan = executed(&mut connection, &known.join(",")).await;
    let unknown: Vec<i64> = sqlx::query_scalar("select pipeline.unknown_claims_v1(1, $1, 60000)")
        .bind(&tokens[1..])
        .fetch_one(&mut *connection)
        .await
        .unwrap();
    assert_eq!(unknown, tokens[..1], "only the claim that it does not know");
    sql(db, "delete from pipeline.jobs").await;
    let count = u32::try_from(known.len()).unwrap();
    rows(&plan[0]["Plan"], f64::from(count))
}

#[tokio::test]
async fn the_claims_that_a_worker_does_not_know_are_found_in_linear_work() {
    with_database(async |db| {
        let (few, many) = (work(db, 2_000).await, work(db, 8_000).await);
        assert!(few >= 2_000.0, "the plan was executed: {few} rows");
        assert!(many < few * 6.0, "{few} rows became {many}: not linear");
    })
    .await;
}
