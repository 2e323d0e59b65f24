//! Whether all runs have ended as they should, by the tables.

use sqlx::PgPool;

use crate::frame::Result;
use crate::peers::payload::{CHAIN_STEPS, FAN_STEPS, fan_output};

/// What the tables must hold after a workload.
#[derive(Clone, Copy)]
pub(crate) struct Expected {
    /// How many steps each run has.
    pub(crate) steps: u64,
    /// A condition on the first step, `f`, and the last step, `l`, of a run that returned what it should.
    returned: &'static str,
    /// The number that the condition compares with.
    number: u64,
}

pub(crate) const CHAIN: Expected = Expected {
    steps: CHAIN_STEPS,
    returned: "l.output::text::bigint = (f.params ->> 'n')::bigint + $1",
    number: CHAIN_STEPS,
};

pub(crate) const LARGE_CHAIN: Expected = Expected {
    steps: CHAIN_STEPS,
    returned: "(l.output ->> 'n')::bigint = (f.params -> 'value' ->> 'n')::bigint + $1
               and l.output ->> 'text' = f.params -> 'value' ->> 'text'",
    number: CHAIN_STEPS,
};

/// What a fan returns grows by ten with each one in its first step's number: see [`fan_output`].
pub(crate) fn fan() -> Expected {
    Expected {
        steps: FAN_STEPS,
        returned: "l.output::text::bigint = (f.params ->> 'n')::bigint * 10 + $1",
        number: fan_output(0),
    }
}

impl Expected {
    /// Checks that so many runs were started, that all of them and all of their steps succeeded, that no job is left,
    /// and that each run returned what its first step's number makes of it.
    pub(crate) async fn check(self, pool: &PgPool, runs: u64) -> Result<()> {
        // The order of the nodes is that of the declaration: the first is 0, the last is the last.
        let query = format!(
            "select (select count(*) from pipeline.runs),
                    (select count(*) from pipeline.steps where status = 'succeeded'),
                    (select count(*) from pipeline.jobs),
                    (select count(*) from pipeline.runs r
                     join pipeline.steps f on f.run = r.id and f.no = 0
                     join pipeline.steps l on l.run = r.id and l.no = $2
                     where r.status = 'succeeded' and {})",
            self.returned
        );
        let found: (i64, i64, i64, i64) = sqlx::query_as(sqlx::AssertSqlSafe(query))
            .bind(self.number.cast_signed())
            .bind(i32::try_from(self.steps - 1)?)
            .fetch_one(pool)
            .await?;
        let expected = [runs, runs * self.steps, 0, runs].map(u64::cast_signed);
        if [found.0, found.1, found.2, found.3] != expected {
            return Err(format!(
                "runs, steps that succeeded, jobs left, runs with the right output: {found:?} instead of \
                 {expected:?}"
            )
            .into());
        }
        Ok(())
    }
}
