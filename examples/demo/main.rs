//! `bin/demo`: the system at work, with nothing set up.
//!
//! | file | what it is |
//! |---|---|
//! | `mails.rs` | the first act: jobs |
//! | `video.rs` | the second: a pipeline, a chain, a callback |
//! | `import.rs` | the third: a run that fails, and is opened again |
//! | `scene.rs` | the queues, the worker, and clearing up |
//! | `snapshot.rs` | where the jobs stand |
//! | `watch.rs` | where the runs stand |
//! | `screen.rs` | live progress, on a terminal or line by line |
//!
//! The jobs themselves are in `examples/shop/`. Each act checks what it shows: a status that is not
//! the expected one ends the demo with an error.

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

/// It takes about a quarter of a minute; a machine that needs longer than this has another problem.
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
        screen.line("\nStopped; what was enqueued is gone again.")?;
        return Ok(ExitCode::from(130));
    }
    closing_words(screen)?;
    Ok(ExitCode::SUCCESS)
}

/// Plays with a worker beside it; `false` if somebody pressed Ctrl-C.
async fn work(scene: &Scene, screen: &mut Screen) -> Result<bool> {
    let mut worker = scene.start_worker();
    let played = tokio::select! {
        played = acts(scene, screen) => played.map(|()| true),
        failed = worker.failed() => failed.map(|()| false),
        () = pipeline::shutdown_signal() => Ok(false),
        () = tokio::time::sleep(LIMIT) => Err(format!("not all of it ended within {LIMIT:?}").into()),
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
        "\nAll of this was rows in Postgres: kill any process at any moment, and nothing is lost.\n\n\
         What to look at next:\n\
         \x20 examples/demo/video.rs        the pipeline you have just seen\n\
         \x20 examples/*.rs                 branches, strategies, chains and more, a page each\n\
         \x20 docs/guides/first-job.md      from an empty folder to a running worker\n\
         \x20 docs/architecture.md          how it works, and what it promises",
    )
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
