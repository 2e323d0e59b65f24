//! The properties of a step that do not depend on other steps.
//!
//! They are found in one pass over the graph and kept in a few bytes each, because a large graph does not fit into the
//! processor's caches.

use super::super::limits::{self, shown};
use super::super::problem::Problem;
use super::super::spec::{GraphSpec, Join, StepKind, StepSpec, Strategy};

/// The properties of a step that the validation of edges needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepProperties {
    /// The resolved failure strategy.
    pub(super) strategy: Strategy,
    pub(super) can_fail: bool,
    pub(super) is_barrier: bool,
    /// Whether the step is a barrier or a merge, which the coordinator resolves.
    pub(super) is_resolved: bool,
    pub(super) is_any: bool,
    pub(super) is_each: bool,
    /// Whether the step runs only after a failure. Set when its edges are resolved.
    pub(super) is_after_failure: bool,
}

impl StepProperties {
    pub(super) fn of(spec: &GraphSpec, step: &StepSpec) -> Self {
        let is_barrier = step.kind == StepKind::Barrier;
        let is_resolved = is_barrier || matches!(step.kind, StepKind::Merge { .. });
        Self {
            strategy: resolved_strategy(spec, step),
            can_fail: can_fail(&step.kind),
            is_barrier,
            is_resolved,
            is_any: step.join == Join::Any,
            is_each: matches!(step.kind, StepKind::Each { .. }),
            is_after_failure: false,
        }
    }
}

/// Returns the strategy of a step: its own, or that of its pipeline.
fn resolved_strategy(spec: &GraphSpec, step: &StepSpec) -> Strategy {
    if !can_fail(&step.kind) {
        return Strategy::Halt;
    }
    if step.optional {
        return Strategy::Ignore;
    }
    match (step.strategy, spec.strategy) {
        (Some(own), _) => own,
        (None, Strategy::Ignore) if matches!(step.kind, StepKind::Branch { .. }) => {
            Strategy::Continue
        }
        (None, inherited) => inherited,
    }
}

fn can_fail(kind: &StepKind) -> bool {
    !matches!(
        kind,
        StepKind::Barrier | StepKind::Merge { .. } | StepKind::Timer { .. }
    )
}

/// Checks a step without its edges.
pub(super) fn check(step: &StepSpec, problems: &mut Vec<Problem>) {
    limits::step(step, problems);
    let key = || shown(&step.key);
    let has_job = matches!(
        step.kind,
        StepKind::Job { .. } | StepKind::Branch { .. } | StepKind::Each { .. }
    );
    if has_job && step.options.is_none() {
        problems.push(Problem::NoOptions { step: key() });
    }
    let resolved = matches!(step.kind, StepKind::Barrier | StepKind::Merge { .. });
    let out_of_place = [
        (!has_job && step.options.is_some(), "options of a job"),
        (resolved && step.input.is_some(), "shapes of an input"),
        (resolved && step.strategy.is_some(), "strategies"),
        (resolved && step.optional, "failures that are optional"),
        (
            resolved && step.join == Join::Any,
            "upstreams to choose from",
        ),
    ];
    for (_, what) in out_of_place.iter().filter(|(is_there, _)| *is_there) {
        problems.push(Problem::NotForKind {
            step: key(),
            kind: kind_name(&step.kind),
            what,
        });
    }
    let ignores = step.optional || step.strategy == Some(Strategy::Ignore);
    let overrides = step.strategy.is_some_and(|own| own != Strategy::Ignore);
    if matches!(step.kind, StepKind::Branch { .. }) && ignores {
        problems.push(Problem::IgnoreOnBranch { step: key() });
    } else if !resolved && step.optional && overrides {
        problems.push(Problem::OptionalWithStrategy { step: key() });
    }
}

/// Returns the word that messages use for a kind of step.
pub(super) fn kind_name(kind: &StepKind) -> &'static str {
    match kind {
        StepKind::Job { .. } => "job",
        StepKind::Branch { .. } => "branch",
        StepKind::Merge { .. } => "merge",
        StepKind::Barrier => "barrier",
        StepKind::Each { .. } => "job for each element",
        StepKind::Child { .. } => "pipeline",
        StepKind::Timer { .. } => "timer",
        StepKind::Signal { .. } => "wait for a signal",
    }
}
