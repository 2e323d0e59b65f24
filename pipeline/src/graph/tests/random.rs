//! How random graphs are made.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::build::*;
use crate::graph::spec::{
    ArmRef, Edge, GraphSpec, Join, Shape, StepKind, StepOptions, StepSpec, Strategy as OnFailure,
    Takes,
};

/// A key that may or may not be there, now and then no key at all.
fn any_key() -> impl Strategy<Value = String> {
    prop_oneof![
        20 => (0..12_u8).prop_map(|n| format!("s{n}")),
        1 => Just("barrier:1".to_owned()),
        1 => "[a:\0 é]{0,3}",
    ]
}

fn any_arm() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just("x"), 4 => Just("y"), 1 => Just("z")].prop_map(str::to_owned)
}

fn any_takes() -> impl Strategy<Value = Takes> {
    prop_oneof![
        Just(Takes::Value),
        Just(Takes::Maybe),
        Just(Takes::Outcome),
        Just(Takes::Failure),
        Just(Takes::Order),
        Just(Takes::Ended),
    ]
}

fn any_strategy() -> impl Strategy<Value = OnFailure> {
    prop_oneof![
        Just(OnFailure::Halt),
        Just(OnFailure::Continue),
        Just(OnFailure::Ignore)
    ]
}

fn any_kind() -> impl Strategy<Value = StepKind> {
    let (job, version) = ("work".to_owned(), 1);
    let arms = vec(any_arm(), 0..3);
    let values = vec((any_arm(), any_key()), 0..3);
    prop_oneof![
        8 => Just(StepKind::Job { job: job.clone(), version }),
        3 => arms.prop_map({
            let job = job.clone();
            move |arms| StepKind::Branch { job: job.clone(), version, arms }
        }),
        2 => (any_key(), values).prop_map(|(branch, values)| StepKind::Merge { branch, values }),
        2 => Just(StepKind::Barrier),
        1 => proptest::option::of(0..3_u32).prop_map(move |tolerate| StepKind::Each {
            job: job.clone(),
            version,
            tolerate,
        }),
        1 => (0..3_u64).prop_map(|delay_ms| StepKind::Timer { delay_ms }),
        1 => (any_key(), proptest::option::of(0..3_u64))
            .prop_map(|(name, timeout_ms)| StepKind::Signal { name, timeout_ms }),
    ]
}

fn any_options() -> impl Strategy<Value = StepOptions> {
    (
        any_key(),
        any::<i16>(),
        any::<u16>(),
        proptest::option::of(any::<u64>()),
        0.0..1.0_f32,
    )
        .prop_map(
            |(queue, priority, attempts, timeout_ms, jitter)| StepOptions {
                queue,
                priority,
                max_attempts: attempts,
                timeout_ms,
                backoff: jobs::Backoff::DEFAULT.jitter(jitter),
                ..options()
            },
        )
}

fn any_shape() -> impl Strategy<Value = Shape> {
    let flat = prop_oneof![6 => Just(Shape::One), 1 => Just(Shape::Maybe), 2 => (0..4_u32).prop_map(Shape::List)];
    flat.prop_recursive(10, 24, 3, |inner| vec(inner, 0..3).prop_map(Shape::Tuple))
}

fn any_step() -> impl Strategy<Value = StepSpec> {
    let edge = (any_key(), any_takes()).prop_map(|(step, takes)| Edge { step, takes });
    let arm = (any_key(), any_arm()).prop_map(|(branch, arm)| ArmRef { branch, arm });
    (
        (
            any_key(),
            any_kind(),
            vec(edge, 0..4),
            proptest::option::weighted(0.3, any_shape()),
        ),
        (
            any::<bool>(),
            proptest::option::of(any_strategy()),
            any::<bool>(),
        ),
        (
            proptest::option::weighted(0.3, arm),
            proptest::option::of(any_options()),
        ),
    )
        .prop_map(
            |((key, kind, after, input), (any, strategy, optional), (arm, options))| StepSpec {
                key,
                kind,
                after,
                input,
                join: if any { Join::Any } else { Join::All },
                strategy,
                optional,
                arm,
                options,
            },
        )
}

fn any_single_graph() -> impl Strategy<Value = GraphSpec> {
    let parts = (
        any_key(),
        vec(any_step(), 0..14),
        vec(any_key(), 0..2),
        proptest::option::weighted(0.1, any_shape()),
        any_strategy(),
    );
    parts.prop_map(|(name, steps, output, output_shape, strategy)| GraphSpec {
        name,
        output,
        output_shape,
        strategy,
        ..graph(steps)
    })
}

/// Any graph at all; hardly one is valid.
pub(super) fn any_graph() -> impl Strategy<Value = GraphSpec> {
    let inner = proptest::option::weighted(0.1, any_single_graph());
    (any_single_graph(), inner).prop_map(|(mut outer, inner)| {
        outer.steps.extend(inner.map(|inner| child("sub", inner)));
        outer
    })
}

/// What one step of a valid graph is made of.
#[derive(Debug, Clone)]
struct Choice {
    kind: u8,
    strategy: u8,
    arm: Option<(Index, bool)>,
    upstream: Vec<(Index, u8)>,
}

