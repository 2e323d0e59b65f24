//! The output of a pipeline.

use super::handle::{Handle, IgnoredStep, OptionalStep, Step};
use crate::graph::spec::Shape;

/// The return type of the closure of [`Pipeline::configure`](super::Pipeline::configure): nothing, the handle of a step,
/// or a tuple of handles.
#[diagnostic::on_unimplemented(
    message = "a pipeline returns nothing, the handle of a step, or a tuple of handles; this returns `{Self}`",
    label = "end the closure with a handle, or with `;`"
)]
pub trait PipelineOutput {
    /// The type of a run's output.
    type Value;
    /// Returns the keys of the steps whose values make the output.
    #[doc(hidden)]
    fn keys(&self) -> Vec<String>;
    /// Returns the shape in which these values make the output.
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
        vec![self.builder().key(self.value_node())]
    }
}

impl<T> PipelineOutput for OptionalStep<T> {
    type Value = Option<T>;
    fn keys(&self) -> Vec<String> {
        vec![self.builder().key(self.value_node())]
    }
    fn shape() -> Shape {
        Shape::Maybe
    }
}

impl<T> PipelineOutput for IgnoredStep<T> {
    type Value = Option<T>;
    fn keys(&self) -> Vec<String> {
        vec![self.builder().key(self.value_node())]
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
