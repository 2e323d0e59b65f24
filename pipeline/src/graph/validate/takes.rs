//! What steps take from one another, and whether it is always present.

use std::collections::{HashMap, HashSet};

use super::super::invalid::Place;
use super::super::limits::shown;
use super::super::problem::{Absence, Problem};
use super::super::spec::{Shape, StepKind, Strategy, Takes};
use super::edges::{Edges, UpstreamEdge};
use super::layout::Layout;
use super::merges::Merge;
use super::properties::StepProperties;

/// Checks each step with its upstream edges.
pub(super) fn check(
    layout: &Layout<'_>,
    edges: &Edges,
    order: &[u32],
    problems: &mut Vec<Problem>,
) {
    let unsure = unsure(layout, edges, order);
    let validator = Validator {
        layout,
        edges,
        unsure,
    };
    for (step, upstream) in edges.upstream.iter() {
        if layout.properties[step as usize].is_resolved {
            continue;
        }
        let mut checked = HashSet::new();
        for up in upstream {
            if !edges.has_repeats || checked.insert(*up) {
                validator.edge(step, *up, problems);
            }
        }
        if !edges.incomplete[step as usize] {
            validator.joined(step, upstream, problems);
        }
    }
}

/// Checks the output of the pipeline.
pub(super) fn outputs(layout: &mut Layout<'_>, problems: &mut Vec<Problem>) {
    for key in &layout.spec.output {
        let Some(step) = layout.named(|| Place::Pipeline, "its output", key, problems) else {
            continue;
        };
        if *layout.kind(step) == StepKind::Barrier {
            problems.push(Problem::NoValue {
                place: Place::Pipeline,
                barrier: layout.key(step),
            });
        }
    }
    let named = layout.spec.output.len();
    let shaped = layout.spec.output_shape.as_ref().map(Shape::count);
    if let Some(shaped) = shaped.filter(|shaped| *shaped != named) {
        problems.push(Problem::OutputShapeDiffers { shaped, named });
    }
}

struct Validator<'p, 's> {
    layout: &'p Layout<'s>,
    edges: &'p Edges,
    /// The merges and any-joins whose value may be absent, each with the reason.
    unsure: HashMap<u32, Absence>,
}

impl Validator<'_, '_> {
    fn properties(&self, step: u32) -> StepProperties {
        self.layout.properties[step as usize]
    }

    /// Checks one edge.
    fn edge(&self, step: u32, up: UpstreamEdge, problems: &mut Vec<Problem>) {
        let layout = self.layout;
        let arms = &layout.arms;
        let (here, there) = (arms.of[step as usize], arms.of[up.step as usize]);
        if let Some(branch) = arms.divided_by(here, there) {
            problems.push(Problem::OtherArm {
                step: layout.key(step),
                upstream: layout.key(up.step),
                branch: layout.key(branch),
            });
            return;
        }
        let is_barrier = self.properties(up.step).is_barrier;
        if up.takes == Takes::Ended && !(is_barrier && self.properties(step).is_after_failure) {
            problems.push(Problem::EndedWithoutBarrier {
                step: layout.key(step),
                upstream: layout.key(up.step),
            });
        }
        if !up.takes.is_input() {
            return;
        }
        if is_barrier {
            problems.push(Problem::NoValue {
                place: Place::Step(layout.key(step)),
                barrier: layout.key(up.step),
            });
            return;
        }
        let is_any = self.properties(step).is_any;
        let absence = match up.takes {
            // An any-join takes the value of a step that has succeeded.
            Takes::Value if is_any => self.of_merge(up.step).cloned(),
            Takes::Value => self
                .not_run(here, up.step)
                .or_else(|| self.ignored(up.step)),
            Takes::Outcome => self.not_run(here, up.step),
            Takes::Maybe | Takes::Failure | Takes::Order | Takes::Ended => None,
        };
        let Some(absence) = absence else { return };
        let (step, upstream) = (layout.key(step), layout.key(up.step));
        problems.push(match up.takes {
            Takes::Outcome => Problem::NoOutcome {
                step,
                upstream,
                absence,
            },
            _ => Problem::MayBeAbsent {
                step,
                upstream,
                absence,
            },
        });
    }

