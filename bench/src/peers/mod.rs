//! Ours, the peers and the reference side by side: one run, one server.
//!
//! Each round gives each system a database of its own for each workload, and children one after the other: one
//! prepares the schema, one does the work and checks the result in the database. Rounds go through all workloads and
//! systems, so that a machine that grows slower does so for all. The program of the peers has a workspace of its own
//! ([`program`]); `docs/performance.md` says what the workloads are and how each system is set up.

mod aims;
mod chart;
pub(crate) mod drive;
mod figures;
pub(crate) mod floor;
pub(crate) mod ours;
#[allow(dead_code, reason = "what only the program of the peers uses")]
pub(crate) mod payload;
pub(crate) mod program;
mod ratios;
mod workload;

use std::path::{Path, PathBuf};

use crate::frame::{ChildArguments, Counted, Measured, Result, Server};
use crate::throughput;
use figures::{Figures, Outcome};
pub(crate) use ours::measure;
use workload::{ALL, REFERENCE, Workload, chosen, is_peer, name};

/// Options of `bench -- peers`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// The workloads; all of them by default.
    #[arg(long, value_delimiter = ',')]
    only: Option<Vec<Workload>>,
    /// The systems; all of them by default. A name, or a name with other numbers than the usual ones: `dbos:40`.
    #[arg(long, value_delimiter = ',')]
    systems: Option<Vec<String>>,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many runs `chain`, `chain_10kb` and `single` have (2,000 by default) and `fan` (500 by default).
    #[arg(long)]
    runs: Option<u64>,
    /// How many jobs `jobs` has.
    #[arg(long, default_value_t = 20_000)]
    jobs: u64,
    /// How many runs `latency` and `latency_split` time.
    #[arg(long, default_value_t = 500)]
    times: u64,
    /// Where to write a chart.
    #[arg(long)]
    svg: Option<PathBuf>,
}

impl Options {
    fn items(&self, workload: Workload) -> u64 {
        match workload {
            Workload::Jobs => self.jobs,
            Workload::Latency | Workload::LatencySplit => self.times,
            Workload::Fan => self.runs.unwrap_or(500),
            Workload::Chain | Workload::Chain10Kb | Workload::Single => self.runs.unwrap_or(2_000),
        }
    }
}

pub(crate) async fn run(options: Options) -> Result<()> {
    let workloads = options.only.clone().unwrap_or(ALL.to_vec());
    let plan: Vec<(Workload, Vec<String>)> = workloads
        .into_iter()
        .map(|workload| (workload, chosen(workload, options.systems.as_deref())))
        .collect();
    let has_peers = plan
        .iter()
        .any(|(_, systems)| systems.iter().any(|it| is_peer(it)));
    let peers = match has_peers {
        true => Some(program::build().await?),
        false => None,
    };
    // Before anything is measured, so that nothing is lost if that fails.
    if let Some(folder) = options.svg.as_deref().and_then(Path::parent) {
        std::fs::create_dir_all(folder)?;
    }
    let mut server = Server::start().await?;
    let mut figures = Figures::default();
    for round in 1..=options.rounds {
        for (workload, systems) in &plan {
            if *workload == Workload::Chain10Kb && round > 1 {
                continue;
            }
            for system in systems {
                eprintln!("round {round}: {} of {system}", workload.name());
                let items = options.items(*workload);
                let (measured, counted) =
                    measure_one(&mut server, peers.as_deref(), *workload, system, items).await?;
                figures.add(Outcome {
                    workload: *workload,
                    system: system.clone(),
                    measured,
                    counted,
                });
            }
        }
    }
    println!(
        "Ours and the peers, {} round(s), medians\n{}\n",
        options.rounds,
        server.settings().await?
    );
    figures.print();
    if let Some(path) = &options.svg {
        std::fs::write(path, chart::svg(&figures))?;
        println!("The chart is in {}.\n", path.display());
    }
    let ratios = ratios::of(&figures);
    aims::print(&ratios);
    ratios::report(&ratios).close();
    Ok(())
}

/// One system under one workload, in a database of its own.
async fn measure_one(
    server: &mut Server,
    peers: Option<&Path>,
    workload: Workload,
    system: &str,
    items: u64,
) -> Result<(Measured, Counted)> {
    let phases = ["prepare", "run"];
    match workload {
        Workload::Jobs => {
            let round = throughput::measure_one(server, peers, system, items).await?;
            Ok(round.ran)
        }
        Workload::LatencySplit => in_two_processes(server, workload, system, items).await,
        Workload::Chain if name(system) == REFERENCE => {
            let [_, ran] = server.phases("chain", system, items, phases).await?;
            Ok(ran)
        }
        _ => {
            let program = peers.filter(|_| is_peer(system));
            let [_, ran] = server
                .phases_of(program, &workload.bench(), system, items, phases)
                .await?;
            Ok(ran)
        }
    }
}

/// The client is measured; the worker is another process.
async fn in_two_processes(
    server: &mut Server,
    workload: Workload,
    system: &str,
    items: u64,
) -> Result<(Measured, Counted)> {
    let scratch = server.scratch(system).await?;
    let url = server.url(&scratch);
    let child = |phase: &str| ChildArguments {
        items,
        phase: phase.to_owned(),
        ..ChildArguments::new(&workload.bench(), system, url.clone())
    };
    child("prepare").spawn().await?;
    let before = server.counted(&scratch).await?;
    let worker = child("work").start()?;
    let measured = child("run").spawn().await?;
    worker.stop().await?;
    let after = server.counted(&scratch).await?;
    server.remove(&scratch).await?;
    Ok((measured, after.since(before)))
}
