//! The edges of a graph: those that were given, and those that follow from barriers and merges.

use std::collections::HashMap;

use super::super::invalid::Place;
use super::super::limits;
use super::super::lists::Lists;
use super::super::problem::Problem;
use super::super::spec::Takes;
use super::merges::{self, Merge};
use super::places::Places;
use super::traits::kind_name;

/// What a step comes after, and what it takes from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) struct Before {
    pub(in super::super) step: u32,
    pub(in super::super) takes: Takes,
}

/// The edges of a graph, without those that are wrong.
pub(super) struct Edges {
    /// What each step comes after.
    pub(super) upstream: Lists<Before>,
    /// Whether any step takes from another more than once.
    pub(super) has_repeats: bool,
    /// Whether edges of a step were left out: then nothing more is said about those it has.
    pub(super) damaged: Vec<bool>,
    /// The merges.
    pub(super) merges: Vec<Merge>,
    /// Whether barrier number `n` lies between a step and an error path of that step.
    pub(super) awaited: Vec<bool>,
    /// More than there may be: then some are missing here.
    pub(super) too_many: bool,
}

/// Resolves what was given, and adds what follows from it.
pub(super) fn resolve(places: &mut Places<'_>, problems: &mut Vec<Problem>) -> Edges {
    let merges = merges::find(places, problems);
    let mut given = Given::new(places, &merges);
    for step in 0..places.spec.steps.len() as u32 {
        given.step(places, step, problems);
    }
    let Given {
        lists,
        damaged,
        has_repeats,
        ..
    } = given;
    let awaited = awaited(places, &lists);
    let needs_more = !merges.is_empty() || !places.barriers.is_empty();
    let upstream = if needs_more {
        with_added(places, &lists, &merges, &awaited)
    } else {
        lists
    };
    let too_many = upstream.total() > limits::EDGES;
    if too_many {
        problems.push(Problem::TooMany {
            place: Place::Pipeline,
            what: "edges, those that barriers and merges add included,",
            count: upstream.total(),
            limit: limits::EDGES,
            remedy: "put a barrier between steps that all wait for one another",
        });
    }
    Edges {
        upstream,
        has_repeats,
        damaged,
        merges,
        awaited,
        too_many,
    }
}

/// The barriers that error paths wait for: those between a step and a step after its failure.
fn awaited(places: &Places<'_>, given: &Lists<Before>) -> Vec<bool> {
    // How many error paths begin to wait at a barrier, less those that no longer do.
    let mut changes = vec![0_i64; places.barriers.len()];
    for (step, before) in given.iter() {
        if !places.traits[step as usize].is_after_failure {
            continue;
        }
        for failure in before.iter().filter(|up| up.takes == Takes::Failure) {
            let phases = [failure.step, step].map(|at| places.phases[at as usize] as usize);
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

/// In place of a step, while edges are being laid.
const CROSSED_OUT: u32 = u32::MAX;

/// The edges as they were given, resolved step by step.
struct Given {
    lists: Lists<Before>,
    damaged: Vec<bool>,
    has_repeats: bool,
    /// For each step, the last one that came after it, plus one, and where that edge lies.
    met_by: Vec<(u32, u32)>,
    /// Whether edges of the list that is being laid were crossed out.
    crossed_out: bool,
    /// What merges take: these edges are added with the others of the merge.
    values: HashMap<u32, Vec<u32>>,
}

impl Given {
    fn new(places: &Places<'_>, merges: &[Merge]) -> Self {
        let steps = places.spec.steps.len();
        let values = |merge: &Merge| merge.values.iter().map(|(_, step)| *step).collect();
        Self {
            lists: Lists::with_capacity(steps, steps),
            damaged: vec![false; steps],
            has_repeats: false,
            met_by: vec![(0, 0); steps],
            crossed_out: false,
            values: merges
                .iter()
                .map(|merge| (merge.step, values(merge)))
                .collect(),
        }
    }

    fn step(&mut self, places: &mut Places<'_>, step: u32, problems: &mut Vec<Problem>) {
        let spec = places.spec;
        for edge in &spec.steps[step as usize].after {
            let key = &spec.steps[step as usize].key;
            let place = || Place::Step(limits::shown(key));
            let problem = match places.named(place, "before it", &edge.step, problems) {
                None => {
                    self.damaged[step as usize] = true;
                    continue;
                }
                Some(before) if before == step => Problem::SelfDependency {
                    step: places.key(step),
                },
                Some(before) if places.is_in_earlier_phase(step, before) => Problem::LaterPhase {
                    step: places.key(step),
                    upstream: places.key(before),
                },
                Some(before) => match self.edge(places, step, before, edge.takes) {
                    Ok(()) => continue,
                    Err(problem) => problem,
                },
            };
            self.damaged[step as usize] = true;
            problems.push(problem);
        }
        if std::mem::take(&mut self.crossed_out) {
            self.lists.retain_open(|before| before.step != CROSSED_OUT);
        }
        self.lists.end();
    }

    fn edge(
        &mut self,
        places: &mut Places<'_>,
        step: u32,
        before: u32,
        mut takes: Takes,
    ) -> Result<(), Problem> {
        if places.traits[step as usize].is_resolved {
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
                    step: places.key(step),
                    kind: kind_name(places.kind(step)),
                    what: "inputs of its own",
                });
            }
            takes = Takes::Order;
        }
        let here = (step + 1, self.lists.open().len() as u32);
        let met_before = &mut self.met_by[before as usize];
        if met_before.0 == step + 1 {
            if !takes.is_input() {
                return Ok(());
            }
            let other = &mut self.lists.open_mut()[met_before.1 as usize];
            if !other.takes.is_input() {
                // The one that takes something stays, where it stands among the inputs.
                other.step = CROSSED_OUT;
                self.crossed_out = true;
            } else if places.traits[step as usize].is_any
                || [takes, other.takes].contains(&Takes::Failure)
            {
                return Err(Problem::DuplicateEdge {
                    step: places.key(step),
                    upstream: places.key(before),
                });
            } else {
                self.has_repeats = true;
            }
        }
        *met_before = here;
        if takes == Takes::Failure {
            places.traits[step as usize].is_after_failure = true;
        }
        self.lists.push(Before {
            step: before,
            takes,
        });
        Ok(())
    }
}

