//! Arranges JSON values in the shape that a type of the application expects.

use jobs::seams::Given;

use crate::graph::spec::Shape;

/// Arranges the elements in this shape, for the input of a step or the output of a run.
pub(crate) fn arrange(shape: &Shape, elements: &mut impl Iterator<Item = Given>) -> Given {
    match shape {
        Shape::One => elements.next().unwrap_or(Given::Absent),
        Shape::Maybe => match elements.next() {
            Some(Given::Value(json)) => Given::Present(json),
            other => other.unwrap_or(Given::Absent),
        },
        Shape::List(count) => Given::Many(elements.take(*count as usize).collect()),
        // serde represents `()` as null.
        Shape::Tuple(shapes) if shapes.is_empty() => Given::Value("null".to_owned()),
        Shape::Tuple(shapes) => Given::Many(
            shapes
                .iter()
                .map(|shape| arrange(shape, elements))
                .collect(),
        ),
    }
}
