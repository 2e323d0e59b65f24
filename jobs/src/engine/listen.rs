//! Hears of new work. What it misses, the tick finds.

use std::sync::Arc;

use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio::sync::Notify;

use super::Shared;
use super::link::Link;

pub(crate) const CHANNEL: &str = "pipeline_jobs";

pub(crate) async fn run(shared: Arc<Shared>, pool: PgPool) {
    let mut backoff = Link::new(pool.clone());
    while !shared.stopping.is_cancelled() {
        let outcome = tokio::select! {
            outcome = listen(&shared, &pool, &mut backoff) => outcome,
            () = shared.stopping.cancelled() => return,
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, "not listening for new work; the poll goes on");
        }
        backoff.bad(&shared.stopping).await;
    }
}

async fn listen(shared: &Shared, pool: &PgPool, backoff: &mut Link) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    for channel in shared.calls.keys() {
        listener.listen(channel).await?;
    }
    backoff.good();
    loop {
        // What came before we listened, or while we did not, is asked for.
        shared.wake_all();
        shared.tick_now.notify_one();
        shared.calls.values().for_each(Notify::notify_one);
        while let Some(notification) = listener.try_recv().await? {
            if let Some(call) = shared.calls.get(notification.channel()) {
                call.notify_one();
                continue;
            }
            match notification.payload() {
                "*" => {
                    shared.wake_all();
                    shared.tick_now.notify_one();
                }
                queue => shared.wake(queue),
            }
        }
    }
}