fn choice() -> impl Strategy<Value = Choice> {
    let arm = proptest::option::of((any::<Index>(), any::<bool>()));
    (0..10_u8, 0..4_u8, arm, vec((any::<Index>(), 0..3_u8), 0..4)).prop_map(
        |(kind, strategy, arm, upstream)| Choice {
            kind,
            strategy,
            arm,
            upstream,
        },
    )
}

/// A graph that is valid by the way it is made: what comes before stands before.
pub(super) fn valid_graph() -> impl Strategy<Value = GraphSpec> {
    (vec(choice(), 1..24), any::<bool>()).prop_map(|(choices, shuffled)| {
        let mut made = Made::default();
        for choice in choices {
            made.step(choice);
        }
        if made
            .steps
            .last()
            .is_some_and(|step| step.kind == StepKind::Barrier)
        {
            made.steps.pop();
        }
        let mut spec = graph(made.steps);
        if shuffled {
            turn_phases(&mut spec, 7);
        }
        spec
    })
}

#[derive(Default)]
struct Made {
    steps: Vec<StepSpec>,
    phase_from: usize,
    barriers: usize,
    /// Branches that have a merge: their arms are complete.
    merged: Vec<String>,
}

impl Made {
    fn step(&mut self, choice: Choice) {
        let key = format!("s{}", self.steps.len());
        let open = self.open_branches();
        match choice.kind {
            0 if self.steps.len() > self.phase_from => self.barrier(),
            1 if !open.is_empty() => self.merge(&key, &open[0]),
            2 => self.work(branch(&key, &["x", "y"]), choice, &open),
            3 if !choice.upstream.is_empty() => self.error_path(&key, &choice),
            _ => {
                let mut step = job(&key);
                match choice.strategy {
                    0 => step.strategy = Some(OnFailure::Continue),
                    1 => step.strategy = Some(OnFailure::Ignore),
                    2 => step.optional = true,
                    _ => {}
                }
                self.work(step, choice, &open);
            }
        }
    }

    fn barrier(&mut self) {
        self.barriers += 1;
        self.steps.push(barrier(self.barriers));
        self.phase_from = self.steps.len();
    }

    fn merge(&mut self, key: &str, branch: &str) {
        let arm = self.find(branch).arm.clone();
        self.steps.push(StepSpec {
            arm,
            ..merge(key, branch, &[])
        });
        self.merged.push(branch.to_owned());
    }

    /// After the failure of any step before, also of one in an earlier phase or in an arm.
    fn error_path(&mut self, key: &str, choice: &Choice) {
        let can_fail =
            |step: &&StepSpec| matches!(step.kind, StepKind::Job { .. } | StepKind::Branch { .. });
        let can_fail: Vec<&StepSpec> = self.steps.iter().filter(can_fail).collect();
        let mut step = job(key);
        if !can_fail.is_empty() {
            let of = can_fail[choice.upstream[0].0.index(can_fail.len())];
            step = step.takes(&of.key, Takes::Failure);
        }
        self.steps.push(step);
    }

    fn work(&mut self, mut step: StepSpec, choice: Choice, open: &[String]) {
        if let (Some((at, first)), false) = (choice.arm, open.is_empty()) {
            let branch = &open[at.index(open.len())];
            let arm = if first { "x" } else { "y" };
            step = step.following(&[branch]).in_arm(branch, arm);
        }
        for (at, takes) in choice.upstream {
            if self.steps.is_empty() {
                break;
            }
            let up = &self.steps[at.index(self.steps.len())];
            let sees = up.arm.is_none() || up.arm == step.arm;
            // Taken twice it is two values; in order only beside a value, or twice, it is nothing.
            let met = step.after.iter().find(|edge| edge.step == up.key);
            let again = met.is_some_and(|edge| edge.takes == Takes::Order || takes == 1);
            if !sees || again || up.kind == StepKind::Barrier {
                continue;
            }
            let is_merge = matches!(up.kind, StepKind::Merge { .. });
            let is_error_path = up.after.iter().any(|edge| edge.takes == Takes::Failure);
            let sure = up.strategy != Some(OnFailure::Ignore)
                && !up.optional
                && !is_merge
                && !is_error_path;
            let takes = match takes {
                0 if sure => Takes::Value,
                1 => Takes::Order,
                _ => Takes::Maybe,
            };
            step = step.takes(&up.key.clone(), takes);
        }
        self.steps.push(step);
    }

    fn find(&self, key: &str) -> &StepSpec {
        let mut steps = self.steps.iter();
        steps.find(|step| step.key == key).unwrap()
    }

    /// The branches of this phase that no merge, of theirs or of one around them, has closed.
    fn open_branches(&self) -> Vec<String> {
        let this_phase = self.steps[self.phase_from..].iter();
        let is_open = |step: &&StepSpec| {
            let around = |step: &&StepSpec| step.arm.as_ref().map(|arm| self.find(&arm.branch));
            let mut outwards = std::iter::successors(Some(*step), around);
            !outwards.any(|branch| self.merged.contains(&branch.key))
        };
        this_phase
            .filter(|step| matches!(step.kind, StepKind::Branch { .. }))
            .filter(is_open)
            .map(|step| step.key.clone())
            .collect()
    }
}

/// Declares the steps of each phase in another order.
pub(super) fn turn_phases(spec: &mut GraphSpec, by: usize) {
    for phase in spec.steps.split_mut(|step| step.kind == StepKind::Barrier) {
        let by = by % phase.len().max(1);
        phase.rotate_left(by);
        phase.reverse();
    }
}
