//! What a step costs as its graph grows, and as the tables fill.
//!
//! Every measurement has a database of its own, and a child that works and starts runs: as many as are
//! to be in flight, and the next one whenever one has ended. At every size there are as many runs in
//! flight and as many steps in all; the clock takes in the starting. Ends are taken at most
//! [`GROUP`] to a transaction, so that no size profits from larger groups than another.
//!
//! Beside the time, the rows that the server read for a step, table by table (entries of indexes, and
//! rows of scans without one): they do not depend on who else uses the machine, and show which table is
//! walked along where it should be looked up in.

mod ours;
mod shapes;

use pipeline::graph::spec::GraphSpec;
use sqlx::{Connection as _, PgConnection};

use crate::frame::{ChildArguments, Counted, Measured, Report, Result, Server, median, table};

/// Options of `bench -- growth`.
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

/// The most steps that are added to tables that are full, or empty: these stay what they are.
const ADDED: u64 = 200_000;

/// Builds a graph of this many steps.
type Make = fn(usize) -> GraphSpec;
const SHAPES: [(&str, Make); 3] = [
    ("chain", shapes::chain),
    ("fan", shapes::fan),
    ("grid", shapes::grid),
];
const EMPTY: &str = "empty";
const FULL: &str = "full";

/// The tables whose rows are counted.
const TABLES: [&str; 6] = ["runs", "steps", "nodes", "dependencies", "jobs", "events"];

/// One thing to measure.
struct Case {
    name: &'static str,
    size: u64,
    in_flight: u64,
    steps: u64,
}

pub(crate) async fn run(options: Options) -> Result<()> {
    let cases = cases(&options)?;
    let mut server = Server::start().await?;
    let mut report = Report::default();
    let mut costs: Vec<(&str, u64, f64)> = Vec::new();
    let mut read = vec![head()];
    for round in 1..=options.rounds {
        for case in &cases {
            let (measured, counted, rows) = measure_one(&mut server, case, &options).await?;
            let label = format!("{} {} ({round})", case.name, case.size);
            report.row(&label, &measured, &counted);
            let cost = measured.seconds / measured.items as f64;
            eprintln!("{label}: {:.1} µs a step", cost * 1e6);
            costs.push((case.name, case.size, cost));
            let each = rows.map(|count| format!("{:.2}", count as f64 / measured.items as f64));
            read.push(row(label, each));
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
    println!("Rows read for a step, by table:");
    table(&read);
    println!();
    let settings = server.settings().await?;
    report.print(&title(&options, &cases), &settings);
    Ok(())
}

fn head() -> [String; TABLES.len() + 1] {
    row(String::new(), TABLES.map(str::to_owned))
}

fn row(label: String, cells: [String; TABLES.len()]) -> [String; TABLES.len() + 1] {
    let mut cells = std::iter::once(label).chain(cells);
    std::array::from_fn(|_| cells.next().unwrap_or_default())
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
            steps: options.steps,
        }));
    }
    if asked(options, FULL) {
        cases.extend([EMPTY, FULL].map(|name| Case {
            name,
            size: SMALL,
            in_flight: IN_FLIGHT.min(options.steps / SMALL),
            steps: options.steps.min(ADDED),
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
            "\n{FULL}: {} finished steps in the tables; {EMPTY}: none; {} steps more in each",
            options.finished,
            options.steps.min(ADDED)
        );
    }
    title
}

/// Measures one case, in a database of its own.
async fn measure_one(
    server: &mut Server,
    case: &Case,
    options: &Options,
) -> Result<(Measured, Counted, [i64; TABLES.len()])> {
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
    let run = child("run", case.steps);
    server.count(&scratch, &prepare).await?;
    if case.name == FULL {
        server.count(&scratch, &fill).await?;
    }
    let url = server.url(&scratch);
    let before = rows_read(&url).await?;
    let (measured, counted) = server.count(&scratch, &run).await?;
    let after = rows_read(&url).await?;
    server.remove(&scratch).await?;
    let read = std::array::from_fn(|at| after[at] - before[at]);
    Ok((measured, counted, read))
}

/// Returns how many rows have been read in each table so far.
async fn rows_read(url: &str) -> Result<[i64; TABLES.len()]> {
    let mut connection = PgConnection::connect(url).await?;
    let rows: Vec<i64> = sqlx::query_scalar(
        "select (t.seq_tup_read + (select coalesce(sum(i.idx_tup_read), 0)
                                   from pg_stat_user_indexes i where i.relid = t.relid))::bigint
         from unnest($1::text[]) with ordinality as asked (name, at)
         join pg_stat_user_tables t on t.schemaname = 'pipeline' and t.relname = asked.name
         order by asked.at",
    )
    .bind(&TABLES[..])
    .fetch_all(&mut connection)
    .await?;
    connection.close().await?;
    Ok(rows.try_into().map_err(|_| "a table is not there")?)
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
