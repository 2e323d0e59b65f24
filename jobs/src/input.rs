//! The input of a job: the values that it gets besides its own data.
//!
//! An extension assembles the input of the jobs that it owns from outputs of other jobs. An output may be absent, which
//! differs from `null`: a job that returned `()` or `None` has an output.

use std::fmt;

use serde::de::value::SeqDeserializer;
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::redact::{ABSENT, Redacted};

/// The input of a claimed job.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Input {
    /// The job has no input.
    #[default]
    None,
    /// The input is one JSON text.
    Json(String),
    /// The input is a value that an extension assembled.
    Value(InputValue),
    /// The input cannot be loaded: the job fails for good with this class and message.
    Refused(String, String),
}

/// A value of an assembled input.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputValue {
    /// The value is absent: `None`.
    Absent,
    /// A required value, as JSON.
    Value(String),
    /// An optional value that is present, as JSON: `Some`.
    Present(String),
    /// A tuple or a list of values.
    Many(Vec<InputValue>),
}

impl InputValue {
    /// Decodes the value.
    ///
    /// # Errors
    ///
    /// The error of the decoder, with the path of the part that does not decode.
    pub fn decode<T: DeserializeOwned>(
        &self,
    ) -> Result<T, serde_path_to_error::Error<serde_json::Error>> {
        serde_path_to_error::deserialize(self)
    }
}

impl fmt::Debug for Input {
    /// Omits the data, which must not appear in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Json(json) => f.debug_tuple("Json").field(&Redacted(json.len())).finish(),
            Self::Value(value) => f.debug_tuple("Value").field(value).finish(),
            Self::Refused(class, message) => {
                let mut refused = f.debug_tuple("Refused");
                refused.field(class).field(message).finish()
            }
        }
    }
}

impl fmt::Debug for InputValue {
    /// Omits the data, which must not appear in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("Absent"),
            Self::Value(json) => f.debug_tuple("Value").field(&Redacted(json.len())).finish(),
            Self::Present(json) => f
                .debug_tuple("Present")
                .field(&Redacted(json.len()))
                .finish(),
            Self::Many(elements) => f.debug_tuple("Many").field(elements).finish(),
        }
    }
}

