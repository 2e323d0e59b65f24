//! The index of a graph: its edges, arms and strategies by number. It is built once and never changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pipeline::graph::spec::{GraphSpec, Join, StepKind, StepSpec, Strategy, Takes};

/// The key of a step.
pub type Key = Arc<str>;

/// A valid graph, indexed.
#[derive(Debug)]
pub struct Index {
    /// The graph.
    pub spec: GraphSpec,
    /// The steps, in the order of declaration.
    pub nodes: Vec<Node>,
    numbers: BTreeMap<Key, usize>,
}

/// A step of a graph.
#[derive(Debug)]
pub struct Node {
    /// The step's key.
    pub key: Key,
    /// The edges into the step.
    pub links: Vec<Link>,
    /// The branches and arms around the step, the innermost first.
    pub arms: Vec<(usize, String)>,
    /// The strategy that decides when the step fails (rule 13).
    pub strategy: Strategy,
    /// Whether Halt leaves the step alone (rule 12).
    pub exempt: bool,
    /// Whether the step is a barrier that an error path behind it waits for: Halt does not skip it either.
    pub is_awaited: bool,
}

/// An edge into a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The upstream step.
    pub from: usize,
    /// What the edge carries.
    pub takes: Takes,
    /// Whether the edge only holds its step back: see [`gate`].
    pub gate: bool,
}

impl Index {
    /// Indexes a graph that is valid.
    pub fn new(spec: &GraphSpec) -> Self {
        let numbers: BTreeMap<Key, usize> = spec
            .steps
            .iter()
            .enumerate()
            .map(|(no, step)| (Key::from(step.key.as_str()), no))
            .collect();
        let mut nodes: Vec<Node> = spec
            .steps
            .iter()
            .map(|step| Node {
                key: Key::from(step.key.as_str()),
                links: Vec::new(),
                arms: arms(spec, &numbers, step),
                strategy: strategy(spec, step),
                exempt: false,
                is_awaited: false,
            })
            .collect();
        for no in 0..nodes.len() {
            nodes[no].links = links(spec, &numbers, &nodes, no);
        }
        for no in exempt(spec, &numbers) {
            nodes[no].exempt = true;
        }
        for no in awaited_barriers(spec, &numbers) {
            nodes[no].is_awaited = true;
        }
        Self {
            spec: spec.clone(),
            nodes,
            numbers,
        }
    }

    /// Returns the number of a step.
    pub fn number(&self, key: &str) -> Option<usize> {
        self.numbers.get(key).copied()
    }

    /// Returns the kind of a step.
    pub fn kind(&self, no: usize) -> &StepKind {
        &self.spec.steps[no].kind
    }

    /// Returns which of its upstreams a step waits for: all or any.
    pub fn join(&self, no: usize) -> Join {
        self.spec.steps[no].join
    }

    /// Rule 9: whether the failure of a step counts in the run's status.
    pub fn counts(&self, no: usize) -> bool {
        !self.spec.steps[no].optional
    }
}

/// Rule 13: returns a step's own strategy if it has one, else its pipeline's.
/// `.optional()` is Ignore (§4). §8: on a deciding step an inherited Ignore acts as Continue.
fn strategy(spec: &GraphSpec, step: &StepSpec) -> Strategy {
    if step.optional {
        return Strategy::Ignore;
    }
    match step.strategy.unwrap_or(spec.strategy) {
        Strategy::Ignore if matches!(step.kind, StepKind::Branch { .. }) => Strategy::Continue,
        strategy => strategy,
    }
}

/// §8: returns the arm around a step, the arm around that arm's branch, and so on.
fn arms(spec: &GraphSpec, numbers: &BTreeMap<Key, usize>, step: &StepSpec) -> Vec<(usize, String)> {
    let mut arms = Vec::new();
    let mut arm = step.arm.as_ref();
    while let Some(here) = arm {
        let branch = numbers[here.branch.as_str()];
        arms.push((branch, here.arm.clone()));
        arm = spec.steps[branch].arm.as_ref();
    }
    arms
}

