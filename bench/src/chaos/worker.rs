//! A worker that chaos is done to, in a process of its own.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::seams::{Came, End, Offer, Settle, Settled};
use jobs::{Context, Job, JobError, Perform, Worker};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgConnection, PgPool};
use tokio::io::AsyncReadExt as _;

use super::log::{Log, Moment};
use crate::frame::{ChildArguments, Result};

/// What the workers of the arena are called.
pub(super) const JOBS: &str = "jobs";
pub(super) const SLOTS: u32 = 4;

/// Takes about 20 ms. It has attempts enough: none is to fail here.
#[derive(Serialize, Deserialize, Job)]
#[job(name = "chaos.nap", lease = "2s", attempts = 1000)]
pub(super) struct Nap;

impl Perform for Nap {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        let log = cx.data::<Log>()?;
        log.write(Moment::Begin, cx)?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        log.write(Moment::End, cx)?;
        Ok(())
    }
}

/// Writes down every end that the database took, in the transaction that takes it: the row itself no
/// longer says which attempt ended it.
#[derive(Debug)]
struct Record;

pub(super) async fn prepare(pool: &PgPool) -> Result<()> {
    sqlx::raw_sql(
        "create table ends (job bigint not null, token bigint not null, came text not null)",
    )
    .execute(pool)
    .await?;
    Ok(())
}

impl Settle for Record {
    fn row(&self, end: &End) -> Option<i64> {
        Some(end.job())
    }

    fn lock<'a>(
        &'a self,
        _: &'a mut PgConnection,
        ends: &'a [&'a End],
        _: bool,
    ) -> BoxFuture<'a, Result<Vec<bool>, sqlx::Error>> {
        Box::pin(async { Ok(vec![true; ends.len()]) })
    }

    fn settle<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        ends: &'a [(&'a End, Came)],
        _: &'a Offer,
    ) -> BoxFuture<'a, Result<Settled, sqlx::Error>> {
        Box::pin(async {
            let jobs: Vec<i64> = ends.iter().map(|(end, _)| end.job()).collect();
            let tokens: Vec<i64> = ends.iter().map(|(end, _)| end.token()).collect();
            let came: Vec<String> = ends.iter().map(|(_, came)| format!("{came:?}")).collect();
            sqlx::query(
                "insert into ends select * from unnest($1::bigint[], $2::bigint[], $3::text[])",
            )
            .bind(jobs)
            .bind(tokens)
            .bind(came)
            .execute(connection)
            .await?;
            Ok(Settled::default())
        })
    }
}

/// In the child: works until its input ends, because its parent let go of it or is no more.
pub(super) async fn work(child: &ChildArguments) -> Result<()> {
    let log = Log::open(child.log.as_deref().ok_or("a worker needs a log")?)?;
    let pool = PgPoolOptions::new().connect_lazy(&child.url)?;
    Worker::new(pool)
        .register::<Nap>()
        .queue("default", SLOTS)
        .keep_succeeded(true)
        .data(log)
        .settle(Arc::new(Record))
        .run_until(async {
            let _ = tokio::io::stdin().read(&mut [0]).await;
        })
        .await?;
    Ok(())
}
