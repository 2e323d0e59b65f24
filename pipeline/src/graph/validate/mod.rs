//! Whether a graph can run: everything that is wrong with it, before any write.
//!
//! | what is judged | where |
//! |---|---|
//! | names, texts, numbers, durations (rule 29) | `limits.rs` |
//! | a step by itself | `traits.rs` |
//! | keys, phases, arms: where each step stands | `places.rs` |
//! | edges: those given, and those that barriers and merges add | `edges.rs`, `merges.rs` |
//! | what an edge takes, and whether it is sure to be there | `takes.rs` |
//! | cycles, and the order without them | `order.rs` |
//!
//! The work grows with steps and edges and nothing else; nothing recurses, so that no depth of a
//! graph breaks it.
//!
//! What is decided here, where the design leaves it open:
//!
//! - **Barriers** need no edges of their own. One waits for every step of its phase; a step of the
//!   next phase waits for it unless it depends on another step of its own phase. A branch and the
//!   steps of its arms stand in one phase. A barrier between a step and a step after its failure is also
//!   upstream of the next barrier.
//! - **Merges** need no edges of their own either. One waits for its branch, for the steps whose
//!   values it passes on, and for every step of the arms that nothing in them comes after; what stands
//!   in an arm further inside does not count, for it may not run.
//! - **An edge given twice**: a second one that is order only is removed, the order of the others
//!   kept. Two that take something are two values of the input, and one end to wait for; an error
//!   where there can be one value only, in an any-join and after a failure.
//! - **From outside an arm** a step inside it can be taken as one that may be absent, or in order
//!   only (an arm that is not chosen satisfies its edges); as sure only through a merge.
//! - **An any-join** takes the value of the upstream that succeeded first, or from all the order
//!   only; nothing else. That value is there, also if the upstream is optional or ignored. It has at
//!   least one upstream, and all of them in its own phase and inside its own arm: else it could start
//!   before the phase or the arm does.
//!   If all of its upstreams may be left out at once (arms that are not chosen, steps after failures that do
//!   not happen), so may the any-join, and its own value may be absent.
//! - **A step after a failure** has this one edge, to a step that can fail, inside its own arm, and of its
//!   own phase or of an earlier one. If of an earlier one, it waits for the end of the barrier before its own
//!   phase, whatever that end is.
//! - **Several callbacks** of one kind are allowed; each fires.

mod edges;
mod merges;
mod order;
mod places;
mod takes;
mod traits;

use std::collections::HashSet;

use super::invalid::{Invalid, Place};
use super::limits::{self, shown};
use super::lists::Lists;
use super::problem::Problem;
use super::spec::{GraphSpec, StepKind, Strategy};

use edges::Before;
use places::{Arms, Places};

impl GraphSpec {
    /// Whether the graph can run; if not, everything that is wrong with it.
    ///
    /// # Errors
    ///
    /// [`Invalid`] holds every problem at once, those of embedded graphs included.
    pub fn validate(&self) -> Result<(), Invalid> {
        check(self).map(|_| ())
    }
}

/// What was found out about a graph while it was judged. Steps are numbered as they were declared.
#[derive(Default)]
pub(super) struct Found {
    /// What the failure of each step means.
    pub(super) strategies: Vec<Strategy>,
    /// Whether any step comes after a failure.
    pub(super) has_failures: bool,
    /// The barriers that lie between a step and a step after its failure.
    pub(super) awaited_barriers: HashSet<u32>,
    /// The steps that are graphs.
    pub(super) children: Vec<u32>,
    /// Where each step stands.
    pub(super) phases: Vec<u32>,
    /// The arms, and which of them each step stands in.
    pub(super) arms: Arms,
    /// What each step comes after, added edges included.
    pub(super) upstream: Lists<Before>,
    /// Whether any step takes from another more than once.
    pub(super) has_repeats: bool,
    /// The steps so that each comes after what it depends on.
    pub(super) order: Vec<u32>,
}