/// Returns the declared edges, and the edges that a phase and an arm imply: a step after a barrier starts when
/// all steps before the barrier have ended, and a step in an arm starts when its branch is decided (§8).
///
/// Reading: `after_any` needs them also when only some of its upstreams lie in the phase or the arm,
/// for any one of the others could start it too early.
fn links(spec: &GraphSpec, numbers: &BTreeMap<Key, usize>, nodes: &[Node], no: usize) -> Vec<Link> {
    let step = &spec.steps[no];
    let mut links: Vec<Link> = step
        .after
        .iter()
        .map(|edge| {
            let from = numbers[edge.step.as_str()];
            Link {
                from,
                takes: edge.takes,
                gate: !edge.takes.is_input() && gate(spec, nodes, from, no),
            }
        })
        .collect();
    let held_by = |inside: &dyn Fn(usize) -> bool| {
        let mut real = links.iter().filter(|link| !link.gate);
        match step.join {
            Join::All => real.any(|link| inside(link.from)),
            Join::Any => real.all(|link| inside(link.from)),
        }
    };
    let mut implied = Vec::new();
    if let Some(arm) = nodes[no].arms.first()
        && !held_by(&|from| nodes[from].arms.contains(arm))
    {
        implied.push(arm.0);
    }
    let is_barrier = |at: &usize| matches!(spec.steps[*at].kind, StepKind::Barrier);
    if let Some(barrier) = (0..no).rev().find(is_barrier)
        && !held_by(&|from| from > barrier)
    {
        implied.push(barrier);
    }
    let is_error_path = links.iter().any(|link| link.takes == Takes::Failure);
    for from in implied {
        // Reading: an error path waits for the end of the barrier, whatever it is: the failure breaks the
        // barrier.
        let takes = if is_error_path && is_barrier(&from) {
            Takes::Ended
        } else {
            Takes::Order
        };
        let held = |link: &Link| link.from == from && (link.gate || step.join == Join::All);
        if !links.iter().any(held) {
            links.push(Link {
                from,
                takes,
                gate: true,
            });
        }
    }
    links
}

/// Reading: an order-only edge from a barrier, or from a branch around the step, is a gate. To
/// `after_any` it is no alternative ("the first upstream that succeeded"): it holds the step back
/// until it is satisfied.
fn gate(spec: &GraphSpec, nodes: &[Node], from: usize, to: usize) -> bool {
    matches!(spec.steps[from].kind, StepKind::Barrier)
        || nodes[to].arms.iter().any(|(branch, _)| *branch == from)
}

/// Returns the barriers between a step and its error path. Reading: Halt does not skip them, because the error
/// path waits until all steps of the phases before it have ended. Other steps after them are skipped.
fn awaited_barriers(spec: &GraphSpec, numbers: &BTreeMap<Key, usize>) -> BTreeSet<usize> {
    let is_barrier = |no: &usize| matches!(spec.steps[*no].kind, StepKind::Barrier);
    let mut awaited = BTreeSet::new();
    for (no, step) in spec.steps.iter().enumerate() {
        for edge in step
            .after
            .iter()
            .filter(|edge| edge.takes == Takes::Failure)
        {
            awaited.extend((numbers[edge.step.as_str()]..no).filter(is_barrier));
        }
    }
    awaited
}

/// Rule 12: `after_failure` steps and what depends on them alone are exempt from Halt's skipping.
/// "Alone" is read of the declared edges, and goes on down.
fn exempt(spec: &GraphSpec, numbers: &BTreeMap<Key, usize>) -> BTreeSet<usize> {
    let mut exempt: BTreeSet<usize> = BTreeSet::new();
    loop {
        let more: Vec<usize> = (0..spec.steps.len())
            .filter(|no| !exempt.contains(no))
            .filter(|no| {
                let after = &spec.steps[*no].after;
                after.iter().any(|edge| edge.takes == Takes::Failure)
                    || (!after.is_empty()
                        && after
                            .iter()
                            .all(|edge| exempt.contains(&numbers[edge.step.as_str()])))
            })
            .collect();
        if more.is_empty() {
            return exempt;
        }
        exempt.extend(more);
    }
}