    /// Checks all edges of a step together.
    fn joined(&self, step: u32, upstream: &[UpstreamEdge], problems: &mut Vec<Problem>) {
        let is_any = self.properties(step).is_any;
        if is_any {
            self.any(step, upstream, problems);
        } else if let Some(failure) = upstream.iter().find(|up| up.takes == Takes::Failure) {
            let others = upstream.iter().filter(|up| up.takes != Takes::Ended);
            self.after_failure(step, failure.step, others.count(), problems);
        } else {
            self.in_arm(step, upstream, problems);
        }
        if self.properties(step).is_each {
            self.each(step, upstream, problems);
        }
        if let Some(shape) = &self.layout.spec.steps[step as usize].input {
            self.shape(step, shape, upstream, problems);
        }
    }

    /// The input is made of what is taken.
    fn shape(
        &self,
        step: u32,
        shape: &Shape,
        upstream: &[UpstreamEdge],
        problems: &mut Vec<Problem>,
    ) {
        let StepProperties {
            is_any,
            is_each,
            is_after_failure,
            ..
        } = self.properties(step);
        let one = [
            (is_any, "waits for any of its upstreams"),
            (is_each, "runs for each element of a list"),
            (is_after_failure, "runs after a failure"),
        ];
        let why = one.iter().find(|(holds, _)| *holds);
        if let (Some((_, why)), false) = (why, *shape == Shape::One) {
            problems.push(Problem::ShapeOfOne {
                step: self.layout.key(step),
                why,
            });
            return;
        }
        let taking = upstream.iter().filter(|up| up.takes.is_input());
        let taken = if is_any {
            taking.count().min(1)
        } else {
            taking.count()
        };
        let shaped = shape.count();
        if shaped != taken {
            problems.push(Problem::ShapeDiffers {
                step: self.layout.key(step),
                shaped,
                taken,
            });
        }
    }

    fn any(&self, step: u32, upstream: &[UpstreamEdge], problems: &mut Vec<Problem>) {
        let Some(first) = upstream.first() else {
            problems.push(Problem::AnyOfNone {
                step: self.layout.key(step),
            });
            return;
        };
        let fits = matches!(first.takes, Takes::Value | Takes::Order);
        if !fits || upstream.iter().any(|up| up.takes != first.takes) {
            problems.push(Problem::AnyTakes {
                step: self.layout.key(step),
            });
        }
        for up in upstream {
            let verb = "waits for any of several, one of them";
            if self.layout.phases[step as usize] == self.layout.phases[up.step as usize] {
                self.within_arm(step, verb, up.step, problems);
            } else {
                self.elsewhere(step, verb, up.step, "phase", problems);
            }
        }
    }

    fn after_failure(&self, step: u32, of: u32, edges: usize, problems: &mut Vec<Problem>) {
        let layout = self.layout;
        if !layout.properties[of as usize].can_fail {
            problems.push(Problem::NeverFails {
                step: layout.key(step),
                upstream: layout.key(of),
            });
            return;
        }
        let before = problems.len();
        self.within_arm(step, "runs only after the failure of", of, problems);
        if edges > 1 && problems.len() == before {
            problems.push(Problem::FailureWithOthers {
                step: layout.key(step),
                upstream: layout.key(of),
            });
        }
    }

    /// Reports an upstream step outside of the step's own arm, which could end before the arm starts.
    fn within_arm(&self, step: u32, verb: &'static str, up: u32, problems: &mut Vec<Problem>) {
        let of = |step: u32| self.layout.arms.of[step as usize];
        if !self.layout.arms.is_inside(of(up), of(step)) {
            self.elsewhere(step, verb, up, "arm", problems);
        }
    }

