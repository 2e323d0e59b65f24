//! Merges: the nodes where the arms of a branch meet.

use std::collections::{HashMap, HashSet};

use super::super::invalid::Place;
use super::super::limits::shown;
use super::super::lists::Lists;
use super::super::problem::Problem;
use super::super::spec::{StepKind, Takes};
use super::edges::UpstreamEdge;
use super::layout::Layout;

/// A merge, with its names resolved.
pub(super) struct Merge {
    pub(super) step: u32,
    pub(super) branch: u32,
    /// The index of each arm that returns a value, and the step that gives it.
    pub(super) values: Vec<(u32, u32)>,
}

/// Finds the merges whose branches are valid.
pub(super) fn find(layout: &mut Layout<'_>, problems: &mut Vec<Problem>) -> Vec<Merge> {
    let mut merges = Vec::new();
    for at in std::mem::take(&mut layout.merges) {
        let StepKind::Merge { branch, values } = layout.kind(at) else {
            continue;
        };
        let key = layout.key(at);
        let place = || Place::Step(key.clone());
        let Some(branch) = layout.named(place, "its branch", branch, problems) else {
            continue;
        };
        if !matches!(layout.kind(branch), StepKind::Branch { .. }) {
            problems.push(Problem::NotABranch {
                step: key,
                key: layout.key(branch),
            });
            continue;
        }
        if layout.is_in_earlier_phase(at, branch) {
            problems.push(Problem::LaterPhase {
                step: key,
                upstream: layout.key(branch),
            });
            continue;
        }
        if layout.arms.of[at as usize] != layout.arms.of[branch as usize] {
            problems.push(Problem::MergeElsewhere {
                merge: key,
                branch: layout.key(branch),
            });
            continue;
        }
        let values = merge_values(layout, at, branch, values, problems);
        merges.push(Merge {
            step: at,
            branch,
            values,
        });
    }
    merges
}

fn merge_values(
    layout: &mut Layout<'_>,
    merge: u32,
    branch: u32,
    given: &[(String, String)],
    problems: &mut Vec<Problem>,
) -> Vec<(u32, u32)> {
    let mut values: Vec<(u32, u32)> = Vec::new();
    let mut met = HashSet::new();
    for (arm, value) in given {
        let key = layout.key(merge);
        let place = || Place::Step(key.clone());
        let arm = layout.arm_of(merge, branch, arm, problems);
        let value = layout.named(place, "the value of an arm", value, problems);
        let (Some(arm), Some(value)) = (arm, value) else {
            continue;
        };
        if !met.insert(arm) {
            let StepKind::Branch { arms, .. } = layout.kind(branch) else {
                continue;
            };
            problems.push(Problem::DuplicateValue {
                merge: key,
                arm: shown(&arms[arm as usize]),
            });
        } else if value == merge {
            problems.push(Problem::SelfDependency { step: key });
        } else if *layout.kind(value) == StepKind::Barrier {
            problems.push(Problem::NoValue {
                place: Place::Step(key),
                barrier: layout.key(value),
            });
        } else if layout.is_in_earlier_phase(merge, value) {
            problems.push(Problem::LaterPhase {
                step: key,
                upstream: layout.key(value),
            });
        } else if stands_in_another_arm(layout, branch, arm, value) {
            problems.push(Problem::OtherArm {
                step: key,
                upstream: layout.key(value),
                branch: layout.key(branch),
            });
        } else {
            values.push((arm, value));
        }
    }
    values.sort_unstable();
    values
}

/// Returns whether a step is in another arm of the branch than the one that returns it.
fn stands_in_another_arm(layout: &Layout<'_>, branch: u32, arm: u32, value: u32) -> bool {
    let arms = &layout.arms;
    arms.outwards(arms.of[value as usize])
        .any(|around| around.branch == branch && around.arm != arm)
}

/// Returns, for each branch that has a merge, the steps of its arms that no step of those arms waits for.
pub(super) fn exits(
    layout: &Layout<'_>,
    given: &Lists<UpstreamEdge>,
    merges: &[Merge],
) -> HashMap<u32, Vec<u32>> {
    let mut exits: HashMap<u32, Vec<u32>> = HashMap::new();
    if merges.is_empty() {
        return exits;
    }
    let arms = &layout.arms;
    // For each step, the depth of the innermost arm in which another step waits for its end. A step of an arm further
    // inside does not count, because it may not run; unless the arm belongs to the step itself.
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
        if !layout.properties[step as usize].is_any {
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
