//! Plain jobs: retried, delayed, discarded, and a batch of jobs.

use crate::Result;
use crate::scene::Scene;
use crate::screen::Screen;
use crate::snapshot::Snapshot;
use crate::watch::LOOK;

pub(crate) async fn play(scene: &Scene, screen: &mut Screen) -> Result<()> {
    screen.act(
        "1. Jobs",
        "  One transaction enqueues mails and a webhook; thumbnails are a batch with a callback.",
    )?;
    let batch = scene.enqueue().await?;
    loop {
        let snapshot = Snapshot::take(scene, &batch).await?;
        screen.show(snapshot.picture(screen))?;
        if snapshot.is_over() {
            screen.rest();
            snapshot.check()?;
            return screen.line(
                "\n  The webhook failed twice and was retried. The invoice was discarded, because its job said that no\n  \
                 further attempt would help. The callback was enqueued once, when the last thumbnail ended.",
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}
