//! `bin/demo` shows the system without any setup.
//!
//! | file | contents |
//! |---|---|
//! | `mails.rs` | part 1: jobs |
//! | `video.rs` | part 2: a pipeline, a chain, a callback |
//! | `import.rs` | part 3: a run that fails and is reopened |
//! | `scene.rs` | the queues, the worker, and the cleanup |
//! | `snapshot.rs` | the statuses of the jobs |
//! | `watch.rs` | the statuses of the runs |
//! | `screen.rs` | live progress, on a terminal or line by line |
//!
//! The jobs themselves are in `examples/shop/`. Each part checks what it shows: an unexpected status ends the demo
//! with an error.

mod import;
mod mails;
mod scene;
mod screen;
mod snapshot;
mod video;
mod watch;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use pipeline::Client;
use shop::Home;

use scene::Scene;
use screen::Screen;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// The time after which the demo gives up. It normally takes about 15 seconds.
const LIMIT: Duration = Duration::from_secs(90);

#[tokio::main]
async fn main() -> ExitCode {
    match demo().await {
        Ok(code) => code,
        // The reader of the output has closed the pipe, as in `bin/demo | head`.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the demo, and removes its data in every case.
async fn demo() -> Result<ExitCode> {
    let mut screen = Screen::new();
    screen.line("Job pipelines on Postgres, with no other service to operate.\n")?;
    let home = Home::find("pipeline_demo").await?;
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
    screen.line(&home.describe().await?)?;
    screen.line(&scene.describe())?;

    let played = work(&scene, screen).await;
    screen.rest();
    let cleared = scene.clear().await;
    let finished = played?;
    cleared?;
    if !finished {
        screen.line("\nStopped. The jobs of this demo are deleted.")?;
        return Ok(ExitCode::from(130));
    }
    closing_words(screen)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the parts together with a worker. Returns `false` after Ctrl-C.
async fn work(scene: &Scene, screen: &mut Screen) -> Result<bool> {
    let mut worker = scene.start_worker();
    let played = tokio::select! {
        played = acts(scene, screen) => played.map(|()| true),
        failed = worker.failed() => failed.map(|()| false),
        () = pipeline::shutdown_signal() => Ok(false),
        () = tokio::time::sleep(LIMIT) => Err(format!("the demo did not end within {LIMIT:?}").into()),
    };
    let stopped = worker.stop().await;
    let finished = played?;
    stopped?;
    Ok(finished)
}

async fn acts(scene: &Scene, screen: &mut Screen) -> Result<()> {
    mails::play(scene, screen).await?;
    video::play(scene, screen).await?;
    import::play(scene, screen).await
}

fn closing_words(screen: &mut Screen) -> Result<()> {
    screen.line(
        "\nThe state of all these jobs and runs was in Postgres: kill any process at any moment, and no job is lost.\n\n\
         Next:\n\
         \x20 examples/demo/video.rs        the pipeline of part 2\n\
         \x20 examples/*.rs                 branches, strategies, chains and more, one file each\n\
         \x20 docs/guides/first-job.md      from an empty folder to a running worker\n\
         \x20 docs/architecture.md          how it works",
    )
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
