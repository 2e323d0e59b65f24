//! What steps take from one another, and whether it is sure to be there.

use std::collections::{HashMap, HashSet};

use super::super::invalid::Place;
use super::super::limits::shown;
use super::super::problem::{Absence, Problem};
use super::super::spec::{Shape, StepKind, Strategy, Takes};
use super::edges::{Before, Edges};
use super::merges::Merge;
use super::places::Places;
use super::traits::Traits;

/// Judges each step with what it comes after.
pub(super) fn check(
    places: &Places<'_>,
    edges: &Edges,
    order: &[u32],
    problems: &mut Vec<Problem>,
) {
    let unsure = unsure(places, edges, order);
    let judge = Judge {
        places,
        edges,
        unsure,
    };
    for (step, upstream) in edges.upstream.iter() {
        if places.traits[step as usize].is_resolved {
            continue;
        }
        let mut judged = HashSet::new();
        for up in upstream {
            if !edges.has_repeats || judged.insert(*up) {
                judge.edge(step, *up, problems);
            }
        }
        if !edges.damaged[step as usize] {
            judge.joined(step, upstream, problems);
        }
    }
}

/// Judges what the pipeline returns.
pub(super) fn outputs(places: &mut Places<'_>, problems: &mut Vec<Problem>) {
    for key in &places.spec.output {
        let Some(step) = places.named(|| Place::Pipeline, "its output", key, problems) else {
            continue;
        };
        if *places.kind(step) == StepKind::Barrier {
            problems.push(Problem::NoValue {
                place: Place::Pipeline,
                barrier: places.key(step),
            });
        }
    }
    let named = places.spec.output.len();
    let shaped = places.spec.output_shape.as_ref().map(Shape::count);
    if let Some(shaped) = shaped.filter(|shaped| *shaped != named) {
        problems.push(Problem::OutputShapeDiffers { shaped, named });
    }
}

struct Judge<'p, 's> {
    places: &'p Places<'s>,
    edges: &'p Edges,
    /// Why the value of a merge or of an any-join may be absent, where it may.
    unsure: HashMap<u32, Absence>,
}

impl Judge<'_, '_> {
    fn traits(&self, step: u32) -> Traits {
        self.places.traits[step as usize]
    }

