//! Where each step stands: its key, its phase, its arm.

use std::collections::HashMap;

use super::super::invalid::Place;
use super::super::keys::{Index, Suggest};
use super::super::limits::{self, shown};
use super::super::problem::Problem;
use super::super::spec::{ArmRef, GraphSpec, StepKind};
use super::traits::{self, Traits};

/// The places of all steps, numbered as they were declared.
pub(super) struct Places<'s> {
    pub(super) spec: &'s GraphSpec,
    index: Index<'s>,
    suggest: Suggest,
    pub(super) traits: Vec<Traits>,
    /// The phase of each step; a barrier has the number of the phase it closes.
    pub(super) phases: Vec<u32>,
    /// The barriers: number `n` closes phase `n`.
    pub(super) barriers: Vec<u32>,
    pub(super) arms: Arms,
    pub(super) merges: Vec<u32>,
    pub(super) children: Vec<u32>,
}

impl<'s> Places<'s> {
    /// Goes through the steps, once, and judges each by itself.
    pub(super) fn find(spec: &'s GraphSpec, problems: &mut Vec<Problem>) -> Self {
        let count = spec.steps.len();
        let mut places = Self {
            spec,
            index: Index::with_capacity(count),
            suggest: Suggest::new(),
            traits: Vec::with_capacity(count),
            phases: Vec::with_capacity(count),
            barriers: Vec::new(),
            arms: Arms::default(),
            merges: Vec::new(),
            children: Vec::new(),
        };
        let mut in_arms = Vec::new();
        for (at, step) in (0..).zip(&spec.steps) {
            traits::check(step, problems);
            places.index.add(&step.key);
            places.traits.push(Traits::of(spec, step));
            places.phases.push(places.barriers.len() as u32);
            match step.kind {
                StepKind::Barrier => places.barriers.push(at),
                StepKind::Merge { .. } => places.merges.push(at),
                StepKind::Child { .. } => places.children.push(at),
                _ => {}
            }
            if step.arm.is_some() {
                in_arms.push(at);
            }
        }
        places.index.duplicates(problems);
        places.judge_barriers(problems);
        places.find_arms(&in_arms, problems);
        places
    }

    /// The key of a step, as messages show it.
    pub(super) fn key(&self, step: u32) -> String {
        shown(&self.spec.steps[step as usize].key)
    }

    pub(super) fn kind(&self, step: u32) -> &'s StepKind {
        &self.spec.steps[step as usize].kind
    }

    /// Whether `step` is before the barrier that `upstream` is after (or is).
    pub(super) fn is_in_earlier_phase(&self, step: u32, upstream: u32) -> bool {
        if self.barriers.is_empty() {
            return false;
        }
        let rank = |at: u32| {
            let closes = self.traits[at as usize].is_barrier;
            2 * u64::from(self.phases[at as usize]) + u64::from(closes)
        };
        rank(step) < rank(upstream)
    }

    /// The step of that key; if there is none, that is a problem.
    pub(super) fn named(
        &mut self,
        place: impl FnOnce() -> Place,
        role: &'static str,
        key: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<u32> {
        if let Some(step) = self.index.get(key) {
            return Some(step);
        }
        let keys = self.spec.steps.iter().map(|step| step.key.as_str());
        problems.push(Problem::UnknownKey {
            place: place(),
            role,
            key: shown(key),
            suggestion: self.suggest.nearest(key, keys),
        });
        None
    }

    fn judge_barriers(&self, problems: &mut Vec<Problem>) {
        let last = (self.spec.steps.len() as u32).wrapping_sub(1);
        let mut previous = None;
        for &at in &self.barriers {
            let barrier = self.key(at);
            if at == 0 {
                problems.push(Problem::BarrierFirst {
                    barrier: barrier.clone(),
                });
            }
            if let Some(previous) = previous.filter(|before| before + 1 == at) {
                problems.push(Problem::BarrierTwice {
                    previous: self.key(previous),
                    barrier: barrier.clone(),
                });
            }
            if at == last {
                problems.push(Problem::BarrierLast { barrier });
            }
            previous = Some(at);
        }
    }

    fn find_arms(&mut self, in_arms: &[u32], problems: &mut Vec<Problem>) {
        let steps = &self.spec.steps;
        self.arms.of = vec![None; steps.len()];
        let mut known: HashMap<(u32, u32), u32> = HashMap::new();
        for &at in in_arms {
            let Some(given) = &steps[at as usize].arm else {
                continue;
            };
            let Some((branch, arm)) = self.arm(at, given, problems) else {
                continue;
            };
            if self.is_misplaced(at, branch, given, problems) {
                continue;
            }
            let arms = &mut self.arms.all;
            let id = *known.entry((branch, arm)).or_insert_with(|| {
                arms.push(ArmPlace {
                    branch,
                    arm,
                    around: None,
                    depth: 0,
                });
                arms.len() as u32 - 1
            });
            self.arms.of[at as usize] = Some(id);
        }
        self.nest_arms(problems);
    }

    /// The branch and the number of the arm that a step names.
    fn arm(&mut self, at: u32, given: &ArmRef, problems: &mut Vec<Problem>) -> Option<(u32, u32)> {
        let key = self.key(at);
        let place = || Place::Step(key.clone());
        let branch = self.named(place, "its branch", &given.branch, problems)?;
        let arm = self.arm_of(at, branch, &given.arm, problems)?;
        Some((branch, arm))
    }

    /// The number of an arm of a branch.
    pub(super) fn arm_of(
        &self,
        step: u32,
        branch: u32,
        arm: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<u32> {
        let StepKind::Branch { arms, .. } = self.kind(branch) else {
            problems.push(Problem::NotABranch {
                step: self.key(step),
                key: self.key(branch),
            });
            return None;
        };
        let found = arms.iter().position(|name| name == arm);
        if found.is_none() {
            problems.push(Problem::UnknownArm {
                step: self.key(step),
                branch: self.key(branch),
                arm: shown(arm),
                arms: arms.iter().map(|name| shown(name)).collect(),
            });
        }
        found.map(|at| at as u32)
    }

    /// Barriers split whole graphs, never arms.
    fn is_misplaced(
        &self,
        at: u32,
        branch: u32,
        arm: &ArmRef,
        problems: &mut Vec<Problem>,
    ) -> bool {
        let (branch_key, arm) = (self.key(branch), shown(&arm.arm));
        if *self.kind(at) == StepKind::Barrier {
            problems.push(Problem::BarrierInArm {
                barrier: self.key(at),
                branch: branch_key,
                arm,
            });
            return true;
        }
        if self.phases[at as usize] != self.phases[branch as usize] {
            problems.push(Problem::ArmAcrossBarrier {
                branch: branch_key,
                arm,
                step: self.key(at),
            });
            return true;
        }
        false
    }

    /// Finds the arm around each arm, and how deep it lies. Where arms lie in themselves or too deep
    /// they are cut, so that every way outwards is short.
    fn nest_arms(&mut self, problems: &mut Vec<Problem>) {
        let arms = &mut self.arms;
        let key = |arm: ArmPlace| shown(&self.spec.steps[arm.branch as usize].key);
        for id in 0..arms.all.len() {
            arms.all[id].around = arms.of[arms.all[id].branch as usize];
        }
        let mut met_by = vec![usize::MAX; arms.all.len()];
        for id in 0..arms.all.len() {
            // Outwards to an arm whose depth is known, or to none; then back inwards.
            let mut path = Vec::new();
            let mut next = Some(id);
            let mut depth = 0;
            while let Some(at) = next {
                depth = arms.all[at].depth;
                if depth > 0 {
                    break;
                }
                if met_by[at] == id {
                    problems.push(Problem::ArmOfItself {
                        branch: key(arms.all[at]),
                    });
                    if let Some(&last) = path.last() {
                        let last: &mut ArmPlace = &mut arms.all[last];
                        last.around = None;
                    }
                    break;
                }
                met_by[at] = id;
                path.push(at);
                next = arms.all[at].around.map(|around| around as usize);
            }
            for at in path.into_iter().rev() {
                depth += 1;
                if depth as usize > limits::NESTED_ARMS {
                    problems.push(Problem::TooDeep {
                        step: key(arms.all[at]),
                        what: "arms",
                        limit: limits::NESTED_ARMS,
                    });
                    arms.all[at].around = None;
                    depth = 1;
                }
                arms.all[at].depth = depth;
            }
        }
    }
}

/// An arm that has steps.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct ArmPlace {
    pub(in super::super) branch: u32,
    pub(in super::super) arm: u32,
    /// The arm that the branch stands in.
    pub(in super::super) around: Option<u32>,
    /// 1 for an arm in no other.
    depth: u32,
}

