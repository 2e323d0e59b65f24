//! A client that starts runs and waits for the output of each.
//!
//! Two programs include this file: the bench itself, and the program of the peers (`bench/peers`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::Result;

/// Runs that the client of the workload `single` has in flight.
pub(crate) const IN_FLIGHT: u64 = 64;
/// Runs before the first one that counts in the workload `latency`: caches are cold, statements not prepared.
pub(crate) const WARM_UP: u64 = 20;
/// Runs that are started together in the workload `chain`.
pub(crate) const CHUNK: u64 = 200;

/// Starts runs 0 to `runs`, each with a call of its own, and waits for the output of each; so many are in flight
/// at a time, each in a task of its own. Fails if an output is not the expected one.
pub(crate) async fn each_alone<F, Fut>(
    runs: u64,
    in_flight: u64,
    expected: fn(u64) -> u64,
    run: F,
) -> Result<()>
where
    F: Fn(u64) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<u64>> + Send,
{
    let next = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..in_flight)
        .map(|_| {
            let (next, run) = (Arc::clone(&next), run.clone());
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs {
                        return Ok(());
                    }
                    let output = run(number).await.map_err(|error| error.to_string())?;
                    if output != expected(number) {
                        return Err(format!("run {number} returned {output}"));
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.await??;
    }
    Ok(())
}

/// Times one run: from before its start until its output is there, in milliseconds. Fails if the output is not
/// the expected one.
pub(crate) async fn timed(expected: u64, run: impl Future<Output = Result<u64>>) -> Result<f64> {
    let start = Instant::now();
    let output = run.await?;
    let took = start.elapsed();
    if output != expected {
        return Err(format!("a run returned {output} instead of {expected}").into());
    }
    Ok(took.as_secs_f64() * 1_000.0)
}
