//! What the server itself costs. Whatever we build can be no cheaper than this.

use std::time::Instant;

use sqlx::PgPool;

use crate::frame::{Counted, Measured, Report, Result, Server, median};

const ROUNDS: usize = 3;
const ITEMS: u64 = 2_000;
const GROUP: u64 = 100;

const SYSTEMS: [(&str, &str); 3] = [
    ("ping", "a round trip each"),
    ("commit", "a row and a commit each"),
    ("group", "rows in commits of 100"),
];

pub(crate) async fn run() -> Result<()> {
    let mut server = Server::start().await?;
    let mut report = Report::default();
    let mut costs: [Vec<f64>; 3] = Default::default();
    let mut last: Vec<Counted> = Vec::new();
    for round in 1..=ROUNDS {
        for (index, (system, what)) in SYSTEMS.iter().enumerate() {
            let (measured, counted) = server.measure("floor", system).await?;
            report.row(&format!("{system}: {what} ({round})"), &measured, &counted);
            costs[index].push(measured.seconds / measured.items as f64);
            if round == ROUNDS {
                last.push(counted);
            }
        }
    }
    let [ping, commit, group] = costs.map(median);
    report.ratio("floor/commit-ping", commit / ping);
    report.ratio("floor/commit-group", commit / group);
    if let [_, commit, group] = last[..] {
        report.value(
            "floor/wal_bytes_per_commit",
            commit.wal_bytes as f64 / ITEMS as f64,
        );
        report.value(
            "floor/wal_bytes_per_grouped_row",
            group.wal_bytes as f64 / ITEMS as f64,
        );
    }
    let settings = server.settings().await?;
    report.print(
        "The floor: what the server itself costs, on one connection",
        &settings,
    );
    Ok(())
}

pub(crate) async fn measure(system: &str, pool: &PgPool) -> Result<Measured> {
    let mut connection = pool.acquire().await?;
    sqlx::raw_sql("create table floor (id bigint)")
        .execute(&mut *connection)
        .await?;
    let start = Instant::now();
    match system {
        "ping" => {
            for _ in 0..ITEMS {
                sqlx::query("select 1").execute(&mut *connection).await?;
            }
        }
        "commit" => {
            for id in 0..ITEMS {
                sqlx::query("insert into floor values ($1)")
                    .bind(id.cast_signed())
                    .execute(&mut *connection)
                    .await?;
            }
        }
        "group" => {
            for first in (0..ITEMS).step_by(GROUP as usize) {
                sqlx::query("insert into floor select generate_series($1::bigint, $2)")
                    .bind(first.cast_signed())
                    .bind((first + GROUP - 1).cast_signed())
                    .execute(&mut *connection)
                    .await?;
            }
        }
        other => return Err(format!("no system is called `{other}`").into()),
    }
    Ok(Measured {
        items: ITEMS,
        seconds: start.elapsed().as_secs_f64(),
        ..Measured::default()
    })
}
