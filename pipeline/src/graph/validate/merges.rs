//! Merges: where the arms of a branch come together.

use std::collections::{HashMap, HashSet};

use super::super::invalid::Place;
use super::super::limits::shown;
use super::super::lists::Lists;
use super::super::problem::Problem;
use super::super::spec::{StepKind, Takes};
use super::edges::Before;
use super::places::Places;

/// A merge, its names resolved.
pub(super) struct Merge {
    pub(super) step: u32,
    pub(super) branch: u32,
    /// Arm and step, by arm.
    pub(super) values: Vec<(u32, u32)>,
}

/// The merges whose branch is one.
pub(super) fn find(places: &mut Places<'_>, problems: &mut Vec<Problem>) -> Vec<Merge> {
    let mut merges = Vec::new();
    for at in std::mem::take(&mut places.merges) {
        let StepKind::Merge { branch, values } = places.kind(at) else {
            continue;
        };
        let key = places.key(at);
        let place = || Place::Step(key.clone());
        let Some(branch) = places.named(place, "its branch", branch, problems) else {
            continue;
        };
        if !matches!(places.kind(branch), StepKind::Branch { .. }) {
            problems.push(Problem::NotABranch {
                step: key,
                key: places.key(branch),
            });
            continue;
        }
        if places.is_in_earlier_phase(at, branch) {
            problems.push(Problem::LaterPhase {
                step: key,
                upstream: places.key(branch),
            });
            continue;
        }
        if places.arms.of[at as usize] != places.arms.of[branch as usize] {
            problems.push(Problem::MergeElsewhere {
                merge: key,
                branch: places.key(branch),
            });
            continue;
        }
        let values = merge_values(places, at, branch, values, problems);
        merges.push(Merge {
            step: at,
            branch,
            values,
        });
    }
    merges
}

fn merge_values(
    places: &mut Places<'_>,
    merge: u32,
    branch: u32,
    given: &[(String, String)],
    problems: &mut Vec<Problem>,
) -> Vec<(u32, u32)> {
    let mut values: Vec<(u32, u32)> = Vec::new();
    let mut met = HashSet::new();
    for (arm, value) in given {
        let key = places.key(merge);
        let place = || Place::Step(key.clone());
        let arm = places.arm_of(merge, branch, arm, problems);
        let value = places.named(place, "the value of an arm", value, problems);
        let (Some(arm), Some(value)) = (arm, value) else {
            continue;
        };
        if !met.insert(arm) {
            let StepKind::Branch { arms, .. } = places.kind(branch) else {
                continue;
            };
            problems.push(Problem::DuplicateValue {
                merge: key,
                arm: shown(&arms[arm as usize]),
            });
        } else if value == merge {
            problems.push(Problem::SelfDependency { step: key });
        } else if *places.kind(value) == StepKind::Barrier {
            problems.push(Problem::NoValue {
                place: Place::Step(key),
                barrier: places.key(value),
            });
        } else if places.is_in_earlier_phase(merge, value) {
            problems.push(Problem::LaterPhase {
                step: key,
                upstream: places.key(value),
            });
        } else if stands_in_another_arm(places, branch, arm, value) {
            problems.push(Problem::OtherArm {
                step: key,
                upstream: places.key(value),
                branch: places.key(branch),
            });
        } else {
            values.push((arm, value));
        }
    }
    values.sort_unstable();
    values
}

/// Whether a step stands in another arm of the branch than the one that returns it.
fn stands_in_another_arm(places: &Places<'_>, branch: u32, arm: u32, value: u32) -> bool {
    let arms = &places.arms;
    arms.outwards(arms.of[value as usize])
        .any(|around| around.branch == branch && around.arm != arm)
}

/// For each branch that has merges, the steps of its arms that nothing in those arms waits for.
pub(super) fn exits(
    places: &Places<'_>,
    given: &Lists<Before>,
    merges: &[Merge],
) -> HashMap<u32, Vec<u32>> {
    let mut exits: HashMap<u32, Vec<u32>> = HashMap::new();
    if merges.is_empty() {
        return exits;
    }
    let arms = &places.arms;
    // How deep the innermost arm is in which something waits for the step's end, whatever it is. What
    // stands in an arm inside that one may not run, and then says nothing of the step; unless the step
    // is the branch of that arm.
    let mut awaited = vec![0_u32; given.len()];
    let mut await_in = |step: u32, by: u32| {
        let by = arms.of[by as usize];
        let depth = arms.common_depth(arms.of[step as usize], by);
        let decides = || {
            arms.outwards(by)
                .next()
                .is_some_and(|arm| arm.branch == step)
        };
        if arms.depth(by) == depth || decides() {
            let known = &mut awaited[step as usize];
            *known = depth.max(*known);
        }
    };
    for (step, before) in given.iter() {
        if !places.traits[step as usize].is_any {
            let sure = before.iter().filter(|up| up.takes != Takes::Failure);
            sure.for_each(|up| await_in(up.step, step));
        }
    }
    for merge in merges {
        exits.entry(merge.branch).or_default();
        await_in(merge.branch, merge.step);
        let values = merge.values.iter();
        values.for_each(|(_, value)| await_in(*value, merge.step));
    }
    for step in 0..given.len() as u32 {
        let arm = arms.of[step as usize];
        let free = arms.depth(arm) - awaited[step as usize];
        let around = arms.outwards(arm).take(free as usize);
        let merged = around
            .map(|arm| arm.branch)
            .find(|branch| exits.contains_key(branch));
        if let Some(exits) = merged.and_then(|branch| exits.get_mut(&branch)) {
            exits.push(step);
        }
    }
    exits
}
