//! The layout of a graph: the key, the phase and the arm of each step.

use std::collections::HashMap;

use super::super::invalid::Place;
use super::super::keys::{KeyIndex, Suggestions, is_generated};
use super::super::limits::{self, shown, shown_key};
use super::super::problem::Problem;
use super::super::spec::{ArmRef, GraphSpec, StepKind, StepSpec};
use super::properties::{self, StepProperties};

/// The key, the phase and the arm of each step. Steps are numbered in the order of their declaration.
pub(super) struct Layout<'s> {
    pub(super) spec: &'s GraphSpec,
    index: KeyIndex<'s>,
    suggestions: Suggestions,
    pub(super) properties: Vec<StepProperties>,
    /// The phase of each step. A barrier belongs to the phase that it ends.
    pub(super) phases: Vec<u32>,
    /// The barriers; the one at index `n` ends phase `n`.
    pub(super) barriers: Vec<u32>,
    pub(super) arms: Arms,
    pub(super) merges: Vec<u32>,
    pub(super) children: Vec<u32>,
}

impl<'s> Layout<'s> {
    /// Finds the layout of a graph, and checks each step by itself, in one pass over the steps.
    pub(super) fn find(spec: &'s GraphSpec, problems: &mut Vec<Problem>) -> Self {
        let count = spec.steps.len();
        let mut layout = Self {
            spec,
            index: KeyIndex::with_capacity(count),
            suggestions: Suggestions::new(),
            properties: Vec::with_capacity(count),
            phases: Vec::with_capacity(count),
            barriers: Vec::new(),
            arms: Arms::default(),
            merges: Vec::new(),
            children: Vec::new(),
        };
        let mut in_arms = Vec::new();
        for (at, step) in (0..).zip(&spec.steps) {
            properties::check(step, problems);
            layout.index.add(&step.key);
            layout.properties.push(StepProperties::of(spec, step));
            layout.phases.push(layout.barriers.len() as u32);
            match step.kind {
                StepKind::Barrier => layout.barriers.push(at),
                StepKind::Merge { .. } => layout.merges.push(at),
                StepKind::Child { .. } => layout.children.push(at),
                _ => {}
            }
            if step.arm.is_some() {
                in_arms.push(at);
            }
        }
        layout.index.report_duplicates(problems);
        layout.check_barriers(problems);
        layout.find_arms(&in_arms, problems);
        layout
    }

    /// Returns the key of a step as messages show it.
    pub(super) fn key(&self, step: u32) -> String {
        shown_key(&self.spec.steps[step as usize])
    }

    pub(super) fn kind(&self, step: u32) -> &'s StepKind {
        &self.spec.steps[step as usize].kind
    }

    /// Returns whether `step` is before a barrier that `upstream` is after, or that `upstream` is.
    pub(super) fn is_in_earlier_phase(&self, step: u32, upstream: u32) -> bool {
        if self.barriers.is_empty() {
            return false;
        }
        let rank = |at: u32| {
            let closes = self.properties[at as usize].is_barrier;
            2 * u64::from(self.phases[at as usize]) + u64::from(closes)
        };
        rank(step) < rank(upstream)
    }

    /// Returns the step with this key, or reports that there is none.
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
        let is_written = |step: &&StepSpec| !is_generated(&step.key);
        let steps = self.spec.steps.iter().filter(is_written);
        let keys = steps.map(|step| step.key.as_str());
        problems.push(Problem::UnknownKey {
            place: place(),
            role,
            key: shown(key),
            suggestion: self.suggestions.nearest(key, keys),
        });
        None
    }

    /// Reports barriers without a step before or after them.
    fn check_barriers(&self, problems: &mut Vec<Problem>) {
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

    /// Finds the arm of each step that names one.
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

    /// Returns the branch and the index of the arm that a step names.
    fn arm(&mut self, at: u32, given: &ArmRef, problems: &mut Vec<Problem>) -> Option<(u32, u32)> {
        let key = self.key(at);
        let place = || Place::Step(key.clone());
        let branch = self.named(place, "its branch", &given.branch, problems)?;
        let arm = self.arm_of(at, branch, &given.arm, problems)?;
        Some((branch, arm))
    }

    /// Returns the index of an arm of a branch.
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

    /// Reports a barrier inside an arm, or between a branch and a step of its arms.
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

    /// Finds the arm around each arm, and the depth of each. Arms that are nested in themselves or too deep are
    /// detached, so that every walk outwards ends.
    fn nest_arms(&mut self, problems: &mut Vec<Problem>) {
        let arms = &mut self.arms;
        let key = |arm: ArmPlace| shown(&self.spec.steps[arm.branch as usize].key);
        for id in 0..arms.all.len() {
            arms.all[id].around = arms.of[arms.all[id].branch as usize];
        }
        let mut last_seen_by = vec![usize::MAX; arms.all.len()];
        for id in 0..arms.all.len() {
            // Walk outwards to an arm whose depth is known, or out of all arms; then set the depths on the way back.
            let mut path = Vec::new();
            let mut next = Some(id);
            let mut depth = 0;
            while let Some(at) = next {
                depth = arms.all[at].depth;
                if depth > 0 {
                    break;
                }
                if last_seen_by[at] == id {
                    problems.push(Problem::ArmOfItself {
                        branch: key(arms.all[at]),
                    });
                    if let Some(&last) = path.last() {
                        let last: &mut ArmPlace = &mut arms.all[last];
                        last.around = None;
                    }
                    break;
                }
                last_seen_by[at] = id;
                path.push(at);
                next = arms.all[at].around.map(|around| around as usize);
            }
            for at in path.into_iter().rev() {
                depth += 1;
                if depth as usize > limits::MAX_NESTED_ARMS {
                    problems.push(Problem::TooDeep {
                        step: key(arms.all[at]),
                        what: "arms",
                        limit: limits::MAX_NESTED_ARMS,
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
    /// The arm that the branch is in.
    pub(in super::super) around: Option<u32>,
    /// The nesting of the arm: 1 for an arm that is in no other.
    depth: u32,
}

/// The arms that have steps, and the innermost arm of each step.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Arms {
    pub(in super::super) all: Vec<ArmPlace>,
    pub(in super::super) of: Vec<Option<u32>>,
}

impl Arms {
    /// Returns the number of arms that `arm` and `other` are both in.
    pub(super) fn common_depth(&self, arm: Option<u32>, other: Option<u32>) -> u32 {
        self.part(arm, other).0
    }

    /// Returns whether `inner` is `outer`, or an arm inside it.
    pub(super) fn is_inside(&self, inner: Option<u32>, outer: Option<u32>) -> bool {
        self.common_depth(inner, outer) == self.depth(outer)
    }

    /// Returns the outermost arm that contains `arm` and not `other`.
    pub(super) fn entered(&self, arm: Option<u32>, other: Option<u32>) -> Option<ArmPlace> {
        self.part(arm, other).1.map(|id| self.all[id as usize])
    }

    /// Returns the branch of which the two are in different arms.
    pub(super) fn divided_by(&self, arm: Option<u32>, other: Option<u32>) -> Option<u32> {
        if self.all.is_empty() {
            return None;
        }
        let (_, arm, other) = self.part(arm, other);
        let (arm, other) = (self.all[arm? as usize], self.all[other? as usize]);
        (arm.branch == other.branch).then_some(arm.branch)
    }

    /// Iterates over `arm` and the arms around it, from the inside out.
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

    /// Returns the depth of the innermost arm around both, and the next arm inwards on each side.
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
