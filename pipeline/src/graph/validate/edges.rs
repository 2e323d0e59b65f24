//! The edges of a graph: those that were declared, and those that barriers and merges add.

use std::collections::HashMap;

use super::super::invalid::Place;
use super::super::limits;
use super::super::lists::Lists;
use super::super::problem::Problem;
use super::super::spec::Takes;
use super::layout::Layout;
use super::merges::{self, Merge};
use super::properties::kind_name;

/// An edge as the downstream step has it: the upstream step, and what is taken from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) struct UpstreamEdge {
    pub(in super::super) step: u32,
    pub(in super::super) takes: Takes,
}

/// The edges of a graph, without invalid ones.
pub(super) struct Edges {
    /// The upstream edges of each step.
    pub(super) upstream: Lists<UpstreamEdge>,
    /// Whether any step takes the value of another more than once.
    pub(super) has_repeats: bool,
    /// Whether invalid edges of a step were left out. Its other edges are then not checked together.
    pub(super) incomplete: Vec<bool>,
    /// The merges, with their names resolved.
    pub(super) merges: Vec<Merge>,
    /// For each barrier, whether it is between a step and a step after its failure.
    pub(super) awaited: Vec<bool>,
    /// Whether there are more edges than allowed. Some are then missing.
    pub(super) too_many: bool,
}

/// Resolves the declared edges, and adds those of barriers and merges.
pub(super) fn resolve(layout: &mut Layout<'_>, problems: &mut Vec<Problem>) -> Edges {
    let merges = merges::find(layout, problems);
    let mut given = DeclaredEdges::new(layout, &merges);
    for step in 0..layout.spec.steps.len() as u32 {
        given.step(layout, step, problems);
    }
    let DeclaredEdges {
        lists,
        incomplete,
        has_repeats,
        ..
    } = given;
    let awaited = awaited(layout, &lists);
    let needs_more = !merges.is_empty() || !layout.barriers.is_empty();
    let upstream = if needs_more {
        with_added(layout, &lists, &merges, &awaited)
    } else {
        lists
    };
    let too_many = upstream.total() > limits::MAX_EDGES;
    if too_many {
        problems.push(Problem::TooMany {
            place: Place::Pipeline,
            what: "edges, those of barriers and branches included,",
            count: upstream.total(),
            limit: limits::MAX_EDGES,
            remedy: "put a barrier between steps that all run after one another",
        });
    }
    Edges {
        upstream,
        has_repeats,
        incomplete,
        merges,
        awaited,
        too_many,
    }
}

/// Returns for each barrier whether it is between a step and a step after its failure.
fn awaited(layout: &Layout<'_>, given: &Lists<UpstreamEdge>) -> Vec<bool> {
    // For each barrier, how many such pairs begin at its phase, less those that end there.
    let mut changes = vec![0_i64; layout.barriers.len()];
    for (step, before) in given.iter() {
        if !layout.properties[step as usize].is_after_failure {
            continue;
        }
        for failure in before.iter().filter(|up| up.takes == Takes::Failure) {
            let phases = [failure.step, step].map(|at| layout.phases[at as usize] as usize);
            for (phase, change) in phases.into_iter().zip([1, -1]) {
                if let Some(at) = changes.get_mut(phase) {
                    *at += change;
                }
            }
        }
    }
    let waiting = changes.into_iter().scan(0, |waiting, change| {
        *waiting += change;
        Some(*waiting > 0)
    });
    waiting.collect()
}

/// Marks an edge that is removed when the list of its step is complete.
const REMOVED: u32 = u32::MAX;

/// The declared edges, resolved step by step.
struct DeclaredEdges {
    lists: Lists<UpstreamEdge>,
    incomplete: Vec<bool>,
    has_repeats: bool,
    /// For each step, the last step with an edge from it, plus one, and the index of that edge.
    last_seen_by: Vec<(u32, u32)>,
    /// Whether the list that is being built has edges marked as removed.
    has_removed: bool,
    /// The steps whose values each merge takes. These edges are added with the others of the merge.
    values: HashMap<u32, Vec<u32>>,
}

impl DeclaredEdges {
    fn new(layout: &Layout<'_>, merges: &[Merge]) -> Self {
        let steps = layout.spec.steps.len();
        let values = |merge: &Merge| merge.values.iter().map(|(_, step)| *step).collect();
        Self {
            lists: Lists::with_capacity(steps, steps),
            incomplete: vec![false; steps],
            has_repeats: false,
            last_seen_by: vec![(0, 0); steps],
            has_removed: false,
            values: merges
                .iter()
                .map(|merge| (merge.step, values(merge)))
                .collect(),
        }
    }

    fn step(&mut self, layout: &mut Layout<'_>, step: u32, problems: &mut Vec<Problem>) {
        let spec = layout.spec;
        for edge in &spec.steps[step as usize].after {
            let key = &spec.steps[step as usize].key;
            let place = || Place::Step(limits::shown(key));
            let problem = match layout.named(place, "before it", &edge.step, problems) {
                None => {
                    self.incomplete[step as usize] = true;
                    continue;
                }
                Some(before) if before == step => Problem::SelfDependency {
                    step: layout.key(step),
                },
                Some(before) if layout.is_in_earlier_phase(step, before) => Problem::LaterPhase {
                    step: layout.key(step),
                    upstream: layout.key(before),
                },
                Some(before) => match self.edge(layout, step, before, edge.takes) {
                    Ok(()) => continue,
                    Err(problem) => problem,
                },
            };
            self.incomplete[step as usize] = true;
            problems.push(problem);
        }
        if std::mem::take(&mut self.has_removed) {
            self.lists.retain_open(|before| before.step != REMOVED);
        }
        self.lists.end();
    }

