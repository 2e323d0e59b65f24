//! The order of the steps, and the cycles where there is none.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::super::limits::shown;
use super::super::lists::Lists;
use super::super::problem::Problem;
use super::super::spec::GraphSpec;
use super::edges::Before;

/// The steps so that each comes after what it depends on: of those that could come next, always the
/// one that was declared first. Steps on a cycle, and after one, are left out, and the cycles told.
pub(super) fn find(
    spec: &GraphSpec,
    upstream: &Lists<Before>,
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

fn order(upstream: &Lists<Before>, downstream: &Lists<u32>) -> Vec<u32> {
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

/// One cycle for each knot of steps that all wait for one another.
fn cycles(spec: &GraphSpec, downstream: &Lists<u32>, order: &[u32], problems: &mut Vec<Problem>) {
    let mut knot_of = vec![NONE; downstream.len()];
    let mut knots = knots(downstream, order, &mut knot_of);
    let mut search = Search {
        downstream,
        knot_of,
        from: vec![(NONE, NONE); downstream.len()],
        looks: 0,
    };
    // A knot comes out when it is left; people read them as they were declared.
    for knot in &mut knots {
        knot.sort_unstable();
    }
    knots.sort_unstable_by_key(|knot| knot.first().copied());
    for knot in knots {
        let key = |step: u32| shown(&spec.steps[step as usize].key);
        let path = search.shortest_cycle(&knot).into_iter().map(key);
        problems.push(Problem::Cycle {
            path: path.collect(),
        });
    }
}

const NONE: u32 = u32::MAX;

/// The strongly connected components of more than one step: Tarjan's, with a stack of its own.
fn knots(downstream: &Lists<u32>, order: &[u32], knot_of: &mut [u32]) -> Vec<Vec<u32>> {
    let steps = downstream.len();
    let mut met = vec![NONE; steps];
    let mut low = vec![NONE; steps];
    let mut open: Vec<u32> = Vec::new();
    let mut is_open = vec![false; steps];
    let mut knots = Vec::new();
    let mut time = 0;
    // What is in the order is on no cycle.
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
                let knot = open.split_off(start);
                for &member in &knot {
                    is_open[member as usize] = false;
                }
                if knot.len() > 1 {
                    for &member in &knot {
                        knot_of[member as usize] = knots.len() as u32;
                    }
                    knots.push(knot);
                }
            }
        }
    }
    knots
}

/// So many edges are looked at to find shorter cycles than the first of each knot.
const LOOKS: usize = 1_000_000;

struct Search<'g> {
    downstream: &'g Lists<u32>,
    knot_of: Vec<u32>,
    /// For each step, the start of the last search that met it, and the step it came from.
    from: Vec<(u32, u32)>,
    looks: usize,
}

impl Search<'_> {
    /// A shortest cycle of a knot, from its first step on and back to it. In a very large knot: one
    /// that is shortest through its first step, made shorter while the work is bearable.
    fn shortest_cycle(&mut self, knot: &[u32]) -> Vec<u32> {
        let mut best: Vec<u32> = Vec::new();
        for &start in knot {
            let is_shortest = best.len() == 2;
            if is_shortest || !best.is_empty() && self.looks > LOOKS {
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

    /// The last step of a shortest way from `start` back to it, if it is short enough.
    fn way_back(&mut self, start: u32, shorter_than: usize) -> Option<u32> {
        let mut queue = VecDeque::from([(start, 1_usize)]);
        while let Some((step, length)) = queue.pop_front() {
            if length >= shorter_than {
                return None;
            }
            for &after in self.downstream.of(step) {
                self.looks += 1;
                if after == start {
                    return Some(step);
                }
                let at = after as usize;
                let within = self.knot_of[at] == self.knot_of[start as usize];
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
