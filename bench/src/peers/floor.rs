//! The least that a durable chain of five steps costs: one insert, five updates of one row by its key and one
//! read, each of them a statement in autocommit, on one connection.
//!
//! Two programs include this file: the bench itself, and the program of the peers (`bench/peers`).

use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres};

use super::Result;
use super::drive::{WARM_UP, timed};
use super::payload::{CHAIN_STEPS, chain_output};

/// The names of the two series that [`Floor::in_turn`] measures.
pub(crate) const CHAIN_MS: &str = "chain_ms";
pub(crate) const FLOOR_MS: &str = "floor_ms";

/// A connection with the floor's table.
pub(crate) struct Floor(PoolConnection<Postgres>);

impl Floor {
    pub(crate) async fn prepare(pool: &PgPool) -> Result<()> {
        sqlx::raw_sql("create table floor (id bigint primary key, number bigint not null)")
            .execute(pool)
            .await?;
        Ok(())
    }

    pub(crate) async fn connect(pool: &PgPool) -> Result<Self> {
        Ok(Self(pool.acquire().await?))
    }

    /// One chain: returns its output.
    pub(crate) async fn run(&mut self, number: u64) -> Result<u64> {
        sqlx::query("insert into floor values ($1, $1)")
            .bind(number.cast_signed())
            .execute(&mut *self.0)
            .await?;
        for _ in 0..CHAIN_STEPS {
            sqlx::query("update floor set number = number + 1 where id = $1")
                .bind(number.cast_signed())
                .execute(&mut *self.0)
                .await?;
        }
        let output: i64 = sqlx::query_scalar("select number from floor where id = $1")
            .bind(number.cast_signed())
            .fetch_one(&mut *self.0)
            .await?;
        Ok(output.cast_unsigned())
    }

    /// Runs chains one at a time, in turn with the floor's, and times each: see [`CHAIN_MS`] and [`FLOOR_MS`]. The
    /// runs have the numbers from 0 to `times` and the [`WARM_UP`] before.
    pub(crate) async fn in_turn(
        &mut self,
        times: u64,
        chain: impl AsyncFn(u64) -> Result<u64>,
    ) -> Result<Vec<(String, Vec<f64>)>> {
        let (mut chains, mut floors) = (Vec::new(), Vec::new());
        for number in 0..times + WARM_UP {
            let expected = chain_output(number);
            let chain_ms = timed(expected, chain(number)).await?;
            let floor_ms = timed(expected, self.run(number)).await?;
            if number >= WARM_UP {
                chains.push(chain_ms);
                floors.push(floor_ms);
            }
        }
        Ok(vec![
            (CHAIN_MS.to_owned(), chains),
            (FLOOR_MS.to_owned(), floors),
        ])
    }
}
