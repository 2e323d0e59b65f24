//! Validation of a graph: finds every problem before anything is written.
//!
//! | what is checked | where |
//! |---|---|
//! | names, texts, numbers, durations (rule 29) | `limits.rs` |
//! | a step without its edges | `properties.rs` |
//! | keys, phases, arms | `layout.rs` |
//! | declared edges, and those that barriers and merges add | `edges.rs`, `merges.rs` |
//! | what an edge takes, and whether it is always present | `takes.rs` |
//! | cycles, and the topological order | `order.rs` |
//!
//! The work is linear in steps and edges. Nothing recurses, so that a deep graph cannot overflow the stack.
//!
//! Rules of this module:
//!
//! - **Barriers** need no declared edges. A barrier waits for every step of its phase; a step of the next phase waits
//!   for the barrier unless it runs after another step of its own phase. A branch and the steps of its arms are in one
//!   phase. A barrier between a step and a step after its failure is also upstream of the next barrier.
//! - **Merges** need no declared edges. A merge waits for its branch, for the steps whose values it passes on, and for
//!   every step of the arms that no other step of them runs after; steps of arms further inside do not count, because
//!   they may not run.
//! - **An edge declared twice**: a second edge that takes only the order is removed. Two edges that take a value are two
//!   values of the input and one end to wait for; they are an error where there can be only one value, in an any-join
//!   and after a failure.
//! - **From outside an arm**, the value of a step inside it can be taken as one that may be absent, or only its order (an
//!   arm that is not chosen satisfies its edges). Only a merge makes a value that is always present.
//! - **An any-join** takes the value of the upstream step that succeeded first, or only the order of all of them. The
//!   value is present, also if the upstream step is optional or ignored. An any-join has at least one upstream step, and
//!   all of them in its own phase and inside its own arm: else it could start before the phase or the arm does. If all
//!   upstream steps may be skipped at once (arms that are not chosen, steps after failures that do not happen), so may
//!   the any-join, and its own value may be absent.
//! - **A step after a failure** has one edge, from a step that can fail, inside its own arm, and of its own phase or of an
//!   earlier one. If of an earlier one, the step waits for any end of the barrier before its own phase.
//! - **Several callbacks** for one event are allowed; each fires.

mod edges;
mod layout;
mod merges;
mod order;
mod properties;
mod takes;

use std::collections::HashSet;

use super::invalid::{Invalid, Place};
use super::limits::{self, shown};
use super::lists::Lists;
use super::problem::Problem;
use super::spec::{GraphSpec, StepKind, Strategy};

use edges::UpstreamEdge;
use layout::{Arms, Layout};

impl GraphSpec {
    /// Checks that the graph can run.
    ///
    /// # Errors
    ///
    /// [`Invalid`] holds every problem at once, those of embedded graphs included.
    pub fn validate(&self) -> Result<(), Invalid> {
        check(self).map(|_| ())
    }
}

/// The results of validation that compiling a graph needs. Steps are numbered in the order of their declaration.
#[derive(Default)]
pub(super) struct Analysis {
    /// The resolved failure strategy of each step.
    pub(super) strategies: Vec<Strategy>,
    /// Whether any step runs after a failure.
    pub(super) has_failures: bool,
    /// The barriers between a step and a step after its failure.
    pub(super) awaited_barriers: HashSet<u32>,
    /// The steps that are embedded graphs.
    pub(super) children: Vec<u32>,
    /// The phase of each step.
    pub(super) phases: Vec<u32>,
    /// The arms, and the innermost arm of each step.
    pub(super) arms: Arms,
    /// The upstream edges of each step, added edges included.
    pub(super) upstream: Lists<UpstreamEdge>,
    /// Whether any step takes the value of another more than once.
    pub(super) has_repeats: bool,
    /// The steps in topological order.
    pub(super) order: Vec<u32>,
}

/// Validates a graph and the graphs embedded in it.
pub(super) fn check(spec: &GraphSpec) -> Result<Analysis, Invalid> {
    if spec.steps.len() > limits::MAX_STEPS {
        return Err(too_many_steps(spec, spec.steps.len()));
    }
    let (found, mut problems) = check_one(spec);
    if !found.children.is_empty() {
        let steps = steps_with_children(spec);
        if steps > limits::MAX_STEPS {
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
        limit: limits::MAX_STEPS,
        remedy: "split it into a chain of pipelines, or run one step for each element of a list",
    };
    Invalid::new(&spec.name, vec![problem])
}

/// Validates a graph without those embedded in it. The analysis is only valid if there is no problem.
fn check_one(spec: &GraphSpec) -> (Analysis, Vec<Problem>) {
    let mut problems = Vec::new();
    if spec.steps.is_empty() {
        problems.push(Problem::NoSteps);
    }
    limits::pipeline(spec, &mut problems);
    let mut layout = Layout::find(spec, &mut problems);
    let edges = edges::resolve(&mut layout, &mut problems);
    if edges.too_many {
        let children = layout.children;
        return (
            Analysis {
                children,
                ..Analysis::default()
            },
            problems,
        );
    }
    let order = order::find(spec, &edges.upstream, &mut problems);
    takes::check(&layout, &edges, &order, &mut problems);
    takes::outputs(&mut layout, &mut problems);
    let found = Analysis {
        strategies: layout.properties.iter().map(|step| step.strategy).collect(),
        has_failures: layout.properties.iter().any(|step| step.is_after_failure),
        awaited_barriers: (layout.barriers.iter().zip(&edges.awaited))
            .filter_map(|(barrier, is_awaited)| is_awaited.then_some(*barrier))
            .collect(),
        children: layout.children,
        phases: layout.phases,
        arms: layout.arms,
        upstream: edges.upstream,
        has_repeats: edges.has_repeats,
        order,
    };
    (found, problems)
}

/// An embedded graph, with the keys of the steps that embed it, outermost first.
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
        if child.path.len() > limits::MAX_NESTED_GRAPHS {
            problems.push(Problem::TooDeep {
                step: child.path.last().map_or_else(String::new, |key| shown(key)),
                what: "embedded graphs",
                limit: limits::MAX_NESTED_GRAPHS,
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

/// Counts the steps of a graph and of the graphs embedded in it, down to the nesting that is allowed.
fn steps_with_children(spec: &GraphSpec) -> usize {
    let mut steps = 0;
    let mut waiting = vec![(0, spec)];
    while let Some((depth, graph)) = waiting.pop() {
        steps += graph.steps.len();
        if depth > limits::MAX_NESTED_GRAPHS || steps > limits::MAX_STEPS {
            continue;
        }
        waiting.extend(graph.steps.iter().filter_map(|step| match &step.kind {
            StepKind::Child { graph } => Some((depth + 1, graph.as_ref())),
            _ => None,
        }));
    }
    steps
}