impl<'de> IntoDeserializer<'de, serde_json::Error> for &'de InputValue {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! forward {
    ($($method:ident($($arg:ident: $ty:ty),*))*) => {
        $(fn $method<V: Visitor<'de>>(self, $($arg: $ty,)* visitor: V) -> Result<V::Value, Self::Error> {
            match self {
                InputValue::Absent => Err(Self::Error::custom(ABSENT)),
                InputValue::Value(json) | InputValue::Present(json) => {
                    serde_json::Deserializer::from_str(json).$method($($arg,)* visitor)
                }
                InputValue::Many(elements) => visitor.visit_seq(SeqDeserializer::new(elements.iter())),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for &'de InputValue {
    type Error = serde_json::Error;

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self {
            InputValue::Absent => visitor.visit_none(),
            InputValue::Value(json) => {
                serde_json::Deserializer::from_str(json).deserialize_option(visitor)
            }
            InputValue::Present(json) => {
                visitor.visit_some(&mut serde_json::Deserializer::from_str(json))
            }
            many @ InputValue::Many(_) => visitor.visit_some(many),
        }
    }

    /// Decodes an absent value as `null` for a type that takes any value.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self {
            InputValue::Absent => visitor.visit_none(),
            InputValue::Value(json) | InputValue::Present(json) => {
                serde_json::Deserializer::from_str(json).deserialize_any(visitor)
            }
            InputValue::Many(elements) => visitor.visit_seq(SeqDeserializer::new(elements.iter())),
        }
    }

    /// Passes an absent value on to the inner type, which may be an `Option`.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    forward! {
        deserialize_bool() deserialize_i8() deserialize_i16() deserialize_i32()
        deserialize_i64() deserialize_i128() deserialize_u8() deserialize_u16() deserialize_u32()
        deserialize_u64() deserialize_u128() deserialize_f32() deserialize_f64() deserialize_char()
        deserialize_str() deserialize_string() deserialize_bytes() deserialize_byte_buf()
        deserialize_unit() deserialize_unit_struct(name: &'static str) deserialize_seq()
        deserialize_tuple(len: usize) deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_map() deserialize_identifier() deserialize_ignored_any()
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(json: &str) -> InputValue {
        InputValue::Value(json.to_owned())
    }

    fn many(elements: impl IntoIterator<Item = InputValue>) -> InputValue {
        InputValue::Many(elements.into_iter().collect())
    }

    fn decoded<T: DeserializeOwned>(given: InputValue) -> Result<T, String> {
        given.decode().map_err(|error| error.to_string())
    }

    #[test]
    fn an_absent_value_is_none_and_a_null_is_not() {
        type Pair = (Option<()>, Option<Option<u8>>);
        let absent = many([InputValue::Absent, InputValue::Absent]);
        assert_eq!(decoded::<Pair>(absent), Ok((None, None)));
        let null = || InputValue::Present("null".to_owned());
        assert_eq!(
            decoded::<Pair>(many([null(), null()])),
            Ok((Some(()), Some(None)))
        );
        assert_eq!(
            decoded::<Option<Option<u8>>>(InputValue::Present("7".to_owned())),
            Ok(Some(Some(7)))
        );
    }

    #[test]
    fn an_option_that_is_sure_to_be_there_is_what_it_was() {
        assert_eq!(decoded::<Option<u8>>(value("null")), Ok(None));
        assert_eq!(decoded::<Option<u8>>(value("7")), Ok(Some(7)));
        let list = many([value("null"), value("7")]);
        assert_eq!(decoded::<Vec<Option<u8>>>(list), Ok(vec![None, Some(7)]));
    }

    #[test]
    fn what_takes_anything_takes_null_for_what_is_absent() {
        let given = many([
            InputValue::Absent,
            value("1"),
            InputValue::Present("2".to_owned()),
        ]);
        assert_eq!(
            decoded::<serde_json::Value>(given),
            Ok(serde_json::json!([null, 1, 2]))
        );
    }

    #[test]
    fn elements_are_of_any_shape() {
        #[derive(Debug, PartialEq, Deserialize)]
        enum Size {
            Small,
            Wide { by: u8 },
        }
        #[derive(Debug, PartialEq, Deserialize)]
        struct Meters(f64);

        type Input = (Size, Vec<Size>, (Meters, String), Result<u8, String>);
        let given = many([
            value(r#""Small""#),
            many([value(r#"{"Wide":{"by":3}}"#), value(r#""Small""#)]),
            many([value("1.5"), value(r#""a\"b""#)]),
            value(r#"{"Err":"no"}"#),
        ]);
        let wanted = (
            Size::Small,
            vec![Size::Wide { by: 3 }, Size::Small],
            (Meters(1.5), "a\"b".to_owned()),
            Err("no".to_owned()),
        );
        assert_eq!(decoded::<Input>(given), Ok(wanted));
        assert_eq!(decoded::<Vec<u8>>(many([])), Ok(vec![]));
        assert_eq!(decoded::<(u8,)>(many([value("7")])), Ok((7,)));
    }

    #[test]
    fn an_error_names_the_path() {
        #[derive(Debug, Deserialize)]
        struct Thumb {
            #[allow(dead_code, reason = "only decoded")]
            width: u32,
        }
        let given = many([value("1"), value(r#"{"width":"wide"}"#)]);
        let error = decoded::<(u8, Thumb)>(given).err().unwrap_or_default();
        assert!(error.contains("[1].width"), "{error}");
        let error = decoded::<(u8, u8)>(many([value("1"), InputValue::Absent]))
            .err()
            .unwrap_or_default();
        assert!(error.contains("the value is absent"), "{error}");
    }
}