    fn elsewhere(
        &self,
        step: u32,
        verb: &'static str,
        up: u32,
        area: &'static str,
        problems: &mut Vec<Problem>,
    ) {
        problems.push(Problem::Elsewhere {
            step: self.layout.key(step),
            verb,
            upstream: self.layout.key(up),
            area,
        });
    }

    /// Reports a step of an arm that does not wait for the decision.
    fn in_arm(&self, step: u32, upstream: &[UpstreamEdge], problems: &mut Vec<Problem>) {
        let arms = &self.layout.arms;
        let here = arms.of[step as usize];
        let Some(arm) = arms.outwards(here).next() else {
            return;
        };
        let waits = |up: &UpstreamEdge| {
            up.step == arm.branch || arms.is_inside(arms.of[up.step as usize], here)
        };
        if !upstream.iter().any(waits) {
            problems.push(Problem::ArmDetached {
                step: self.layout.key(step),
                branch: self.layout.key(arm.branch),
                arm: self.arm_name(arm.branch, arm.arm),
            });
        }
    }

    fn each(&self, step: u32, upstream: &[UpstreamEdge], problems: &mut Vec<Problem>) {
        let taking = || upstream.iter().filter(|up| up.takes.is_input());
        let taken = taking().count();
        let one = taken == 1 || taken > 1 && self.properties(step).is_any;
        if !one || taking().any(|up| up.takes != Takes::Value) {
            problems.push(Problem::EachInput {
                step: self.layout.key(step),
                taken,
            });
        }
    }

    /// Returns why a step may not have run although the step after it does.
    fn not_run(&self, here: Option<u32>, up: u32) -> Option<Absence> {
        not_run(self.layout, self.edges, here, up).or_else(|| self.unsure.get(&up).cloned())
    }

    /// Returns why a merge may have no value although it has succeeded.
    fn of_merge(&self, up: u32) -> Option<&Absence> {
        let is_merge = matches!(self.layout.kind(up), StepKind::Merge { .. });
        self.unsure.get(&up).filter(|_| is_merge)
    }

    fn ignored(&self, up: u32) -> Option<Absence> {
        ignored(self.layout, up)
    }

    fn arm_name(&self, branch: u32, arm: u32) -> String {
        arm_name(self.layout, branch, arm)
    }
}

fn arm_name(layout: &Layout<'_>, branch: u32, arm: u32) -> String {
    match layout.kind(branch) {
        StepKind::Branch { arms, .. } => shown(&arms[arm as usize]),
        _ => String::new(),
    }
}

/// Returns why a step may not have run although the step after it, in the arm `here`, does.
fn not_run(layout: &Layout<'_>, edges: &Edges, here: Option<u32>, up: u32) -> Option<Absence> {
    let there = layout.arms.of[up as usize];
    if let Some(arm) = layout.arms.entered(there, here) {
        return Some(Absence::InArm {
            branch: layout.key(arm.branch),
            arm: arm_name(layout, arm.branch, arm.arm),
        });
    }
    if !layout.properties[up as usize].is_after_failure {
        return None;
    }
    let before = edges.upstream.of(up);
    let failure = before.iter().find(|up| up.takes == Takes::Failure);
    failure.map(|failure| Absence::AfterFailure {
        of: layout.key(failure.step),
    })
}

/// Returns why a step may have failed although the step after it runs.
fn ignored(layout: &Layout<'_>, up: u32) -> Option<Absence> {
    if layout.properties[up as usize].strategy != Strategy::Ignore {
        return None;
    }
    let step = &layout.spec.steps[up as usize];
    Some(match (step.optional, step.strategy) {
        (true, _) => Absence::Optional,
        (false, Some(_)) => Absence::Ignored,
        (false, None) => Absence::IgnoredByPipeline,
    })
}

