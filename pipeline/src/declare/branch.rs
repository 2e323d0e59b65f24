//! Branches: a job decides which of several arms runs.

use jobs::Perform;

use super::builder::{PipelineBuilder, Upstream, order};
use super::handle::{Handle, OptionalStep, Step};
use crate::graph::merge_key;
use crate::graph::spec::{ArmRef, Edge, StepKind, StepSpec, Takes};

/// The decision of a branch: an enum with one variant for each arm.
///
/// `#[derive(Branch)] enum Format { Hd, Sd }` also makes the struct `FormatArms { hd, sd }`, which takes a closure
/// for each variant: an arm that is missing does not compile.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not choose an arm: a deciding job returns an enum with `#[derive(Branch)]`",
    label = "the job returns `{Self}`"
)]
pub trait Branch {
    /// The names of the arms, as the value is written in JSON.
    const ARMS: &'static [&'static str];
}

/// The arms of a branch, each a closure that declares its steps.
#[diagnostic::on_unimplemented(
    message = "these are not the arms that the job chooses from",
    label = "use the `..Arms` struct that `#[derive(Branch)]` made for what the job returns"
)]
pub trait Arms {
    /// The decision that chooses between the arms.
    type Of: Branch;
    /// The handle of the branch: a [`Step<T>`] if every arm returns one, an [`OptionalStep<T>`] if only some do, a
    /// `Step<()>` if none does.
    type Output;

    #[doc(hidden)]
    fn declare(self, branch: &mut BranchBuilder<'_>) -> Self::Output;
}

/// A branch whose arms are being declared.
#[derive(Debug)]
pub struct BranchBuilder<'a> {
    builder: &'a PipelineBuilder,
    key: &'a str,
    /// The number of the deciding step. The steps of the arms have higher ones.
    deciding: usize,
    /// For each arm that returns a step, its name and the key of the step.
    values: Vec<(String, String)>,
}

impl BranchBuilder<'_> {
    /// Declares one arm.
    pub fn arm<R: ArmResult>(&mut self, name: &str, declare: impl FnOnce() -> R) -> R {
        self.builder.enter(ArmRef {
            branch: self.key.to_owned(),
            arm: name.to_owned(),
        });
        let result = declare();
        self.builder.leave();
        if let Some(key) = result.key() {
            self.values.push((name.to_owned(), key));
        }
        result
    }

    /// Declares the node where the arms meet, and returns the handle of the branch.
    pub fn merge<T: 'static>(&mut self) -> Step<T> {
        let is_in_arm = |step: &&StepSpec| {
            let arm = step.arm.as_ref();
            arm.is_some_and(|arm| arm.branch == self.key)
        };
        let edge = |step: &StepSpec| Edge {
            step: step.key.clone(),
            takes: match self.values.iter().any(|(_, key)| *key == step.key) {
                true => Takes::Maybe,
                false => Takes::Order,
            },
        };
        let state = self.builder.0.lock();
        let steps = state.spec.steps[self.deciding + 1..].iter();
        let edges = std::iter::once(order(self.key))
            .chain(steps.filter(is_in_arm).map(edge))
            .collect();
        drop(state);
        let kind = StepKind::Merge {
            branch: self.key.to_owned(),
            values: std::mem::take(&mut self.values),
        };
        self.builder
            .add_resolved(merge_key(self.key), kind, edges)
            .decided_by(self.deciding)
    }
}

/// The result of an arm: the handle of a step, or nothing.
#[diagnostic::on_unimplemented(
    message = "an arm returns a step or nothing, and this one returns `{Self}`",
    label = "return the handle of a step, or end the closure with `;`"
)]
pub trait ArmResult {
    #[doc(hidden)]
    fn key(&self) -> Option<String>;
}

impl<T> ArmResult for Step<T> {
    fn key(&self) -> Option<String> {
        Some(self.builder().key(self.value_node()))
    }
}

impl<T> ArmResult for OptionalStep<T> {
    fn key(&self) -> Option<String> {
        Some(self.builder().key(self.value_node()))
    }
}

impl ArmResult for () {
    fn key(&self) -> Option<String> {
        None
    }
}

/// The common result of two arms.
#[diagnostic::on_unimplemented(
    message = "the arms of a branch return different types: `{Self}` and `{Other}`",
    label = "all arms that return a step must return the same type",
    note = "end an arm with `;` if its step is not to be the value of the branch"
)]
pub trait Joins<Other> {
    /// The type that both arms have in common.
    type Output: Merged;
}

/// The common result of all arms of a branch.
pub trait Merged {
    /// The handle of the branch.
    type Handle;
    #[doc(hidden)]
    fn merge(branch: &mut BranchBuilder<'_>) -> Self::Handle;
}

impl<T: 'static> Merged for Step<T> {
    type Handle = Self;
    fn merge(branch: &mut BranchBuilder<'_>) -> Self {
        branch.merge()
    }
}

impl<T: 'static> Merged for OptionalStep<T> {
    type Handle = Self;
    fn merge(branch: &mut BranchBuilder<'_>) -> Self {
        branch.merge().may_be_absent()
    }
}

impl Merged for () {
    type Handle = Step<()>;
    fn merge(branch: &mut BranchBuilder<'_>) -> Step<()> {
        branch.merge()
    }
}

macro_rules! joins {
    ($($left:ty, $right:ty => $output:ty;)*) => {
        $(impl<T: 'static> Joins<$right> for $left {
            type Output = $output;
        })*
    };
}

joins! {
    Step<T>, Step<T> => Step<T>;
    Step<T>, OptionalStep<T> => OptionalStep<T>;
    OptionalStep<T>, Step<T> => OptionalStep<T>;
    OptionalStep<T>, OptionalStep<T> => OptionalStep<T>;
    Step<T>, () => OptionalStep<T>;
    (), Step<T> => OptionalStep<T>;
    OptionalStep<T>, () => OptionalStep<T>;
    (), OptionalStep<T> => OptionalStep<T>;
}

impl Joins<()> for () {
    type Output = ();
}

/// Declares the deciding step, then its arms, then the node where they meet.
pub(crate) fn declare<J, A>(
    builder: &PipelineBuilder,
    key: &str,
    job: &J,
    upstream: Upstream,
    arms: A,
) -> A::Output
where
    J: Perform<Output: Branch>,
    A: Arms<Of = J::Output>,
{
    let kind = StepKind::Branch {
        job: J::NAME.to_owned(),
        version: J::VERSION,
        arms: <J::Output as Branch>::ARMS
            .iter()
            .map(|arm| (*arm).to_owned())
            .collect(),
    };
    let deciding: Step<J::Output> = builder.add_kind(key, job, kind, upstream);
    arms.declare(&mut BranchBuilder {
        builder,
        key,
        deciding: deciding.job_node(),
        values: Vec::new(),
    })
}
