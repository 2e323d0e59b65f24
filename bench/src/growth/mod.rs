//! What a step costs as its graph grows, and as the tables fill.
//!
//! Every measurement has a database of its own, and a child that works and starts runs: as many as are
//! to be in flight, and the next one whenever one has ended. At every size there are as many runs in
//! flight and as many steps in all; the clock takes in the starting. Ends are taken at most
//! [`GROUP`] to a transaction, so that no size profits from larger groups than another.

mod ours;
mod shapes;

use pipeline::graph::spec::GraphSpec;

use crate::frame::{ChildArguments, Measured, Report, Result, Server, median};

/// What `bench -- growth` can be told.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// How many steps there are in all at every size.
    #[arg(long, default_value_t = 1_000_000)]
    steps: u64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The sizes of runs; the ratio is of the last against the first.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 1_000, 10_000])]
    sizes: Vec<u64>,
    /// What to measure.
    #[arg(long, value_delimiter = ',', default_values_t = ["chain", "fan", "grid", "full"].map(str::to_owned))]
    only: Vec<String>,
    /// How many finished steps are in the tables that are full.
    #[arg(long, default_value_t = 1_000_000)]
    finished: u64,
}

/// The most runs in flight.
const IN_FLIGHT: u64 = 100;
/// The most ends in a transaction.
const GROUP: usize = 100;
/// The steps of a run in the full tables, and in the empty ones.
const SMALL: u64 = 10;

/// Makes a graph of so many steps.
type Make = fn(usize) -> GraphSpec;
const SHAPES: [(&str, Make); 3] = [
    ("chain", shapes::chain),
    ("fan", shapes::fan),
    ("grid", shapes::grid),
];
const EMPTY: &str = "empty";
const FULL: &str = "full";

/// One thing to measure.
struct Case {
    name: &'static str,
    size: u64,
    in_flight: u64,
}

pub(crate) async fn run(options: Options) -> Result<()> {
    let cases = cases(&options)?;
    let mut server = Server::start().await?;
    let mut report = Report::default();
    let mut costs: Vec<(&str, u64, f64)> = Vec::new();
    for round in 1..=options.rounds {
        for case in &cases {
            let (measured, counted) = measure_one(&mut server, case, &options).await?;
            let label = format!("{} {} ({round})", case.name, case.size);
            report.row(&label, &measured, &counted);
            let cost = measured.seconds / measured.items as f64;
            eprintln!("{label}: {:.1} µs a step", cost * 1e6);
            costs.push((case.name, case.size, cost));
        }
    }
    let cost = |name: &str, size: u64| {
        let of_it = costs.iter().filter(|(n, s, _)| (*n, *s) == (name, size));
        median(of_it.map(|(_, _, cost)| *cost).collect())
    };
    let (small, large) = ends(&options.sizes)?;
    for (shape, _) in SHAPES.iter().filter(|(shape, _)| asked(&options, shape)) {
        let ratio = cost(shape, large) / cost(shape, small);
        report.ratio(&format!("step_cost/{shape}"), ratio);
    }
    if asked(&options, FULL) {
        let ratio = cost(FULL, SMALL) / cost(EMPTY, SMALL);
        report.ratio("step_cost/full_empty", ratio);
    }
    let settings = server.settings().await?;
    report.print(&title(&options, &cases), &settings);
    Ok(())
}

fn asked(options: &Options, name: &str) -> bool {
    options.only.iter().any(|only| only == name)
}

/// The first and the last size.
fn ends(sizes: &[u64]) -> Result<(u64, u64)> {
    let first = sizes.first().copied().ok_or("no size")?;
    Ok((first, sizes.last().copied().unwrap_or(first)))
}

fn cases(options: &Options) -> Result<Vec<Case>> {
    for only in &options.only {
        if only != FULL && SHAPES.iter().all(|(shape, _)| shape != only) {
            return Err(format!("`{only}` is neither `{FULL}` nor a shape").into());
        }
    }
    let largest = options.sizes.iter().copied().max().ok_or("no size")?;
    if options.sizes.contains(&0) || options.steps < largest.max(SMALL) {
        let steps = options.steps;
        return Err(format!("{steps} steps are not one run of {largest} steps").into());
    }
    let mut cases = Vec::new();
    for (name, _) in SHAPES.iter().filter(|(shape, _)| asked(options, shape)) {
        cases.extend(options.sizes.iter().map(|size| Case {
            name,
            size: *size,
            // As many as there are at the largest size, for all sizes alike.
            in_flight: IN_FLIGHT.min(options.steps / largest),
        }));
    }
    if asked(options, FULL) {
        cases.extend([EMPTY, FULL].map(|name| Case {
            name,
            size: SMALL,
            in_flight: IN_FLIGHT.min(options.steps / SMALL),
        }));
    }
    Ok(cases)
}

fn title(options: &Options, cases: &[Case]) -> String {
    let in_flight = cases.iter().map(|case| case.in_flight).min().unwrap_or(0);
    let mut title = format!(
        "{} no-op steps in all, {IN_FLIGHT} runs in flight, at most {GROUP} ends in a transaction; an \
         item is a step",
        options.steps
    );
    if in_flight < IN_FLIGHT {
        title += &format!(
            "\nFEWER RUNS IN FLIGHT: so few steps make {in_flight} of the largest runs, and so many are \
             in flight at every size, not {IN_FLIGHT}. For those, ask for {} steps.",
            IN_FLIGHT * options.sizes.iter().max().unwrap_or(&1)
        );
    }
    if asked(options, FULL) {
        title += &format!(
            "\n{FULL}: {} finished steps in the tables; {EMPTY}: none",
            options.finished
        );
    }
    title
}

/// One case, in a database of its own.
async fn measure_one(
    server: &mut Server,
    case: &Case,
    options: &Options,
) -> Result<(Measured, crate::frame::Counted)> {
    let scratch = server.scratch(case.name).await?;
    let child = |phase: &str, items| ChildArguments {
        items,
        phase: phase.to_owned(),
        ..ChildArguments::new(
            "growth",
            &format!("{}/{}/{}", case.name, case.size, case.in_flight),
            server.url(&scratch),
        )
    };
    let prepare = child("prepare", 0);
    let fill = child("fill", options.finished);
    let run = child("run", options.steps);
    server.count(&scratch, &prepare).await?;
    if case.name == FULL {
        server.count(&scratch, &fill).await?;
    }
    let outcome = server.count(&scratch, &run).await?;
    server.remove(&scratch).await?;
    Ok(outcome)
}

/// In the child: one phase of one case.
pub(crate) async fn measure(child: &ChildArguments) -> Result<Measured> {
    let parts: Vec<&str> = child.system.split('/').collect();
    let [name, size, in_flight] = parts[..] else {
        return Err(format!("`{}` is no case", child.system).into());
    };
    let shape = SHAPES.iter().find(|(shape, _)| *shape == name);
    let shape = shape.map_or(shapes::chain as fn(usize) -> GraphSpec, |(_, shape)| *shape);
    let size: usize = size.parse()?;
    match child.phase.as_str() {
        "prepare" => ours::prepare(&child.url).await,
        "fill" => ours::fill(&child.url, shape(size), child.items).await,
        "run" => ours::run(&child.url, shape(size), child.items, in_flight.parse()?).await,
        phase => Err(format!("no phase is called `{phase}`").into()),
    }
}