/// Judges a graph and the graphs embedded in it.
pub(super) fn check(spec: &GraphSpec) -> Result<Found, Invalid> {
    if spec.steps.len() > limits::STEPS {
        return Err(too_many_steps(spec, spec.steps.len()));
    }
    let (found, mut problems) = check_one(spec);
    if !found.children.is_empty() {
        let steps = steps_with_children(spec);
        if steps > limits::STEPS {
            return Err(too_many_steps(spec, steps));
        }
        check_children(spec, &mut problems);
    }
    if problems.is_empty() {
        return Ok(found);
    }
    Err(Invalid::new(&spec.name, problems))
}

fn too_many_steps(spec: &GraphSpec, count: usize) -> Invalid {
    let problem = Problem::TooMany {
        place: Place::Pipeline,
        what: "steps, those of embedded graphs included,",
        count,
        limit: limits::STEPS,
        remedy: "split it into a chain of pipelines, or run one step for each element of a list",
    };
    Invalid::new(&spec.name, vec![problem])
}

/// Judges a graph alone. What it finds is only to be relied on where there is no problem.
fn check_one(spec: &GraphSpec) -> (Found, Vec<Problem>) {
    let mut problems = Vec::new();
    if spec.steps.is_empty() {
        problems.push(Problem::NoSteps);
    }
    limits::pipeline(spec, &mut problems);
    let mut places = Places::find(spec, &mut problems);
    let edges = edges::resolve(&mut places, &mut problems);
    if edges.too_many {
        let children = places.children;
        return (
            Found {
                children,
                ..Found::default()
            },
            problems,
        );
    }
    let order = order::find(spec, &edges.upstream, &mut problems);
    takes::check(&places, &edges, &order, &mut problems);
    takes::outputs(&mut places, &mut problems);
    let found = Found {
        strategies: places.traits.iter().map(|step| step.strategy).collect(),
        has_failures: places.traits.iter().any(|step| step.is_after_failure),
        awaited_barriers: (places.barriers.iter().zip(&edges.awaited))
            .filter_map(|(barrier, is_awaited)| is_awaited.then_some(*barrier))
            .collect(),
        children: places.children,
        phases: places.phases,
        arms: places.arms,
        upstream: edges.upstream,
        has_repeats: edges.has_repeats,
        order,
    };
    (found, problems)
}

/// A graph that lies in others, with the keys of the steps that embed it, outermost first.
struct Embedded<'s> {
    path: Vec<&'s str>,
    graph: &'s GraphSpec,
}

fn embedded<'s>(path: &[&'s str], graph: &'s GraphSpec) -> impl Iterator<Item = Embedded<'s>> {
    graph.steps.iter().filter_map(move |step| match &step.kind {
        StepKind::Child { graph } => Some(Embedded {
            path: path.iter().copied().chain([step.key.as_str()]).collect(),
            graph: graph.as_ref(),
        }),
        _ => None,
    })
}

fn check_children(spec: &GraphSpec, problems: &mut Vec<Problem>) {
    let mut waiting: Vec<Embedded<'_>> = embedded(&[], spec).collect();
    waiting.reverse();
    while let Some(child) = waiting.pop() {
        if child.path.len() > limits::NESTED_GRAPHS {
            problems.push(Problem::TooDeep {
                step: child.path.last().map_or_else(String::new, |key| shown(key)),
                what: "embedded graphs",
                limit: limits::NESTED_GRAPHS,
            });
            continue;
        }
        let (_, found) = check_one(child.graph);
        problems.extend(found.into_iter().map(|problem| {
            child
                .path
                .iter()
                .rev()
                .fold(problem, |problem, step| Problem::InChild {
                    step: shown(step),
                    problem: Box::new(problem),
                })
        }));
        let inner: Vec<Embedded<'_>> = embedded(&child.path, child.graph).collect();
        waiting.extend(inner.into_iter().rev());
    }
}

/// The steps of a graph and of those embedded in it, as deep as they may be.
fn steps_with_children(spec: &GraphSpec) -> usize {
    let mut steps = 0;
    let mut waiting = vec![(0, spec)];
    while let Some((depth, graph)) = waiting.pop() {
        steps += graph.steps.len();
        if depth > limits::NESTED_GRAPHS || steps > limits::STEPS {
            continue;
        }
        waiting.extend(graph.steps.iter().filter_map(|step| match &step.kind {
            StepKind::Child { graph } => Some((depth + 1, graph.as_ref())),
            _ => None,
        }));
    }
    steps
}
