//! What it costs to validate and compile a graph: a step of 100,000 against a step of 1,000.
//!
//! Pure work on one thread, no server. Each shape is compiled in both sizes, in turns, as many steps
//! of the one as of the other; the median of the rounds counts. `Graph::compile` validates.

use std::time::{Duration, Instant};

use pipeline::graph::Graph;
use pipeline::graph::spec::{GraphSpec, Takes};

use crate::frame::Result;
use crate::graphs::graph;

const SMALL: usize = 1_000;
const LARGE: usize = 100_000;
const ROUNDS: usize = 7;

/// For step number `n`, the numbers of those before it.
type Shape = fn(usize) -> Vec<usize>;

const SHAPES: [(&str, Shape); 4] = [
    ("chain", |n| n.checked_sub(1).into_iter().collect()),
    ("wide", |n| if n == 0 { vec![] } else { vec![0] }),
    ("grid", grid),
    ("random", random),
];

/// Ten columns; each step after the one above it and the one beside that.
fn grid(n: usize) -> Vec<usize> {
    match n.checked_sub(10) {
        None => vec![],
        Some(above) if n % 10 == 9 => vec![above],
        Some(above) => vec![above, above + 1],
    }
}

/// Up to three of all the steps before, the same ones each time.
fn random(n: usize) -> Vec<usize> {
    let mut state = n as u64;
    let mut before: Vec<usize> = (0..n.min(3))
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        })
        .collect();
    before.sort_unstable();
    before.dedup();
    before
}

/// Measures, and prints.
pub(crate) fn run() -> Result<()> {
    println!("validate and compile, ns a step, median of {ROUNDS} rounds\n");
    println!("{:<8}  {:>8}  {:>8}  {:>6}", "shape", SMALL, LARGE, "ratio");
    let (mut small, mut large) = (0.0, 0.0);
    for (name, shape) in SHAPES {
        let (of_small, of_large) = measure(shape)?;
        println!(
            "{name:<8}  {of_small:>8.0}  {of_large:>8.0}  {:>6.2}",
            of_large / of_small
        );
        small += of_small;
        large += of_large;
    }
    println!("\nratio validate/100000-1000 {:.3}", large / small);
    Ok(())
}

/// Nanoseconds for each step, in a small graph and in a large one.
fn measure(shape: Shape) -> Result<(f64, f64)> {
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (size, times) in [SMALL, LARGE].into_iter().zip(&mut rounds) {
            let mut spent = Duration::ZERO;
            for _ in 0..LARGE / size {
                spent += compile(graph(size, "work", Takes::Value, shape))?;
            }
            times.push(spent.as_nanos() as f64 / LARGE as f64);
        }
    }
    let [small, large] = rounds.map(median);
    Ok((small, large))
}

/// The time it takes to compile; what making the graph and dropping it takes does not count.
fn compile(spec: GraphSpec) -> Result<Duration> {
    let start = Instant::now();
    let graph = Graph::compile(spec)?;
    let spent = start.elapsed();
    std::hint::black_box(graph.len());
    Ok(spent)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}
