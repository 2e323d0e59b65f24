//! A step chooses an arm of a branch. The arms that were not chosen are skipped.

use pipeline::Invalid;
use pipeline::prelude::*;
use serde::{Deserialize, Serialize};
use shop::{Result, Tree};

/// How a parcel is sent. A variant without an arm does not compile.
#[derive(Serialize, Deserialize, Branch)]
enum Way {
    Van,
    Plane,
}

/// Weighs a parcel.
#[derive(Serialize, Deserialize, Job)]
struct Weigh {
    kilos: u32,
}

impl Perform for Weigh {
    type Input = ();
    type Output = u32;

    async fn perform(self, (): (), _: &Context) -> Result<u32, JobError> {
        Ok(self.kilos)
    }
}

/// Chooses the arm: the output is the enum.
#[derive(Serialize, Deserialize, Job)]
struct Decide;

impl Perform for Decide {
    type Input = u32;
    type Output = Way;

    async fn perform(self, kilos: u32, _: &Context) -> Result<Way, JobError> {
        Ok(if kilos > 20 { Way::Van } else { Way::Plane })
    }
}

/// Sends a parcel and returns the price.
#[derive(Serialize, Deserialize, Job)]
struct Send {
    per_kilo: u32,
}

impl Perform for Send {
    type Input = u32;
    type Output = u32;

    async fn perform(self, kilos: u32, _: &Context) -> Result<u32, JobError> {
        Ok(kilos * self.per_kilo)
    }
}

fn parcel(kilos: u32) -> Result<Pipeline<u32>, Invalid> {
    Pipeline::configure("parcel", |p| {
        let weight = p.step("weigh", Weigh { kilos });
        // Both arms return a price, so the branch returns a price.
        weight.branch(
            "decide",
            Decide,
            WayArms {
                van: || weight.then("by_van", Send { per_kilo: 2 }),
                plane: || weight.then("by_plane", Send { per_kilo: 9 }),
            },
        )
    })
}

#[tokio::main]
async fn main() -> Result<()> {
    let register = |worker: pipeline::Worker| worker.register::<(Weigh, Decide, Send)>();
    shop::tell(register, async |client| {
        for (kilos, not_chosen) in [(30, "by_plane"), (3, "by_van")] {
            let pipeline = parcel(kilos)?;
            let tree = Tree::of(pipeline.graph());
            let run = client.start(pipeline).await?;
            run.wait().await?;
            let state = run.state().await?;
            println!("{kilos} kg, {} to pay", run.output().await?);
            println!("{}", tree.text(&state));
            let skipped = state.step(not_chosen).map(|step| step.status);
            assert_eq!(skipped, Some(StepStatus::SkippedByBranch));
        }
        Ok(())
    })
    .await
}
