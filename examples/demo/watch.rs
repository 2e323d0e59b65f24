//! Shows runs until they end: their steps as trees, the runs chained to them, and their callbacks.

use std::time::Duration;

use pipeline::prelude::*;
use shop::Tree;
use shop::studio::Tell;

use crate::Result;
use crate::scene::Scene;
use crate::screen::{Line, Screen};

/// The interval between two reads of the database.
pub(crate) const LOOK: Duration = Duration::from_millis(80);

/// A run that is shown.
pub(crate) struct Part {
    /// The text before the name, which shows the place of the run in its chain.
    lead: &'static str,
    name: String,
    tree: Tree,
    /// Whether the steps of the run are shown.
    open: bool,
}

impl Part {
    pub(crate) fn new<O>(lead: &'static str, pipeline: &Pipeline<O>, open: bool) -> Self {
        Self {
            lead,
            name: pipeline.name().to_owned(),
            tree: Tree::of(pipeline.graph()),
            open,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Shows the runs until all of them have ended and the callback has run `times` times.
pub(crate) async fn watch(
    scene: &Scene,
    screen: &mut Screen,
    runs: &[(Part, Run)],
    times: usize,
) -> Result<Vec<RunEnded>> {
    loop {
        // Read the callbacks before the runs: a callback that is shown then belongs to a run that has ended.
        let told = told(scene, runs).await?;
        let mut picture = Vec::new();
        let mut live = 0;
        for (part, run) in runs {
            live += usize::from(!draw(screen, part, run, &mut picture).await?.is_ended());
        }
        picture.extend(told.iter().map(callback));
        screen.show(picture)?;
        if live == 0 && told.len() >= times {
            screen.rest();
            return Ok(told);
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn draw(
    screen: &Screen,
    part: &Part,
    run: &Run,
    picture: &mut Vec<Line>,
) -> Result<RunStatus> {
    let state = run.state().await?;
    let (lead, name) = (part.lead, &part.name);
    let colour = match state.status {
        RunStatus::Pending => "2",
        RunStatus::Running => "33",
        RunStatus::Succeeded => "32",
        _ => "31",
    };
    let round = match state.round {
        1 => String::new(),
        round => format!(", round {round}"),
    };
    let status = state.status.to_string();
    picture.push(Line {
        of: name.clone(),
        drawn: format!("{lead}{name:<18} {}{round}", screen.paint(colour, &status)),
        said: match state.status {
            RunStatus::Pending => String::new(),
            _ => format!("{name:<18} {status}{round}"),
        },
        news: None,
    });
    for step in part.tree.draw(&state).into_iter().filter(|_| part.open) {
        let mark = screen.paint(step.mark.1, step.mark.0);
        picture.push(Line {
            drawn: format!("{}{mark} {}  {}", step.lines, step.key, step.words),
            said: match step.is_news {
                true => format!(
                    "  {} {:<16} {}",
                    step.mark.0,
                    step.key.trim_end(),
                    step.words
                ),
                false => String::new(),
            },
            of: format!("{name}.{}", step.key),
            news: None,
        });
    }
    Ok(state.status)
}

fn callback(told: &RunEnded) -> Line {
    let round = format!("{} round {}", told.pipeline, told.round);
    let failed = told
        .failed
        .iter()
        .map(|it| format!("; {}: {}", it.step, it.class));
    let said = format!(
        "callback: {round} {}{}",
        told.status,
        failed.collect::<String>()
    );
    Line {
        of: said.clone(),
        drawn: said.clone(),
        said,
        news: None,
    }
}

/// Returns the inputs of the callbacks of these runs, in the order of their ends.
async fn told(scene: &Scene, runs: &[(Part, Run)]) -> Result<Vec<RunEnded>> {
    let rows: Vec<sqlx::types::Json<RunEnded>> = sqlx::query_scalar(
        "select input from pipeline.jobs
         where job_type = $1 and args ->> 'whom' = $2 and status = 'succeeded'
           and (input ->> 'run')::bigint = any ($3)
         order by ended_at, id",
    )
    .bind(Tell::NAME)
    .bind(&scene.album)
    .bind(runs.iter().map(|(_, run)| run.id()).collect::<Vec<_>>())
    .fetch_all(scene.client.pool())
    .await?;
    Ok(rows.into_iter().map(|row| row.0).collect())
}

/// Returns an error if a value is not the expected one.
pub(crate) fn expect<T: PartialEq + std::fmt::Debug>(what: &str, is: T, expected: T) -> Result<()> {
    if is == expected {
        return Ok(());
    }
    Err(format!("{what} should be {expected:?} and is {is:?}").into())
}
