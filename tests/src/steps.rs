//! Steps for workers in other processes: they record in the database that they were executed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use jobs::testing::{Moment, Probe};
use jobs::{Context, Job, JobError, Perform};
use pipeline::{Branch, Failure, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

const TABLES: &str = "
    create table executed (job bigint, token bigint, attempt int, pid int);
    create table reached (pid int);";

/// Creates the tables that steps and probes write to.
pub async fn prepare(pool: &PgPool) {
    sqlx::raw_sql(TABLES)
        .execute(pool)
        .await
        .expect("the tables are created");
}

async fn executed(cx: &Context) -> Result<(), JobError> {
    sqlx::query("insert into executed values ($1, $2, $3, $4)")
        .bind(cx.id())
        .bind(cx.token())
        .bind(i32::from(cx.attempt()))
        .bind(std::process::id().cast_signed())
        .execute(cx.data::<PgPool>()?)
        .await?;
    Ok(())
}

/// Declares steps that hold a number: each with its input, its output and the function between them.
macro_rules! steps {
    ($($doc:literal $name:ident: $in:ty => $out:ty, $does:expr;)*) => {
        $(#[doc = $doc]
        #[derive(Debug, Clone, Serialize, Deserialize, Job)]
        #[job(max_attempts = 3, backoff = "fixed(1ms)")]
        pub struct $name(
            /// The number of the step.
            pub i64,
        );

        impl Perform for $name {
            type Input = $in;
            type Output = $out;

            async fn perform(self, given: $in, cx: &Context) -> Result<$out, JobError> {
                executed(cx).await?;
                let does: fn(i64, $in) -> Result<$out, JobError> = $does;
                does(self.0, given)
            }
        })*
    };
}

steps! {
    "Begins with its number." Begin: () => i64, |own, ()| Ok(own);
    "Adds to the one before." Plus: i64 => i64, |own, one| Ok(own + one);
    "Adds up the two before." Join: (i64, i64) => i64, |own, (one, other)| Ok(own + one + other);
    "Fails for good." Break: i64 => i64, |_, _| Err(JobError::new("Broken", "made to").discard());
    "Comes after a failure." Mend: Failure => i64, |own, _| Ok(own);
    "Goes on with what may be there." Perhaps: Option<i64> => i64, |own, one| Ok(one.unwrap_or(own));
    "Decides by the one before." Choose: i64 => Way, |own, one| {
        Ok(if one > own { Way::High } else { Way::Low })
    };
}

/// The arms of [`Choose`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize, Branch)]
pub enum Way {
    /// The input is above the step's number.
    High,
    /// The input is not above the step's number.
    Low,
}

/// Builds a worker that knows these steps.
pub fn worker(pool: &PgPool, slots: u32) -> Worker {
    Worker::new(pool.clone())
        .register::<(Begin, Plus, Join, Break, Mend, Perhaps, Choose)>()
        .data(pool.clone())
        .queue("*", slots)
}

/// A probe that holds the engine for ever at the nth occurrence of a moment, and records that it does.
#[derive(Debug)]
pub struct Hold {
    pool: PgPool,
    moment: Moment,
    left: AtomicUsize,
}

impl Hold {
    /// Creates a probe that holds the engine at this occurrence of the moment; the first is 1.
    pub fn new(pool: &PgPool, moment: Moment, time: usize) -> Arc<Self> {
        Arc::new(Self {
            pool: pool.clone(),
            moment,
            left: AtomicUsize::new(time),
        })
    }
}

impl Probe for Hold {
    fn at(&self, moment: Moment, _: usize) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if moment != self.moment || self.left.fetch_sub(1, Ordering::AcqRel) != 1 {
                return;
            }
            sqlx::query("insert into reached values ($1)")
                .bind(std::process::id().cast_signed())
                .execute(&self.pool)
                .await
                .expect("the moment is written down");
            std::future::pending::<()>().await;
        })
    }
}