/// Returns the merges and any-joins whose value may be absent, each with the reason.
fn unsure(layout: &Layout<'_>, edges: &Edges, order: &[u32]) -> HashMap<u32, Absence> {
    let merges: HashMap<u32, &Merge> = edges.merges.iter().map(|one| (one.step, one)).collect();
    let mut unsure: HashMap<u32, Absence> = HashMap::new();
    // A merge or any-join may be upstream of another: in topological order, the upstream one is known.
    for &step in order {
        let is_unsure = |other: u32| unsure.contains_key(&other);
        let properties = layout.properties[step as usize];
        let absence = if properties.is_resolved {
            let merge = merges.get(&step);
            merge.and_then(|merge| why_unsure(layout, edges, merge, is_unsure))
        } else if properties.is_any {
            let before = edges.upstream.of(step);
            let may_be_left_out = may_all_be_left_out(layout, step, before, is_unsure);
            may_be_left_out.then_some(Absence::AnyOfNone)
        } else {
            None
        };
        if let Some(absence) = absence {
            unsure.insert(step, absence);
        }
    }
    unsure
}

/// Returns whether all upstream steps of an any-join may be skipped in one run: steps after failures that do not
/// happen, and steps of arms that are not chosen. One arm of each branch is chosen: an upstream step in every arm counts
/// as one beside the branch.
fn may_all_be_left_out(
    layout: &Layout<'_>,
    step: u32,
    before: &[UpstreamEdge],
    is_unsure: impl Fn(u32) -> bool,
) -> bool {
    let arms = &layout.arms;
    // The steps that run if the arm around them is chosen.
    let mut waiting: Vec<u32> = before.iter().map(|up| up.step).collect();
    let mut met: HashSet<u32> = HashSet::new();
    let mut arms_met: HashMap<u32, u32> = HashMap::new();
    while let Some(runs) = waiting.pop() {
        if layout.properties[runs as usize].is_after_failure || is_unsure(runs) {
            continue;
        }
        let here = arms.of[runs as usize];
        if here == arms.of[step as usize] {
            return false;
        }
        let Some(id) = here.filter(|id| met.insert(*id)) else {
            continue;
        };
        let branch = arms.all[id as usize].branch;
        let count = arms_met.entry(branch).or_default();
        *count += 1;
        if matches!(layout.kind(branch), StepKind::Branch { arms, .. } if arms.len() == *count as usize)
        {
            waiting.push(branch);
        }
    }
    true
}

fn why_unsure(
    layout: &Layout<'_>,
    edges: &Edges,
    merge: &Merge,
    is_unsure: impl Fn(u32) -> bool,
) -> Option<Absence> {
    let StepKind::Branch { arms, .. } = layout.kind(merge.branch) else {
        return None;
    };
    let outside = layout.arms.of[merge.branch as usize];
    let mut returned = vec![false; arms.len()];
    for (arm, value) in &merge.values {
        returned[*arm as usize] = true;
        // Inside its own arm, the value of a step of that arm is always present; of an arm further inside it is not.
        let all = &layout.arms;
        let of_value = all.of[*value as usize];
        let own = all.entered(of_value, outside);
        let inside = own.is_some_and(|own| own.branch == merge.branch && own.arm == *arm);
        let further_in = all.depth(of_value) > all.depth(outside) + 1;
        let seen_from = if inside && !further_in {
            of_value
        } else {
            outside
        };
        let unsure = is_unsure(*value)
            || not_run(layout, edges, seen_from, *value).is_some()
            || ignored(layout, *value).is_some();
        if unsure {
            return Some(Absence::ArmUnsure {
                arm: shown(&arms[*arm as usize]),
                value: layout.key(*value),
            });
        }
    }
    let without = returned.iter().position(|returned| !returned)?;
    Some(Absence::ArmWithout {
        branch: layout.key(merge.branch),
        arm: shown(&arms[without]),
    })
}
