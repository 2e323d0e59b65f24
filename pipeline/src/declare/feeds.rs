//! What upstreams give, and to whom: the typed edges.

use super::callback::Failure;
use super::handle::{Handle, Ignored, Maybe, Step};
use super::plan::{Plan, Slip};
use crate::graph::spec::{Edge, Takes};

/// Upstreams that give a step its input `I`.
///
/// | upstreams | give |
/// |---|---|
/// | `&Step<T>` | `T` |
/// | `&Maybe<T>` | `Option<T>` |
/// | `&Ignored<T>` | `Option<T>`, or `Result<T, Failure>` |
/// | a tuple of these | a tuple of what they give |
/// | `&[Step<T>]`, `&Vec<Step<T>>` | `Vec<T>` |
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not give the input `{I}`",
    label = "this gives something else than `{I}`",
    note = "a `Step<T>` gives `T`; an optional step and one that leaves a branch give `Option<T>`; \
            an ignored one gives `Option<T>` or `Result<T, Failure>`; a tuple gives a tuple",
    note = "for order alone, without data, write `p.following(..)`"
)]
pub trait Feeds<I> {
    #[doc(hidden)]
    fn edges(&self, plan: &Plan, step: &str) -> Vec<Edge>;
}

/// The input of a step that comes after nothing: `()`.
#[diagnostic::on_unimplemented(
    message = "a step that comes after nothing takes no input, and this job takes `{Self}`",
    label = "this job takes `{Self}`, and nothing stands before it to give it",
    note = "say what comes before: `upstream.then(..)` or `p.after((&a, &b)).step(..)`"
)]
pub trait NoInput {}
impl NoInput for () {}

/// An edge from a handle, which must be of this pipeline.
pub(crate) fn edge(handle: &impl Handle, takes: Takes, plan: &Plan, step: &str) -> Edge {
    if !handle.plan().is(plan) {
        plan.slip(Slip::ForeignHandle {
            step: step.to_owned(),
            handle: handle.key(),
            other: handle.plan().name(),
        });
    }
    Edge {
        step: handle.key(),
        takes,
    }
}

impl<T> Feeds<T> for &Step<T> {
    fn edges(&self, plan: &Plan, step: &str) -> Vec<Edge> {
        vec![edge(*self, Takes::Value, plan, step)]
    }
}

impl<T> Feeds<Option<T>> for &Maybe<T> {
    fn edges(&self, plan: &Plan, step: &str) -> Vec<Edge> {
        vec![edge(*self, Takes::Maybe, plan, step)]
    }
}

impl<T> Feeds<Option<T>> for &Ignored<T> {
    fn edges(&self, plan: &Plan, step: &str) -> Vec<Edge> {
        vec![edge(*self, Takes::Maybe, plan, step)]
    }
}

impl<T> Feeds<Result<T, Failure>> for &Ignored<T> {
    fn edges(&self, plan: &Plan, step: &str) -> Vec<Edge> {
        vec![edge(*self, Takes::Outcome, plan, step)]
    }
}

impl<T> Feeds<Vec<T>> for &[Step<T>] {
    fn edges(&self, plan: &Plan, step: &str) -> Vec<Edge> {
        self.iter()
            .map(|one| edge(one, Takes::Value, plan, step))
            .collect()
    }
}

impl<T> Feeds<Vec<T>> for &Vec<Step<T>> {
    fn edges(&self, plan: &Plan, step: &str) -> Vec<Edge> {
        self.iter()
            .map(|one| edge(one, Takes::Value, plan, step))
            .collect()
    }
}

impl<T, const N: usize> Feeds<Vec<T>> for &[Step<T>; N] {
    fn edges(&self, plan: &Plan, step: &str) -> Vec<Edge> {
        self.iter()
            .map(|one| edge(one, Takes::Value, plan, step))
            .collect()
    }
}

macro_rules! tuples {
    ($($upstream:ident $input:ident $at:tt),*) => {
        impl<$($upstream, $input),*> Feeds<($($input,)*)> for ($($upstream,)*)
        where
            $($upstream: Feeds<$input>),*
        {
            fn edges(&self, plan: &Plan, step: &str) -> Vec<Edge> {
                let mut edges = Vec::new();
                $(edges.extend(self.$at.edges(plan, step));)*
                edges
            }
        }
    };
}

tuples!(A I 0);
tuples!(A I 0, B J 1);
tuples!(A I 0, B J 1, C K 2);
tuples!(A I 0, B J 1, C K 2, D L 3);
tuples!(A I 0, B J 1, C K 2, D L 3, E M 4);
tuples!(A I 0, B J 1, C K 2, D L 3, E M 4, F N 5);
tuples!(A I 0, B J 1, C K 2, D L 3, E M 4, F N 5, G O 6);
tuples!(A I 0, B J 1, C K 2, D L 3, E M 4, F N 5, G O 6, H P 7);
tuples!(A I 0, B J 1, C K 2, D L 3, E M 4, F N 5, G O 6, H P 7, Q R 8);
tuples!(A I 0, B J 1, C K 2, D L 3, E M 4, F N 5, G O 6, H P 7, Q R 8, S T 9);
tuples!(A I 0, B J 1, C K 2, D L 3, E M 4, F N 5, G O 6, H P 7, Q R 8, S T 9, U V 10);
tuples!(A I 0, B J 1, C K 2, D L 3, E M 4, F N 5, G O 6, H P 7, Q R 8, S T 9, U V 10, W X 11);