    fn edge(
        &mut self,
        layout: &mut Layout<'_>,
        step: u32,
        before: u32,
        mut takes: Takes,
    ) -> Result<(), Problem> {
        if layout.properties[step as usize].is_resolved {
            let is_value = || {
                self.values
                    .get(&step)
                    .is_some_and(|all| all.contains(&before))
            };
            let fits = match takes {
                Takes::Order => true,
                Takes::Value | Takes::Maybe => is_value(),
                Takes::Outcome | Takes::Failure | Takes::Ended => false,
            };
            if !fits {
                return Err(Problem::NotForKind {
                    step: layout.key(step),
                    kind: kind_name(layout.kind(step)),
                    what: "inputs of its own",
                });
            }
            takes = Takes::Order;
        }
        let here = (step + 1, self.lists.open().len() as u32);
        let met_before = &mut self.last_seen_by[before as usize];
        if met_before.0 == step + 1 {
            if !takes.is_input() {
                return Ok(());
            }
            let other = &mut self.lists.open_mut()[met_before.1 as usize];
            if !other.takes.is_input() {
                // Keep the edge that takes a value, at its position in the input.
                other.step = REMOVED;
                self.has_removed = true;
            } else if layout.properties[step as usize].is_any
                || [takes, other.takes].contains(&Takes::Failure)
            {
                return Err(Problem::DuplicateEdge {
                    step: layout.key(step),
                    upstream: layout.key(before),
                });
            } else {
                self.has_repeats = true;
            }
        }
        *met_before = here;
        if takes == Takes::Failure {
            layout.properties[step as usize].is_after_failure = true;
        }
        self.lists.push(UpstreamEdge {
            step: before,
            takes,
        });
        Ok(())
    }
}

/// Returns the declared edges with those of barriers and merges.
fn with_added(
    layout: &Layout<'_>,
    given: &Lists<UpstreamEdge>,
    merges: &[Merge],
    awaited: &[bool],
) -> Lists<UpstreamEdge> {
    let exits = merges::exits(layout, given, merges);
    let merge_at: HashMap<u32, usize> = merges
        .iter()
        .enumerate()
        .map(|(at, m)| (m.step, at))
        .collect();
    let steps = given.len();
    let mut lists = Lists::with_capacity(steps, given.total() + steps);
    let mut last_seen_by = vec![0_u32; steps];
    for (step, before) in given.iter() {
        // A step has an edge for each value that it takes; a merge has one for each upstream step.
        let has_input = !layout.properties[step as usize].is_resolved;
        let mut add = |lists: &mut Lists<UpstreamEdge>, upstream: UpstreamEdge| {
            let met = std::mem::replace(&mut last_seen_by[upstream.step as usize], step + 1);
            if met != step + 1 || has_input && upstream.takes.is_input() {
                lists.push(upstream);
            }
        };
        let order = |step: u32| UpstreamEdge {
            step,
            takes: Takes::Order,
        };
        let merge = merge_at.get(&step).map(|at| &merges[*at]);
        if let Some(merge) = merge {
            for (_, value) in &merge.values {
                let takes = Takes::Maybe;
                add(
                    &mut lists,
                    UpstreamEdge {
                        step: *value,
                        takes,
                    },
                );
            }
        }
        let phase = layout.phases[step as usize];
        let opened_by = (phase as usize).checked_sub(1).map(|p| layout.barriers[p]);
        let is_within = |up: &UpstreamEdge| layout.phases[up.step as usize] == phase;
        // A failure skips the barrier, so a step after the failure waits for any end of the barrier.
        let takes_of_barrier = match layout.properties[step as usize].is_after_failure {
            true if !before.iter().any(is_within) => Takes::Ended,
            _ => Takes::Order,
        };
        for upstream in before {
            let mut upstream = *upstream;
            if Some(upstream.step) == opened_by && upstream.takes == Takes::Order {
                upstream.takes = takes_of_barrier;
            }
            add(&mut lists, upstream);
        }
        if let Some(merge) = merge {
            add(&mut lists, order(merge.branch));
            for exit in exits.get(&merge.branch).into_iter().flatten() {
                add(&mut lists, order(*exit));
            }
        }
        if layout.properties[step as usize].is_barrier {
            for before in opened_by.map_or(0, |barrier| barrier + 1)..step {
                add(&mut lists, order(before));
            }
            // The barrier before also has to end: Halt may skip this whole phase while an earlier one goes on, and a
            // phase may hold only steps after failures, which a skipped barrier does not stop.
            if let Some(barrier) = opened_by.filter(|_| awaited[phase as usize - 1]) {
                add(&mut lists, order(barrier));
            }
        } else if let Some(barrier) = opened_by
            && !lists.open().iter().any(is_within)
        {
            let takes = takes_of_barrier;
            add(
                &mut lists,
                UpstreamEdge {
                    step: barrier,
                    takes,
                },
            );
        }
        lists.end();
        if lists.total() > limits::MAX_EDGES {
            // Too many edges are a problem of their own: the rest is not needed.
            while lists.len() < steps {
                lists.end();
            }
            break;
        }
    }
    lists
}