/// The arms that have steps, and the innermost arm of each step.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Arms {
    pub(in super::super) all: Vec<ArmPlace>,
    pub(in super::super) of: Vec<Option<u32>>,
}

impl Arms {
    /// How many arms `arm` and `other` lie in together.
    pub(super) fn common_depth(&self, arm: Option<u32>, other: Option<u32>) -> u32 {
        self.part(arm, other).0
    }

    /// Whether who stands in `outer` sees what stands in `inner` as no surer than itself: `inner` is
    /// `outer`, or an arm inside it.
    pub(super) fn is_inside(&self, inner: Option<u32>, outer: Option<u32>) -> bool {
        self.common_depth(inner, outer) == self.depth(outer)
    }

    /// The outermost arm that holds `arm` and not `other`.
    pub(super) fn entered(&self, arm: Option<u32>, other: Option<u32>) -> Option<ArmPlace> {
        self.part(arm, other).1.map(|id| self.all[id as usize])
    }

    /// The branch of which the two stand in different arms.
    pub(super) fn divided_by(&self, arm: Option<u32>, other: Option<u32>) -> Option<u32> {
        if self.all.is_empty() {
            return None;
        }
        let (_, arm, other) = self.part(arm, other);
        let (arm, other) = (self.all[arm? as usize], self.all[other? as usize]);
        (arm.branch == other.branch).then_some(arm.branch)
    }

    /// The arms around `arm`, itself first.
    pub(in super::super) fn outwards(
        &self,
        arm: Option<u32>,
    ) -> impl Iterator<Item = ArmPlace> + '_ {
        let place = |id: u32| self.all[id as usize];
        std::iter::successors(arm.map(place), move |arm| arm.around.map(place))
    }

    pub(super) fn depth(&self, arm: Option<u32>) -> u32 {
        arm.map_or(0, |id| self.all[id as usize].depth)
    }

    /// The depth of the innermost arm around both, and the next arm inwards on each side.
    fn part(&self, mut a: Option<u32>, mut b: Option<u32>) -> (u32, Option<u32>, Option<u32>) {
        let (mut below_a, mut below_b) = (None, None);
        let around = |arm: Option<u32>| arm.and_then(|id| self.all[id as usize].around);
        while a != b {
            let (depth_a, depth_b) = (self.depth(a), self.depth(b));
            if depth_a >= depth_b {
                (below_a, a) = (a, around(a));
            }
            if depth_b >= depth_a {
                (below_b, b) = (b, around(b));
            }
        }
        (self.depth(a), below_a, below_b)
    }
}
