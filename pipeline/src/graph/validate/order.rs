//! Sorts the steps topologically, and finds the cycles of a graph that cannot be sorted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::super::limits::{shown, shown_key};
use super::super::lists::Lists;
use super::super::problem::Problem;
use super::super::spec::{GraphSpec, StepKind, StepSpec};
use super::edges::UpstreamEdge;

/// Returns the steps in topological order: of those that could come next, the one that was declared first. Leaves out
/// steps on a cycle and after one, and reports the cycles.
pub(super) fn find(
    spec: &GraphSpec,
    upstream: &Lists<UpstreamEdge>,
    problems: &mut Vec<Problem>,
) -> Vec<u32> {
    let declared_in_order = upstream
        .iter()
        .all(|(step, before)| before.iter().all(|up| up.step < step));
    if declared_in_order {
        return (0..upstream.len() as u32).collect();
    }
    let downstream = upstream.reversed(|before| before.step, |step, _| step);
    let order = order(upstream, &downstream);
    if order.len() < upstream.len() {
        cycles(spec, &downstream, &order, problems);
    }
    order
}

fn order(upstream: &Lists<UpstreamEdge>, downstream: &Lists<u32>) -> Vec<u32> {
    let mut waits: Vec<u32> = upstream
        .iter()
        .map(|(_, before)| before.len() as u32)
        .collect();
    let free = (0..).zip(&waits).filter(|(_, waits)| **waits == 0);
    let mut ready: BinaryHeap<Reverse<u32>> = free.map(|(step, _)| Reverse(step)).collect();
    let mut order = Vec::with_capacity(waits.len());
    while let Some(Reverse(step)) = ready.pop() {
        order.push(step);
        for &after in downstream.of(step) {
            waits[after as usize] -= 1;
            if waits[after as usize] == 0 {
                ready.push(Reverse(after));
            }
        }
    }
    order
}

/// Reports one cycle for each strongly connected component.
fn cycles(spec: &GraphSpec, downstream: &Lists<u32>, order: &[u32], problems: &mut Vec<Problem>) {
    let mut component_of = vec![NONE; downstream.len()];
    let mut components = components(downstream, order, &mut component_of);
    let mut search = CycleSearch {
        downstream,
        component_of,
        from: vec![(NONE, NONE); downstream.len()],
        edge_visits: 0,
    };
    // Tarjan's algorithm returns components in reverse order; report them in the order of their declaration.
    for component in &mut components {
        component.sort_unstable();
    }
    components.sort_unstable_by_key(|component| component.first().copied());
    for component in components {
        let key = |step: u32| cycle_key(&spec.steps[step as usize]);
        let path = search.shortest_cycle(&component).into_iter().map(key);
        problems.push(Problem::Cycle {
            path: path.collect(),
        });
    }
}

/// Names a step of a cycle, and tells the node where the arms of a branch meet from the branch itself.
fn cycle_key(step: &StepSpec) -> String {
    match &step.kind {
        StepKind::Merge { .. } if shown_key(step) != shown(&step.key) => {
            format!("(end of {})", shown_key(step))
        }
        _ => shown(&step.key),
    }
}

const NONE: u32 = u32::MAX;

/// Returns the strongly connected components of more than one step, by Tarjan's algorithm without recursion.
fn components(downstream: &Lists<u32>, order: &[u32], component_of: &mut [u32]) -> Vec<Vec<u32>> {
    let steps = downstream.len();
    let mut met = vec![NONE; steps];
    let mut low = vec![NONE; steps];
    let mut open: Vec<u32> = Vec::new();
    let mut is_open = vec![false; steps];
    let mut components = Vec::new();
    let mut time = 0;
    // Steps that have a topological order are on no cycle.
    for &step in order {
        met[step as usize] = 0;
    }
    for root in 0..steps as u32 {
        if met[root as usize] != NONE {
            continue;
        }
        let mut walk: Vec<(u32, usize)> = vec![(root, 0)];
        while let Some((step, next)) = walk.last_mut() {
            let at = *step as usize;
            if *next == 0 {
                met[at] = time;
                low[at] = time;
                time += 1;
                open.push(*step);
                is_open[at] = true;
            }
            if let Some(&after) = downstream.of(*step).get(*next) {
                *next += 1;
                let to = after as usize;
                if met[to] == NONE {
                    walk.push((after, 0));
                } else if is_open[to] {
                    low[at] = low[at].min(met[to]);
                }
                continue;
            }
            let step = *step;
            walk.pop();
            if let Some((before, _)) = walk.last() {
                let before = *before as usize;
                low[before] = low[before].min(low[at]);
            }
            if low[at] == met[at] {
                let start = open.iter().rposition(|other| *other == step).unwrap_or(0);
                let component = open.split_off(start);
                for &member in &component {
                    is_open[member as usize] = false;
                }
                if component.len() > 1 {
                    for &member in &component {
                        component_of[member as usize] = components.len() as u32;
                    }
                    components.push(component);
                }
            }
        }
    }
    components
}

/// The number of edges that the search for shorter cycles may visit.
const MAX_EDGE_VISITS: usize = 1_000_000;

struct CycleSearch<'g> {
    downstream: &'g Lists<u32>,
    component_of: Vec<u32>,
    /// For each step, the start of the last search that visited it, and the step before it on that path.
    from: Vec<(u32, u32)>,
    edge_visits: usize,
}

impl CycleSearch<'_> {
    /// Returns a shortest cycle of a component, beginning and ending with its first step. In a very large component, the
    /// cycle may not be the shortest: the search stops at [`MAX_EDGE_VISITS`].
    fn shortest_cycle(&mut self, component: &[u32]) -> Vec<u32> {
        let mut best: Vec<u32> = Vec::new();
        for &start in component {
            let is_shortest = best.len() == 2;
            if is_shortest || !best.is_empty() && self.edge_visits > MAX_EDGE_VISITS {
                break;
            }
            let shorter_than = if best.is_empty() {
                usize::MAX
            } else {
                best.len()
            };
            if let Some(last) = self.way_back(start, shorter_than) {
                best = self.path(start, last);
            }
        }
        let first = (0..best.len()).min_by_key(|at| best[*at]).unwrap_or(0);
        best.rotate_left(first);
        best.extend(best.first().copied());
        best
    }

    /// Returns the last step of a shortest path from `start` back to it, if the path is short enough.
    fn way_back(&mut self, start: u32, shorter_than: usize) -> Option<u32> {
        let mut queue = VecDeque::from([(start, 1_usize)]);
        while let Some((step, length)) = queue.pop_front() {
            if length >= shorter_than {
                return None;
            }
            for &after in self.downstream.of(step) {
                self.edge_visits += 1;
                if after == start {
                    return Some(step);
                }
                let at = after as usize;
                let within = self.component_of[at] == self.component_of[start as usize];
                if within && self.from[at].0 != start {
                    self.from[at] = (start, step);
                    queue.push_back((after, length + 1));
                }
            }
        }
        None
    }

    fn path(&self, start: u32, last: u32) -> Vec<u32> {
        let before = |step: &u32| (*step != start).then(|| self.from[*step as usize].1);
        let mut path: Vec<u32> = std::iter::successors(Some(last), before).collect();
        path.reverse();
        path
    }
}
