//! What upstreams give, and to whom: the typed edges.

use super::callback::Failure;
use super::handle::{Handle, Ignored, Maybe, Step};
use super::plan::{Before, Plan};
use crate::graph::DeclarationError;
use crate::graph::spec::{Edge, Join, Shape, Takes};

/// Upstreams that give a step its input `I`.
///
/// | upstreams | give |
/// |---|---|
/// | `&Step<T>` | `T` |
/// | `&Maybe<T>` | `Option<T>` |
/// | `&Ignored<T>` | `Option<T>`, or `Result<T, Failure>` |
/// | a tuple of these | a tuple of what they give |
/// | `&[Step<T>]`, `&Vec<Step<T>>` | `Vec<T>` |
///
/// They nest: `(&a, &all)` gives `(A, Vec<B>)`. A handle that is given twice gives its value twice.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not give the input `{I}`",
    label = "this job takes `{I}`",
    note = "one handle gives one value, a tuple of handles a tuple, a slice of handles a `Vec`",
    note = "for order alone, without data, write `p.following(..)`"
)]
pub trait Feeds<I> {
    #[doc(hidden)]
    fn edges(&self, plan: &Plan, step: &str) -> Vec<Edge>;
    #[doc(hidden)]
    fn shape(&self) -> Shape;
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
        plan.report(DeclarationError::ForeignHandle {
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

/// What upstreams give to a step, and in which shape.
pub(crate) fn given<I>(upstreams: &impl Feeds<I>, plan: &Plan, step: &str) -> Before {
    Before {
        edges: upstreams.edges(plan, step),
        shape: Some(upstreams.shape()),
        join: Join::All,
    }
}

/// The very type that an upstream gives.
#[diagnostic::on_unimplemented(
    message = "a step takes `{Self}` where what stands before it gives `{Given}`",
    label = "this job takes `{Self}`, and is given `{Given}`",
    note = "a `Step<T>` gives `T`; an optional step, and one that leaves a branch by some arms only, \
            gives `Option<T>`",
    note = "for order alone, without data, write `p.following(..)`"
)]
pub trait Is<Given> {}
impl<T> Is<T> for T {}

/// What an ignored step of `T` can give.
#[diagnostic::on_unimplemented(
    message = "a step takes `{Self}` where an ignored step of `{T}` stands before it",
    label = "this job takes `{Self}`; after an ignored step it must take `Option<{T}>` or `Result<{T}, Failure>`"
)]
pub trait FromIgnored<T> {
    #[doc(hidden)]
    const TAKES: Takes;
}

impl<T> FromIgnored<T> for Option<T> {
    const TAKES: Takes = Takes::Maybe;
}

impl<T> FromIgnored<T> for Result<T, Failure> {
    const TAKES: Takes = Takes::Outcome;
}

impl<T, I: Is<T>> Feeds<I> for &Step<T> {
    fn edges(&self, plan: &Plan, step: &str) -> Vec<Edge> {
        vec![edge(*self, Takes::Value, plan, step)]
    }

    fn shape(&self) -> Shape {
        Shape::One
    }
}

impl<T, I: Is<Option<T>>> Feeds<I> for &Maybe<T> {
    fn edges(&self, plan: &Plan, step: &str) -> Vec<Edge> {
        vec![edge(*self, Takes::Maybe, plan, step)]
    }

    fn shape(&self) -> Shape {
        Shape::One
    }
}

impl<T, I: FromIgnored<T>> Feeds<I> for &Ignored<T> {
    fn edges(&self, plan: &Plan, step: &str) -> Vec<Edge> {
        vec![edge(*self, I::TAKES, plan, step)]
    }

    fn shape(&self) -> Shape {
        Shape::One
    }
}

impl<T, I: Is<Vec<T>>> Feeds<I> for &[Step<T>] {
    fn edges(&self, plan: &Plan, step: &str) -> Vec<Edge> {
        let of = |one| edge(one, Takes::Value, plan, step);
        self.iter().map(of).collect()
    }

    fn shape(&self) -> Shape {
        Shape::List(self.len() as u32)
    }
}

impl<T, I: Is<Vec<T>>> Feeds<I> for &Vec<Step<T>> {
    fn edges(&self, plan: &Plan, step: &str) -> Vec<Edge> {
        Feeds::<I>::edges(&self.as_slice(), plan, step)
    }

    fn shape(&self) -> Shape {
        Feeds::<I>::shape(&self.as_slice())
    }
}

impl<T, I: Is<Vec<T>>, const N: usize> Feeds<I> for &[Step<T>; N] {
    fn edges(&self, plan: &Plan, step: &str) -> Vec<Edge> {
        Feeds::<I>::edges(&self.as_slice(), plan, step)
    }

    fn shape(&self) -> Shape {
        Feeds::<I>::shape(&self.as_slice())
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
                $(edges.extend(Feeds::<$input>::edges(&self.$at, plan, step));)*
                edges
            }

            fn shape(&self) -> Shape {
                Shape::Tuple(vec![$(Feeds::<$input>::shape(&self.$at)),*])
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
