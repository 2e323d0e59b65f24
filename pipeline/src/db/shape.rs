//! Arranges JSON values in the shape that a type of the application expects.

use jobs::extension::InputValue;

use crate::graph::spec::Shape;

/// Arranges the elements in this shape, for the input of a step or the output of a run.
pub(crate) fn arrange(
    shape: &Shape,
    elements: &mut impl Iterator<Item = InputValue>,
) -> InputValue {
    match shape {
        Shape::One => elements.next().unwrap_or(InputValue::Absent),
        Shape::Maybe => match elements.next() {
            Some(InputValue::Value(json)) => InputValue::Present(json),
            other => other.unwrap_or(InputValue::Absent),
        },
        Shape::List(count) => InputValue::Many(elements.take(*count as usize).collect()),
        // serde represents `()` as null.
        Shape::Tuple(shapes) if shapes.is_empty() => InputValue::Value("null".to_owned()),
        Shape::Tuple(shapes) => InputValue::Many(
            shapes
                .iter()
                .map(|shape| arrange(shape, elements))
                .collect(),
        ),
    }
}
