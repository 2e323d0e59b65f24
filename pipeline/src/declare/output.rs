//! What a pipeline returns.

use super::handle::{Handle, Ignored, Maybe, Step};
use crate::graph::spec::Shape;

/// What the closure of [`Pipeline::configure`](super::Pipeline::configure) may return: nothing, a
/// handle, or a tuple of them.
#[diagnostic::on_unimplemented(
    message = "a pipeline returns nothing, the handle of a step, or a tuple of handles; this returns `{Self}`",
    label = "end the closure with a handle, or with `;`"
)]
pub trait PipelineOutput {
    /// The output of a run.
    type Value;
    #[doc(hidden)]
    fn keys(&self) -> Vec<String>;
    /// How these lie in the value.
    #[doc(hidden)]
    fn shape() -> Shape {
        Shape::One
    }
}

impl PipelineOutput for () {
    type Value = ();
    fn keys(&self) -> Vec<String> {
        Vec::new()
    }
    fn shape() -> Shape {
        Shape::Tuple(Vec::new())
    }
}

impl<T> PipelineOutput for Step<T> {
    type Value = T;
    fn keys(&self) -> Vec<String> {
        vec![self.key()]
    }
}

impl<T> PipelineOutput for Maybe<T> {
    type Value = Option<T>;
    fn keys(&self) -> Vec<String> {
        vec![self.key()]
    }
    fn shape() -> Shape {
        Shape::Maybe
    }
}

impl<T> PipelineOutput for Ignored<T> {
    type Value = Option<T>;
    fn keys(&self) -> Vec<String> {
        vec![self.key()]
    }
    fn shape() -> Shape {
        Shape::Maybe
    }
}

macro_rules! tuples {
    ($($name:ident $at:tt),*) => {
        impl<$($name: PipelineOutput),*> PipelineOutput for ($($name,)*) {
            type Value = ($($name::Value,)*);
            fn keys(&self) -> Vec<String> {
                let mut keys = Vec::new();
                $(keys.extend(self.$at.keys());)*
                keys
            }
            fn shape() -> Shape {
                Shape::Tuple(vec![$($name::shape()),*])
            }
        }
    };
}

tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);
