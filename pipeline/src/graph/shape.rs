//! The shape of a step's input and of a pipeline's output.

use serde::{Deserialize, Serialize};

/// The shape in which values make the input of a step, or the output of a pipeline.
///
/// The values are those of the edges that take a value, in their order. The edges alone do not tell `T` from `(T,)`, or
/// from a `Vec<T>` of one element.
///
/// | the input | its shape | as JSON |
/// |---|---|---|
/// | `T` | `One` | `"one"` |
/// | `Vec<T>`, of three | `List(3)` | `{"list":3}` |
/// | `Option<T>`, returned by a pipeline | `Maybe` | `"maybe"` |
/// | `(A, Vec<B>)`, of one and two | `Tuple([One, List(2)])` | `{"tuple":["one",{"list":2}]}` |
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// One value.
    One,
    /// One value that may be absent, in the output of a pipeline. In an input, the edge says so.
    Maybe,
    /// A list of this many values of one type.
    List(u32),
    /// A tuple of shapes.
    Tuple(Vec<Self>),
}

impl Shape {
    /// Returns the shape that follows from the number of values: none, one value, or a tuple.
    pub fn of(values: usize) -> Option<Self> {
        match values {
            0 => None,
            1 => Some(Self::One),
            more => Some(Self::Tuple(vec![Self::One; more])),
        }
    }

    /// Returns the number of values: one for each edge that takes a value.
    pub fn count(&self) -> usize {
        let values = |(_, shape): (usize, &Self)| match shape {
            Self::One | Self::Maybe => 1,
            Self::List(count) => *count as usize,
            Self::Tuple(_) => 0,
        };
        self.parts().map(values).fold(0, usize::saturating_add)
    }

    /// Iterates over the values, and returns for each whether it is always present.
    pub(crate) fn sure(&self) -> impl Iterator<Item = bool> {
        self.parts().flat_map(|(_, shape)| match shape {
            Self::One => std::iter::repeat_n(true, 1),
            Self::Maybe => std::iter::repeat_n(false, 1),
            Self::List(count) => std::iter::repeat_n(true, *count as usize),
            Self::Tuple(_) => std::iter::repeat_n(true, 0),
        })
    }

    /// Iterates over the shape and all shapes in it, each with the number of tuples around it. It does not recurse,
    /// because a shape that was read from JSON may be nested deep.
    pub(super) fn parts(&self) -> impl Iterator<Item = (usize, &Self)> {
        let mut waiting = vec![(0, self)];
        std::iter::from_fn(move || {
            let (depth, shape) = waiting.pop()?;
            if let Self::Tuple(inner) = shape {
                waiting.extend(inner.iter().rev().map(|inner| (depth + 1, inner)));
            }
            Some((depth, shape))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Shape::{List, Maybe, One, Tuple};
    use super::*;

    #[test]
    fn it_counts_its_values() {
        let nested = Tuple(vec![
            One,
            List(2),
            Tuple(vec![One, Tuple(vec![List(0), One])]),
        ]);
        let all = [One, Maybe, List(0), List(1), Tuple(vec![One]), nested];
        let counts = all.each_ref().map(Shape::count);
        assert_eq!(counts, [1, 1, 0, 1, 1, 5]);
        for shape in all {
            assert_eq!(shape.sure().count(), shape.count(), "{shape:?}");
        }
        let sure = Tuple(vec![Maybe, List(2)]);
        assert!(sure.sure().eq([false, true, true]));
        let endless = Tuple(vec![List(u32::MAX); 3]);
        assert_eq!(endless.count(), 3 * (u32::MAX as usize));
    }

    #[test]
    fn what_follows_from_a_number_holds_that_many() {
        assert_eq!(
            [0, 1, 2].map(Shape::of),
            [None, Some(One), Some(Tuple(vec![One, One]))]
        );
        for values in 1..20 {
            assert_eq!(Shape::of(values).map(|shape| shape.count()), Some(values));
        }
    }

    #[test]
    fn its_json_is_short_and_can_be_read() {
        let shapes = [
            (One, r#""one""#),
            (Maybe, r#""maybe""#),
            (List(3), r#"{"list":3}"#),
            (Tuple(vec![One, List(2)]), r#"{"tuple":["one",{"list":2}]}"#),
        ];
        for (shape, json) in shapes {
            assert_eq!(serde_json::to_string(&shape).unwrap_or_default(), json);
            assert_eq!(serde_json::from_str::<Shape>(json).ok(), Some(shape));
        }
        assert!(serde_json::from_str::<Shape>(r#"{"list":-1}"#).is_err());
        assert!(serde_json::from_str::<Shape>(r#"{"tuple":["two"]}"#).is_err());
    }
}
