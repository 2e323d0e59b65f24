//! A run that fails, is reopened, and succeeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Invalid, Pipeline, RunStatus};
use serde::{Deserialize, Serialize};
use shop::studio::{Task, Tell, work};

use crate::Result;
use crate::scene::Scene;
use crate::screen::Screen;
use crate::watch::{Part, expect, watch};

/// The disk of the application. It is full until part 3 makes room.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    has_room: Arc<AtomicBool>,
}

/// Fetches orders from a partner.
#[derive(Serialize, Deserialize, Job)]
#[job(name = "demo.fetch")]
pub(crate) struct Fetch;

impl Perform for Fetch {
    type Input = ();
    type Output = u32;

    async fn perform(self, (): (), _: &Context) -> Result<u32, JobError> {
        work(500).await;
        Ok(1_200)
    }
}

/// Stores orders, if the disk has room.
#[derive(Serialize, Deserialize, Job)]
#[job(name = "demo.load", max_attempts = 1)]
pub(crate) struct Load;

impl Perform for Load {
    type Input = u32;
    type Output = u32;

    async fn perform(self, orders: u32, cx: &Context) -> Result<u32, JobError> {
        work(500).await;
        if !cx.data::<Disk>()?.has_room.load(Ordering::Relaxed) {
            return Err(JobError::new("DiskFull", "no room for the orders"));
        }
        Ok(orders)
    }
}

fn import(scene: &Scene) -> Result<Pipeline<u32>, Invalid> {
    let queue = scene.queue("default");
    Pipeline::configure("order_import", |p| {
        let orders = p.step("fetch", Fetch).queue(&queue);
        let loaded = orders.then("load", Load).queue(&queue);
        let index = p.following(&loaded).step("index", Task { millis: 400 });
        index.queue(&queue);
        p.on_complete(Tell {
            whom: scene.album.clone(),
        });
        loaded
    })
}

pub(crate) async fn play(scene: &Scene, screen: &mut Screen) -> Result<()> {
    screen.act(
        "3. A failed run, reopened",
        "  The disk is full: a step fails, and the run is halted.",
    )?;
    let import = import(scene)?;
    let part = Part::new("", &import, true);
    let run = scene.client.start(import).tag(&scene.album).await?;
    let runs = [(part, scene.client.run(run.id()))];
    watch(scene, screen, &runs, 1).await?;
    expect("round 1", run.status().await?, RunStatus::Halted)?;
    let fetched = run.state().await?;

    screen.line(
        "\n  The disk has room again: run.reopen(). Steps that have succeeded do not run again.\n",
    )?;
    scene.disk.has_room.store(true, Ordering::Relaxed);
    run.reopen().await?;
    let told = watch(scene, screen, &runs, 2).await?;
    expect("round 2", run.status().await?, RunStatus::Succeeded)?;
    expect("the output", run.output().await?, 1_200)?;
    let state = run.state().await?;
    let ended = |state: &pipeline::RunState| state.step("fetch").and_then(|step| step.ended_at);
    expect("the end of fetch", ended(&state), ended(&fetched))?;
    let told: Vec<_> = told
        .iter()
        .map(|it| (it.round, it.status.as_str()))
        .collect();
    expect(
        "the inputs of the callback",
        told,
        vec![(1, "halted"), (2, "succeeded")],
    )
}