    /// One edge.
    fn edge(&self, step: u32, up: Before, problems: &mut Vec<Problem>) {
        let places = self.places;
        let arms = &places.arms;
        let (here, there) = (arms.of[step as usize], arms.of[up.step as usize]);
        if let Some(branch) = arms.divided_by(here, there) {
            problems.push(Problem::OtherArm {
                step: places.key(step),
                upstream: places.key(up.step),
                branch: places.key(branch),
            });
            return;
        }
        let is_barrier = self.traits(up.step).is_barrier;
        if up.takes == Takes::Ended && !(is_barrier && self.traits(step).is_after_failure) {
            problems.push(Problem::EndedWithoutBarrier {
                step: places.key(step),
                upstream: places.key(up.step),
            });
        }
        if !up.takes.is_input() {
            return;
        }
        if is_barrier {
            problems.push(Problem::NoValue {
                place: Place::Step(places.key(step)),
                barrier: places.key(up.step),
            });
            return;
        }
        let is_any = self.traits(step).is_any;
        let absence = match up.takes {
            // The one that is taken has succeeded.
            Takes::Value if is_any => self.of_merge(up.step).cloned(),
            Takes::Value => self
                .not_run(here, up.step)
                .or_else(|| self.ignored(up.step)),
            Takes::Outcome => self.not_run(here, up.step),
            Takes::Maybe | Takes::Failure | Takes::Order | Takes::Ended => None,
        };
        let Some(absence) = absence else { return };
        let (step, upstream) = (places.key(step), places.key(up.step));
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

    /// All edges of a step together.
    fn joined(&self, step: u32, upstream: &[Before], problems: &mut Vec<Problem>) {
        let is_any = self.traits(step).is_any;
        if is_any {
            self.any(step, upstream, problems);
        } else if let Some(failure) = upstream.iter().find(|up| up.takes == Takes::Failure) {
            let others = upstream.iter().filter(|up| up.takes != Takes::Ended);
            self.after_failure(step, failure.step, others.count(), problems);
        } else {
            self.in_arm(step, upstream, problems);
        }
        if self.traits(step).is_each {
            self.each(step, upstream, problems);
        }
        if let Some(shape) = &self.places.spec.steps[step as usize].input {
            self.shape(step, shape, upstream, problems);
        }
    }

    /// The input is made of what is taken.
    fn shape(&self, step: u32, shape: &Shape, upstream: &[Before], problems: &mut Vec<Problem>) {
        let Traits {
            is_any,
            is_each,
            is_after_failure,
            ..
        } = self.traits(step);
        let one = [
            (is_any, "waits for any of its upstreams"),
            (is_each, "runs for each element of a list"),
            (is_after_failure, "runs after a failure"),
        ];
        let why = one.iter().find(|(holds, _)| *holds);
        if let (Some((_, why)), false) = (why, *shape == Shape::One) {
            problems.push(Problem::ShapeOfOne {
                step: self.places.key(step),
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
                step: self.places.key(step),
                shaped,
                taken,
            });
        }
    }

    fn any(&self, step: u32, upstream: &[Before], problems: &mut Vec<Problem>) {
        let Some(first) = upstream.first() else {
            problems.push(Problem::AnyOfNone {
                step: self.places.key(step),
            });
            return;
        };
        let fits = matches!(first.takes, Takes::Value | Takes::Order);
        if !fits || upstream.iter().any(|up| up.takes != first.takes) {
            problems.push(Problem::AnyTakes {
                step: self.places.key(step),
            });
        }
        for up in upstream {
            let verb = "waits for any of several, one of them";
            if self.places.phases[step as usize] == self.places.phases[up.step as usize] {
                self.within_arm(step, verb, up.step, problems);
            } else {
                self.elsewhere(step, verb, up.step, "phase", problems);
            }
        }
    }

    fn after_failure(&self, step: u32, of: u32, edges: usize, problems: &mut Vec<Problem>) {
        let places = self.places;
        if !places.traits[of as usize].can_fail {
            problems.push(Problem::NeverFails {
                step: places.key(step),
                upstream: places.key(of),
            });
            return;
        }
        let before = problems.len();
        self.within_arm(step, "runs only after the failure of", of, problems);
        if edges > 1 && problems.len() == before {
            problems.push(Problem::FailureWithOthers {
                step: places.key(step),
                upstream: places.key(of),
            });
        }
    }

    /// Whether an upstream starts no sooner than the arm of the step itself.
    fn within_arm(&self, step: u32, verb: &'static str, up: u32, problems: &mut Vec<Problem>) {
        let of = |step: u32| self.places.arms.of[step as usize];
        if !self.places.arms.is_inside(of(up), of(step)) {
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
            step: self.places.key(step),
            verb,
            upstream: self.places.key(up),
            area,
        });
    }

    /// A step of an arm starts after the decision.
    fn in_arm(&self, step: u32, upstream: &[Before], problems: &mut Vec<Problem>) {
        let arms = &self.places.arms;
        let here = arms.of[step as usize];
        let Some(arm) = arms.outwards(here).next() else {
            return;
        };
        let waits =
            |up: &Before| up.step == arm.branch || arms.is_inside(arms.of[up.step as usize], here);
        if !upstream.iter().any(waits) {
            problems.push(Problem::ArmDetached {
                step: self.places.key(step),
                branch: self.places.key(arm.branch),
                arm: self.arm_name(arm.branch, arm.arm),
            });
        }
    }

    fn each(&self, step: u32, upstream: &[Before], problems: &mut Vec<Problem>) {
        let taking = || upstream.iter().filter(|up| up.takes.is_input());
        let taken = taking().count();
        let one = taken == 1 || taken > 1 && self.traits(step).is_any;
        if !one || taking().any(|up| up.takes != Takes::Value) {
            problems.push(Problem::EachInput {
                step: self.places.key(step),
                taken,
            });
        }
    }

    /// Why a step may not have run although what comes after it does.
    fn not_run(&self, here: Option<u32>, up: u32) -> Option<Absence> {
        not_run(self.places, self.edges, here, up).or_else(|| self.unsure.get(&up).cloned())
    }

    /// Why a merge may have no value although it has succeeded.
    fn of_merge(&self, up: u32) -> Option<&Absence> {
        let is_merge = matches!(self.places.kind(up), StepKind::Merge { .. });
        self.unsure.get(&up).filter(|_| is_merge)
    }

    fn ignored(&self, up: u32) -> Option<Absence> {
        ignored(self.places, up)
    }

    fn arm_name(&self, branch: u32, arm: u32) -> String {
        arm_name(self.places, branch, arm)
    }
}

