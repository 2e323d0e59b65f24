//! How tests wait: for an event, by asking again and again, and never without a limit.

use std::panic::Location;
use std::time::{Duration, Instant};

/// How long a test waits for one event before it fails.
pub const EVENT_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a whole test may take before it fails. Covers what is awaited directly, such as `run.wait()`.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(600);

/// The pause between two questions.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Asks until there is an answer.
///
/// # Panics
///
/// When there is none within [`EVENT_TIMEOUT`]; the message names the event.
pub async fn eventually<T>(event: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let answer = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(EVENT_TIMEOUT, answer)
        .await
        .unwrap_or_else(|_| panic!("did not happen within {EVENT_TIMEOUT:?}: {event}"))
}

/// Waits until a condition holds.
///
/// # Panics
///
/// When it does not within [`EVENT_TIMEOUT`]; the message names the line of the caller.
#[track_caller]
pub fn until(mut holds: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        let event = format!("the condition at {caller}");
        eventually(&event, async || holds().await.then_some(())).await;
    }
}

/// Waits until a condition holds, on a thread of its own.
///
/// # Panics
///
/// When it does not within [`EVENT_TIMEOUT`]; the message names the line of the caller.
#[track_caller]
pub fn block_until(mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(
            began.elapsed() < EVENT_TIMEOUT,
            "the condition does not hold within {EVENT_TIMEOUT:?}"
        );
        std::thread::sleep(POLL_INTERVAL);
    }
}
