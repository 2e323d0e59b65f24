//! What a worker does from time to time besides: each chore on a task and a connection of its own.

use std::sync::Arc;
use std::time::Instant;

use sqlx::PgPool;
use tokio::task::JoinHandle;

use super::link::{Link, limited};
use super::{Chore, Shared};
use crate::limits;

pub(crate) fn spawn(shared: &Arc<Shared>, pool: &PgPool) -> Vec<JoinHandle<()>> {
    shared
        .chores
        .iter()
        .map(|chore| {
            let (shared, chore) = (Arc::clone(shared), Arc::clone(chore));
            tokio::spawn(run(shared, chore, Link::new(pool.clone())))
        })
        .collect()
}

async fn run(shared: Arc<Shared>, chore: Arc<dyn Chore>, mut link: Link) {
    loop {
        // A little off, so that the workers of a fleet do not all come at once.
        let wait = chore
            .every()
            .min(limits::LONGEST)
            .mul_f64(0.9 + 0.2 * fastrand::f64());
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shared.called(chore.channel()) => {}
            () = shared.stopping.cancelled() => return,
        }
        let begun = Instant::now();
        let outcome = limited(async {
            let connection = link.try_get().await?;
            chore.run(connection, shared.worker()).await
        });
        match outcome.await {
            Ok(settled) => {
                link.good();
                shared.announce(settled.queues.into_iter(), begun);
                shared.tell(settled.news.into_iter());
                shared.ask_to_stop(&settled.stop);
            }
            Err(error) => {
                tracing::warn!(%error, ?chore, "a chore was not done; it is tried again");
                link.forget();
            }
        }
    }
}
