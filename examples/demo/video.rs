//! The video pipeline, which is started in a transaction, and the runs that are chained to it.

use pipeline::{Invalid, NewRun, Pipeline, RunStatus, StepStatus};
use shop::studio::{Download, Publish, Task, Tell, Thumbnail, Transcode};

use crate::Result;
use crate::scene::Scene;
use crate::screen::Screen;
use crate::watch::{Part, expect, watch};

fn video(scene: &Scene) -> Result<Pipeline<String>, Invalid> {
    let media = scene.queue("media");
    Pipeline::configure("video_processing", |p| {
        let source = p.step("download", Download { video: 42 }).queue(&media);
        let encoded = ["hd", "sd", "mobile"].map(|preset| {
            let key = format!("transcode_{preset}");
            source.then(&key, Transcode::to(preset)).queue(&media)
        });
        let thumbnail = source.then("thumbnail", Thumbnail).queue(&media).optional();
        let published = p.after((&encoded, &thumbnail)).step("publish", Publish);
        let published = published.queue(&media);
        p.following(&published)
            .step("cleanup", Task { millis: 300 })
            .queue(&media);
        p.on_complete(Tell {
            whom: scene.album.clone(),
        });
        published
    })
}

/// Declares a pipeline of one step.
fn small(scene: &Scene, name: &str, millis: u64) -> Result<Pipeline<()>, Invalid> {
    let queue = scene.queue("default");
    Pipeline::configure(name, |p| {
        p.step(name, Task { millis }).queue(queue);
    })
}

pub(crate) async fn play(scene: &Scene, screen: &mut Screen) -> Result<()> {
    screen.act(
        "2. A pipeline, and the runs that are chained to it",
        "  One transaction: start(video).then(quality_check).then((notify, analytics)).then(archive)",
    )?;
    let video = video(scene)?;
    let quality_check = small(scene, "quality_check", 500)?;
    let notify = small(scene, "notify", 300)?;
    let analytics = small(scene, "analytics", 500)?;
    let archive = small(scene, "archive", 300)?;
    let parts = [
        Part::new("", &video, true),
        Part::new("then  ", &quality_check, false),
        Part::new("then  ", &notify, false),
        Part::new(" and  ", &analytics, false),
        Part::new("then  ", &archive, false),
    ];
    let tagged = |pipeline| NewRun::new(pipeline).tag(&scene.album);

    let mut tx = scene.client.pool().begin().await?;
    let run = scene
        .client
        .start_in(&mut tx, video)
        .tag(&scene.album)
        .then(tagged(quality_check))
        .then((tagged(notify), tagged(analytics)))
        .then(tagged(archive))
        .await?;
    tx.commit().await?;

    let mut runs = vec![scene.client.run(run.id())];
    let mut stage = run.chained().await?;
    while let Some(first) = stage.first() {
        let next = first.chained().await?;
        runs.append(&mut stage);
        stage = next;
    }
    let runs: Vec<_> = parts.into_iter().zip(runs).collect();
    let told = watch(scene, screen, &runs, 1).await?;

    for (part, run) in &runs {
        expect(part.name(), run.status().await?, RunStatus::Succeeded)?;
    }
    expect("the number of callbacks", told.len(), 1)?;
    let state = run.state().await?;
    for step in &state.steps {
        let (status, attempt) = match step.key.as_str() {
            "thumbnail" => (StepStatus::Failed, 1),
            "transcode_hd" => (StepStatus::Succeeded, 2),
            _ => (StepStatus::Succeeded, 1),
        };
        expect(&step.key, (step.status, step.attempt), (status, attempt))?;
    }
    screen.line(&format!(
        "\n  The run published {}. transcode_hd needed two attempts. The thumbnail\n  \
         failed, but it is optional, so the run succeeded. The callback ran once.",
        run.output().await?
    ))
}