/// The edges that were given, those of barriers and merges, and those to barriers.
fn with_added(
    places: &Places<'_>,
    given: &Lists<Before>,
    merges: &[Merge],
    awaited: &[bool],
) -> Lists<Before> {
    let exits = merges::exits(places, given, merges);
    let merge_at: HashMap<u32, usize> = merges
        .iter()
        .enumerate()
        .map(|(at, m)| (m.step, at))
        .collect();
    let steps = given.len();
    let mut lists = Lists::with_capacity(steps, given.total() + steps);
    let mut met_by = vec![0_u32; steps];
    for (step, before) in given.iter() {
        // What a step takes is there as often as it was given; what a merge passes on, once.
        let has_input = !places.traits[step as usize].is_resolved;
        let mut add = |lists: &mut Lists<Before>, upstream: Before| {
            let met = std::mem::replace(&mut met_by[upstream.step as usize], step + 1);
            if met != step + 1 || has_input && upstream.takes.is_input() {
                lists.push(upstream);
            }
        };
        let order = |step: u32| Before {
            step,
            takes: Takes::Order,
        };
        let merge = merge_at.get(&step).map(|at| &merges[*at]);
        if let Some(merge) = merge {
            for (_, value) in &merge.values {
                let takes = Takes::Maybe;
                add(
                    &mut lists,
                    Before {
                        step: *value,
                        takes,
                    },
                );
            }
        }
        let phase = places.phases[step as usize];
        let opened_by = (phase as usize).checked_sub(1).map(|p| places.barriers[p]);
        let is_within = |up: &Before| places.phases[up.step as usize] == phase;
        // The failure breaks the barrier: an error path behind it waits for its end, whatever it is.
        let takes_of_barrier = match places.traits[step as usize].is_after_failure {
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
        if places.traits[step as usize].is_barrier {
            for before in opened_by.map_or(0, |barrier| barrier + 1)..step {
                add(&mut lists, order(before));
            }
            // Halt may have skipped all of this phase while an earlier one goes on; and this phase may have
            // nothing but error paths, which a broken barrier does not stop.
            if let Some(barrier) = opened_by.filter(|_| awaited[phase as usize - 1]) {
                add(&mut lists, order(barrier));
            }
        } else if let Some(barrier) = opened_by
            && !lists.open().iter().any(is_within)
        {
            let takes = takes_of_barrier;
            add(
                &mut lists,
                Before {
                    step: barrier,
                    takes,
                },
            );
        }
        lists.end();
        if lists.total() > limits::EDGES {
            // Too many, which is a problem of its own: the rest need not be laid.
            while lists.len() < steps {
                lists.end();
            }
            break;
        }
    }
    lists
}
