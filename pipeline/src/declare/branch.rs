//! Branches: a job chooses one of several arms.

use jobs::Perform;

use super::handle::{Handle, Maybe, Step};
use super::plan::{Before, Plan, order};
use crate::graph::merge_key;
use crate::graph::spec::{ArmRef, Edge, StepKind, Takes};

/// What a deciding job returns: one variant for each arm. Derive it on an enum.
///
/// `#[derive(Branch)] enum Format { Hd, Sd }` also makes `FormatArms { hd, sd }`, which takes a closure
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
    /// What chooses between them.
    type Of: Branch;
    /// What leaves the branch: a [`Step<T>`] if every arm returns one, a [`Maybe<T>`] if only some
    /// do, a `Step<()>` if none does.
    type Output;

    #[doc(hidden)]
    fn declare(self, scope: &mut Scope<'_>) -> Self::Output;
}

/// A branch whose arms are being declared.
#[derive(Debug)]
pub struct Scope<'a> {
    plan: &'a Plan,
    branch: &'a str,
    values: Vec<(String, String)>,
    /// The first step of the first arm.
    first: usize,
}

impl Scope<'_> {
    /// Declares one arm.
    pub fn arm<R: ArmResult>(&mut self, name: &str, declare: impl FnOnce() -> R) -> R {
        self.plan.enter(ArmRef {
            branch: self.branch.to_owned(),
            arm: name.to_owned(),
        });
        let result = declare();
        self.plan.leave();
        if let Some(key) = result.key() {
            self.values.push((name.to_owned(), key));
        }
        result
    }

    /// Where the arms come together.
    pub fn merge<T: 'static>(&mut self) -> Step<T> {
        let state = self.plan.0.lock();
        let of_arms = |step: &&crate::graph::spec::StepSpec| {
            step.arm
                .as_ref()
                .is_some_and(|arm| arm.branch == self.branch)
        };
        let mut edges = vec![order(self.branch)];
        edges.extend(
            state.spec.steps[self.first..]
                .iter()
                .filter(of_arms)
                .map(|step| {
                    let takes = if self.values.iter().any(|(_, key)| *key == step.key) {
                        Takes::Maybe
                    } else {
                        Takes::Order
                    };
                    Edge {
                        step: step.key.clone(),
                        takes,
                    }
                }),
        );
        drop(state);
        let kind = StepKind::Merge {
            branch: self.branch.to_owned(),
            values: std::mem::take(&mut self.values),
        };
        self.plan.add_resolved(merge_key(self.branch), kind, edges)
    }
}

/// What an arm returns: a handle, or nothing.
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
        Some(Handle::key(self))
    }
}

impl<T> ArmResult for Maybe<T> {
    fn key(&self) -> Option<String> {
        Some(Handle::key(self))
    }
}

impl ArmResult for () {
    fn key(&self) -> Option<String> {
        None
    }
}

/// What two arms together return.
#[diagnostic::on_unimplemented(
    message = "the arms of a branch return different types: `{Self}` and `{Other}`",
    label = "all arms that return a step must return the same type"
)]
pub trait Joins<Other> {
    /// Of both.
    type Output: Merged;
}

/// What leaves a branch.
pub trait Merged {
    /// The handle that leaves it.
    type Handle;
    #[doc(hidden)]
    fn merge(scope: &mut Scope<'_>) -> Self::Handle;
}

impl<T: 'static> Merged for Step<T> {
    type Handle = Self;
    fn merge(scope: &mut Scope<'_>) -> Self {
        scope.merge()
    }
}

impl<T: 'static> Merged for Maybe<T> {
    type Handle = Self;
    fn merge(scope: &mut Scope<'_>) -> Self {
        let step = scope.merge::<T>();
        Self::at(step.plan().clone(), Handle::at(&step))
    }
}

impl Merged for () {
    type Handle = Step<()>;
    fn merge(scope: &mut Scope<'_>) -> Step<()> {
        scope.merge()
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
    Step<T>, Maybe<T> => Maybe<T>;
    Maybe<T>, Step<T> => Maybe<T>;
    Maybe<T>, Maybe<T> => Maybe<T>;
    Step<T>, () => Maybe<T>;
    (), Step<T> => Maybe<T>;
    Maybe<T>, () => Maybe<T>;
    (), Maybe<T> => Maybe<T>;
}

impl Joins<()> for () {
    type Output = ();
}

/// Declares the deciding step, then its arms, then where they come together.
pub(crate) fn declare<J, A>(plan: &Plan, key: &str, job: &J, before: Before, arms: A) -> A::Output
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
    let deciding: Step<J::Output> = plan.add_kind(key, job, kind, before);
    let mut scope = Scope {
        plan,
        branch: key,
        values: Vec::new(),
        first: Handle::at(&deciding) + 1,
    };
    arms.declare(&mut scope)
}