fn arm_name(places: &Places<'_>, branch: u32, arm: u32) -> String {
    match places.kind(branch) {
        StepKind::Branch { arms, .. } => shown(&arms[arm as usize]),
        _ => String::new(),
    }
}

/// Why a step may not have run although what comes after it, in the arm `here`, does.
fn not_run(places: &Places<'_>, edges: &Edges, here: Option<u32>, up: u32) -> Option<Absence> {
    let there = places.arms.of[up as usize];
    if let Some(arm) = places.arms.entered(there, here) {
        return Some(Absence::InArm {
            branch: places.key(arm.branch),
            arm: arm_name(places, arm.branch, arm.arm),
        });
    }
    if !places.traits[up as usize].is_after_failure {
        return None;
    }
    let before = edges.upstream.of(up);
    let failure = before.iter().find(|up| up.takes == Takes::Failure);
    failure.map(|failure| Absence::AfterFailure {
        of: places.key(failure.step),
    })
}

/// Why a step may have failed although what comes after it runs.
fn ignored(places: &Places<'_>, up: u32) -> Option<Absence> {
    if places.traits[up as usize].strategy != Strategy::Ignore {
        return None;
    }
    let step = &places.spec.steps[up as usize];
    Some(match (step.optional, step.strategy) {
        (true, _) => Absence::Optional,
        (false, Some(_)) => Absence::Ignored,
        (false, None) => Absence::IgnoredByPipeline,
    })
}

/// The merges and any-joins whose value may be absent, each with the reason.
fn unsure(places: &Places<'_>, edges: &Edges, order: &[u32]) -> HashMap<u32, Absence> {
    let merges: HashMap<u32, &Merge> = edges.merges.iter().map(|one| (one.step, one)).collect();
    let mut unsure: HashMap<u32, Absence> = HashMap::new();
    // A merge may pass on what another merged, and an any-join may wait for another: in order, the other is
    // known.
    for &step in order {
        let is_unsure = |other: u32| unsure.contains_key(&other);
        let traits = places.traits[step as usize];
        let absence = if traits.is_resolved {
            let merge = merges.get(&step);
            merge.and_then(|merge| why_unsure(places, edges, merge, is_unsure))
        } else if traits.is_any {
            let before = edges.upstream.of(step);
            let may_be_left_out = may_all_be_left_out(places, step, before, is_unsure);
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

/// Whether all upstreams of an any-join may be left out in one run: steps after failures that do not happen,
/// and steps of arms that are not chosen. Of a branch one arm is chosen: an upstream in each of its arms is as
/// good as one where the branch stands.
fn may_all_be_left_out(
    places: &Places<'_>,
    step: u32,
    before: &[Before],
    is_unsure: impl Fn(u32) -> bool,
) -> bool {
    let arms = &places.arms;
    // The steps that run if what they stand in does.
    let mut waiting: Vec<u32> = before.iter().map(|up| up.step).collect();
    let mut met: HashSet<u32> = HashSet::new();
    let mut arms_met: HashMap<u32, u32> = HashMap::new();
    while let Some(runs) = waiting.pop() {
        if places.traits[runs as usize].is_after_failure || is_unsure(runs) {
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
        if matches!(places.kind(branch), StepKind::Branch { arms, .. } if arms.len() == *count as usize)
        {
            waiting.push(branch);
        }
    }
    true
}

fn why_unsure(
    places: &Places<'_>,
    edges: &Edges,
    merge: &Merge,
    is_unsure: impl Fn(u32) -> bool,
) -> Option<Absence> {
    let StepKind::Branch { arms, .. } = places.kind(merge.branch) else {
        return None;
    };
    let outside = places.arms.of[merge.branch as usize];
    let mut returned = vec![false; arms.len()];
    for (arm, value) in &merge.values {
        returned[*arm as usize] = true;
        // Seen from its own arm, a step of that arm is sure; one further in is not.
        let all = &places.arms;
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
            || not_run(places, edges, seen_from, *value).is_some()
            || ignored(places, *value).is_some();
        if unsure {
            return Some(Absence::ArmUnsure {
                arm: shown(&arms[*arm as usize]),
                value: places.key(*value),
            });
        }
    }
    let without = returned.iter().position(|returned| !returned)?;
    Some(Absence::ArmWithout {
        branch: places.key(merge.branch),
        arm: shown(&arms[without]),
    })
}
