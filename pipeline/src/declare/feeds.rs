//! Typed edges: which upstream steps give a job its input.

use super::builder::{PipelineBuilder, Upstream};
use super::callback::Failure;
use super::handle::{Handle, IgnoredStep, OptionalStep, Step};
use crate::graph::spec::{Edge, Join, Shape, Takes};

/// Upstream steps that give a job its input `I`.
///
/// | upstream steps | give |
/// |---|---|
/// | `Step<T>` | `T` |
/// | `OptionalStep<T>` | `Option<T>` |
/// | `IgnoredStep<T>` | `Option<T>`, or `Result<T, Failure>` |
/// | a tuple of these | a tuple of what they give |
/// | `[Step<T>]`, `Vec<Step<T>>` | `Vec<T>` |
///
/// Each is taken by value or by reference. They nest: `(&a, &all)` gives `(A, Vec<B>)`. A handle that is given
/// twice gives its value twice. `N` is the position in the innermost tuple, for the compiler's messages.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not give the input `{I}`",
    label = "this job takes `{I}`",
    note = "one handle gives one value, a tuple of handles a tuple, a slice of handles a `Vec`",
    note = "for order without data, write `p.following(..)`"
)]
pub trait Feeds<I, const N: usize = 1> {
    #[doc(hidden)]
    fn links(&self, builder: &PipelineBuilder) -> Vec<Link>;
    #[doc(hidden)]
    fn shape(&self) -> Shape;
}

/// The input of a step that takes no value: `()`.
#[diagnostic::on_unimplemented(
    message = "this step is given no input, and its job takes `{Self}`",
    label = "this job takes `{Self}`",
    note = "name the steps that give the input: `upstream.then(..)` or `p.after((&a, &b)).step(..)`"
)]
pub trait NoInput {}
impl NoInput for () {}

/// An edge from a handle that may belong to another pipeline, which the builder reports.
#[derive(Debug, Clone)]
pub struct Link {
    pub(crate) edge: Edge,
    pub(crate) foreign: Option<ForeignHandle>,
}

/// The handle of a step that another pipeline declared.
#[derive(Debug, Clone)]
pub(crate) struct ForeignHandle {
    pub(crate) step: String,
    pub(crate) pipeline: String,
}

/// Links a handle to the step that is about to be declared.
///
/// The failure of a branch is that of its deciding step; everything else comes from where its arms meet.
pub(crate) fn link(handle: &impl Handle, takes: Takes, builder: &PipelineBuilder) -> Link {
    let of = handle.builder();
    let node = match takes {
        Takes::Failure => handle.job_node(),
        _ => handle.value_node(),
    };
    Link {
        edge: Edge {
            step: of.key(node),
            takes,
        },
        foreign: (!of.is(builder)).then(|| ForeignHandle {
            step: of.key(handle.job_node()),
            pipeline: of.name(),
        }),
    }
}

/// Collects what upstream steps give to a step, and in which shape.
pub(crate) fn given<I>(upstreams: &impl Feeds<I>, builder: &PipelineBuilder) -> Upstream {
    Upstream {
        links: upstreams.links(builder),
        shape: Some(upstreams.shape()),
        join: Join::All,
    }
}

/// The exact type that an upstream step gives. `N` is its position.
#[diagnostic::on_unimplemented(
    message = "upstream {N} gives `{Given}`, and this job takes `{Self}` there",
    label = "this job takes `{Self}` from upstream {N}, which gives `{Given}`",
    note = "a `Step<T>` gives `T`; an `OptionalStep<T>` (made by `.optional()`, or by a branch of which only some \
            arms return a step) gives `Option<T>`",
    note = "for order without data, write `p.following(..)`"
)]
pub trait Is<Given, const N: usize> {}
impl<T, const N: usize> Is<T, N> for T {}

/// An input that an ignored step of `T` can give. `N` is its position.
#[diagnostic::on_unimplemented(
    message = "upstream {N} is an ignored step of `{T}`, and this job takes `{Self}` there",
    label = "this job takes `{Self}`; from an ignored step it must take `Option<{T}>` or `Result<{T}, Failure>`"
)]
pub trait FromIgnored<T, const N: usize> {
    #[doc(hidden)]
    const TAKES: Takes;
}

impl<T, const N: usize> FromIgnored<T, N> for Option<T> {
    const TAKES: Takes = Takes::Maybe;
}

