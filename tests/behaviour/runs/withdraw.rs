//! A cancel withdraws the steps of its run in linear work, whatever the planner knows of the run.

use std::time::Duration;

use pipeline::{Client, Pipeline, Run};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Row as _};
use tests::{Database, with_database};

use super::support::act;

/// Starts a run of so many steps that do not depend on each other.
async fn start(client: &Client, steps: usize) -> Run {
    let pipeline = Pipeline::configure("flat", |p| {
        for n in 0..steps {
            let key = format!("s{n}");
            p.step(&key, act(&key)).delay(Duration::from_secs(3_600));
        }
    });
    client.start(pipeline.unwrap()).await.unwrap()
}

/// The rows that pass through the nodes of a plan, with those that a filter has removed.
fn rows(node: &Value) -> f64 {
    let number = |key: &str| node[key].as_f64().unwrap_or(0.0);
    let removed = [
        "Rows Removed by Filter",
        "Rows Removed by Join Filter",
        "Rows Removed by Index Recheck",
    ];
    let seen = number("Actual Rows") + removed.into_iter().map(number).sum::<f64>();
    let below = node["Plans"].as_array().into_iter().flatten();
    number("Actual Loops") * seen + below.map(rows).sum::<f64>()
}

/// Runs the statement of `withdraw_steps_v1` that cancels steps, as the function does, and returns the rows that its
/// plan has seen.
async fn work(db: &Database, run: pipeline::RunId) -> f64 {
    let (body, settings): (String, Vec<String>) = sqlx::query_as(
        "select prosrc, coalesce(proconfig, '{}') from pg_proc
         where oid = 'pipeline.withdraw_steps_v1'::regproc",
    )
    .fetch_one(db.pool())
    .await
    .unwrap();
    let from = body.find("with free as").expect("the statement");
    let length = body[from..].find(';').expect("its end");
    let statement = body[from..from + length]
        .replace(" into v_ended", "")
        .replace("p_run", "$1")
        .replace("v_now", "$2")
        .replace("v_reason", "$3");
    let settings: String = settings
        .iter()
        .map(|setting| format!("set local {setting};"))
        .collect();
    let script = format!(
        "begin; {settings} set local plan_cache_mode to force_generic_plan;
         prepare body (bigint, timestamptz, pipeline.step_reason) as {statement};
         explain (analyze, format json) execute body ({run}, now(), 'cancelled')"
    );
    let mut connection = db.pool().acquire().await.unwrap();
    let plan = sqlx::raw_sql(AssertSqlSafe(script))
        .fetch_one(&mut *connection)
        .await
        .unwrap();
    let plan: String = plan.get_unchecked(0);
    sqlx::raw_sql("rollback; deallocate body")
        .execute(&mut *connection)
        .await
        .unwrap();
    let plan: Value = serde_json::from_str(&plan).unwrap();
    rows(&plan[0]["Plan"])
}

/// The statistics know many small runs, and not the one that is cancelled.
#[tokio::test]
async fn a_run_that_the_statistics_do_not_know_is_cancelled_in_linear_work() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        for _ in 0..100 {
            start(&client, 2).await;
        }
        sqlx::raw_sql(
            "alter table pipeline.steps set (autovacuum_enabled = off);
             alter table pipeline.jobs set (autovacuum_enabled = off);
             analyze pipeline.steps; analyze pipeline.jobs",
        )
        .execute(db.pool())
        .await
        .unwrap();
        let (few, many) = (start(&client, 250).await, start(&client, 1_000).await);
        let (few, many) = (work(db, few.id()).await, work(db, many.id()).await);
        assert!(few >= 250.0, "the plan was executed: {few} rows");
        assert!(many < few * 6.0, "{few} rows became {many}: not linear");
    })
    .await;
}
