//! `bin/demo`: the system at work, with nothing set up.
//!
//! | file | what it is |
//! |---|---|
//! | `home.rs` | where it runs: a Postgres of its own, or the one in `DATABASE_URL` |
//! | `scene.rs` | what is enqueued, and the worker that runs it |
//! | `snapshot.rs` | where all of it stands, as the database has it |
//! | `screen.rs` | live progress, on a terminal or line by line |
//! | `table.rs` | what it came to |
//!
//! The jobs themselves are in `examples/shop/`.

mod home;
mod scene;
mod screen;
mod snapshot;
mod table;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use jobs::Client;

use home::Home;
use scene::Scene;
use screen::Screen;
use snapshot::Snapshot;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// How often we look.
const LOOK: Duration = Duration::from_millis(80);
/// It takes about five seconds; a machine that needs longer than this has another problem.
const LIMIT: Duration = Duration::from_secs(90);

#[tokio::main]
async fn main() -> ExitCode {
    match demo().await {
        Ok(code) => code,
        // `bin/demo | head`: whoever listened has heard enough.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// Whatever happens on the stage, the stage is cleared.
async fn demo() -> Result<ExitCode> {
    let mut screen = Screen::new();
    screen.line("Job pipelines with nothing to operate but Postgres.\n")?;
    let home = Home::find().await?;
    let shown = play(&home, &mut screen).await;
    let left = home.leave().await;
    let code = shown?;
    left?;
    Ok(code)
}

async fn play(home: &Home, screen: &mut Screen) -> Result<ExitCode> {
    let client = Client::new(home.pool.clone());
    client.migrate().await?;
    let scene = Scene::new(client, home.is_shared());
    home.describe(screen).await?;
    scene.describe(screen)?;

    let watched = run(&scene, screen).await;
    screen.rest();
    let cleared = scene.clear().await;
    let last = watched?;
    cleared?;
    let Some(last) = last else {
        screen.line("\nStopped; what was enqueued is gone again.")?;
        return Ok(ExitCode::from(130));
    };
    table::show(screen, &last)?;
    closing_words(screen)?;
    Ok(ExitCode::SUCCESS)
}

/// Enqueues, works, and watches until all has ended; `None` if somebody pressed Ctrl-C.
async fn run(scene: &Scene, screen: &mut Screen) -> Result<Option<Snapshot>> {
    let batch = scene.enqueue().await?;
    let mut worker = scene.start_worker();
    let watched = tokio::select! {
        last = watch(scene, &batch, screen) => last.map(Some),
        failed = worker.failed() => return failed.map(|()| None),
        () = jobs::shutdown_signal() => Ok(None),
        () = tokio::time::sleep(LIMIT) => Err(format!("not all jobs ended within {LIMIT:?}").into()),
    };
    let stopped = worker.stop().await;
    let last = watched?;
    stopped?;
    Ok(last)
}

async fn watch(scene: &Scene, batch: &jobs::Batch, screen: &mut Screen) -> Result<Snapshot> {
    loop {
        let snapshot = Snapshot::take(scene, batch).await?;
        screen.show(&snapshot)?;
        if snapshot.is_over() {
            return Ok(snapshot);
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn closing_words(screen: &mut Screen) -> Result<()> {
    screen.line(
        "\nThe webhook failed twice and came back by itself, after 1 s and 2 s. The invoice said that no\n\
         further attempt would help. The thumbnails were a batch: its callback was enqueued once, in the\n\
         transaction that ended the last of them.\n\n\
         What to look at next:\n\
         \x20 docs/guides/first-job.md           from an empty folder to a running worker\n\
         \x20 docs/guides/retries-and-errors.md  every way a job can end\n\
         \x20 examples/shop/lib.rs               the jobs you have just seen\n\
         \x20 docs/architecture.md               how it works, and what it promises",
    )
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