impl<T, const N: usize> FromIgnored<T, N> for Result<T, Failure> {
    const TAKES: Takes = Takes::Outcome;
}

macro_rules! steps {
    ($([$($generics:tt)*] $handle:ty, $takes:expr;)*) => {
        $(impl<$($generics)*, const N: usize> Feeds<I, N> for $handle {
            fn links(&self, builder: &PipelineBuilder) -> Vec<Link> {
                vec![link(self, $takes, builder)]
            }

            fn shape(&self) -> Shape {
                Shape::One
            }
        })*
    };
}

steps! {
    [T, I: Is<T, N>] Step<T>, Takes::Value;
    [T, I: Is<T, N>] &Step<T>, Takes::Value;
    [T, I: Is<Option<T>, N>] OptionalStep<T>, Takes::Maybe;
    [T, I: Is<Option<T>, N>] &OptionalStep<T>, Takes::Maybe;
    [T, I: FromIgnored<T, N>] IgnoredStep<T>, <I as FromIgnored<T, N>>::TAKES;
    [T, I: FromIgnored<T, N>] &IgnoredStep<T>, <I as FromIgnored<T, N>>::TAKES;
}

macro_rules! lists {
    ($([$($generics:tt)*] $list:ty;)*) => {
        $(impl<$($generics)*, const N: usize> Feeds<I, N> for $list {
            fn links(&self, builder: &PipelineBuilder) -> Vec<Link> {
                let of = |one| link(one, Takes::Value, builder);
                self.iter().map(of).collect()
            }

            fn shape(&self) -> Shape {
                Shape::List(self.len() as u32)
            }
        })*
    };
}

lists! {
    [T, I: Is<Vec<T>, N>] &[Step<T>];
    [T, I: Is<Vec<T>, N>] Vec<Step<T>>;
    [T, I: Is<Vec<T>, N>] &Vec<Step<T>>;
    [T, I: Is<Vec<T>, N>, const LEN: usize] [Step<T>; LEN];
    [T, I: Is<Vec<T>, N>, const LEN: usize] &[Step<T>; LEN];
}

macro_rules! tuples {
    ($($upstream:ident $input:ident $at:tt $position:literal),*) => {
        impl<$($upstream, $input,)* const AT: usize> Feeds<($($input,)*), AT> for ($($upstream,)*)
        where
            $($upstream: Feeds<$input, $position>),*
        {
            fn links(&self, builder: &PipelineBuilder) -> Vec<Link> {
                let mut links = Vec::new();
                $(links.extend(Feeds::<$input, $position>::links(&self.$at, builder));)*
                links
            }

            fn shape(&self) -> Shape {
                Shape::Tuple(vec![$(Feeds::<$input, $position>::shape(&self.$at)),*])
            }
        }
    };
}

tuples!(A I 0 1);
tuples!(A I 0 1, B J 1 2);
tuples!(A I 0 1, B J 1 2, C K 2 3);
tuples!(A I 0 1, B J 1 2, C K 2 3, D L 3 4);
tuples!(A I 0 1, B J 1 2, C K 2 3, D L 3 4, E M 4 5);
tuples!(A I 0 1, B J 1 2, C K 2 3, D L 3 4, E M 4 5, F N 5 6);
tuples!(A I 0 1, B J 1 2, C K 2 3, D L 3 4, E M 4 5, F N 5 6, G O 6 7);
tuples!(A I 0 1, B J 1 2, C K 2 3, D L 3 4, E M 4 5, F N 5 6, G O 6 7, H P 7 8);
tuples!(A I 0 1, B J 1 2, C K 2 3, D L 3 4, E M 4 5, F N 5 6, G O 6 7, H P 7 8, Q R 8 9);
tuples!(A I 0 1, B J 1 2, C K 2 3, D L 3 4, E M 4 5, F N 5 6, G O 6 7, H P 7 8, Q R 8 9, S T 9 10);
tuples!(A I 0 1, B J 1 2, C K 2 3, D L 3 4, E M 4 5, F N 5 6, G O 6 7, H P 7 8, Q R 8 9, S T 9 10, U V 10 11);
tuples!(A I 0 1, B J 1 2, C K 2 3, D L 3 4, E M 4 5, F N 5 6, G O 6 7, H P 7 8, Q R 8 9, S T 9 10, U V 10 11, W X 11 12);
