//! What a job is given besides its own data, element by element.
//!
//! A step's input is put together from what stands before it. An element that is not there is absent,
//! which is not the same as `null`: a step that returned `()` or `None` gave something.

use std::fmt;

use serde::de::value::SeqDeserializer;
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::hidden::{ABSENT, Hidden};

/// What a claimed job is given.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Input {
    /// Nothing.
    #[default]
    None,
    /// One JSON text.
    Json(String),
    /// A value, or several, each by itself.
    Given(Given),
    /// It cannot be given: the job fails with this class and message, for good.
    Refused(String, String),
}

/// An element of an input.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Given {
    /// Not there: `None`.
    Absent,
    /// Sure to be there, as JSON.
    Value(String),
    /// There, as JSON, and might have been absent: `Some` of it.
    Present(String),
    /// A tuple or a list of elements.
    Many(Vec<Given>),
}

impl Given {
    /// Decodes it, with the path of what does not decode.
    #[doc(hidden)]
    pub fn decode<T: DeserializeOwned>(
        &self,
    ) -> Result<T, serde_path_to_error::Error<serde_json::Error>> {
        serde_path_to_error::deserialize(self)
    }
}

impl fmt::Debug for Input {
    /// Without the data: a log line is no place for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Json(json) => f.debug_tuple("Json").field(&Hidden(json.len())).finish(),
            Self::Given(given) => f.debug_tuple("Given").field(given).finish(),
            Self::Refused(class, message) => {
                let mut refused = f.debug_tuple("Refused");
                refused.field(class).field(message).finish()
            }
        }
    }
}

impl fmt::Debug for Given {
    /// Without the data: a log line is no place for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("Absent"),
            Self::Value(json) => f.debug_tuple("Value").field(&Hidden(json.len())).finish(),
            Self::Present(json) => f.debug_tuple("Present").field(&Hidden(json.len())).finish(),
            Self::Many(elements) => f.debug_tuple("Many").field(elements).finish(),
        }
    }
}

impl<'de> IntoDeserializer<'de, serde_json::Error> for &'de Given {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! as_it_is {
    ($($method:ident($($arg:ident: $ty:ty),*))*) => {
        $(fn $method<V: Visitor<'de>>(self, $($arg: $ty,)* visitor: V) -> Result<V::Value, Self::Error> {
            match self {
                Given::Absent => Err(Self::Error::custom(ABSENT)),
                Given::Value(json) | Given::Present(json) => {
                    serde_json::Deserializer::from_str(json).$method($($arg,)* visitor)
                }
                Given::Many(elements) => visitor.visit_seq(SeqDeserializer::new(elements.iter())),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for &'de Given {
    type Error = serde_json::Error;

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self {
            Given::Absent => visitor.visit_none(),
            Given::Value(json) => {
                serde_json::Deserializer::from_str(json).deserialize_option(visitor)
            }
            Given::Present(json) => {
                visitor.visit_some(&mut serde_json::Deserializer::from_str(json))
            }
            many @ Given::Many(_) => visitor.visit_some(many),
        }
    }

    /// What takes anything takes `null` for what is not there.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self {
            Given::Absent => visitor.visit_none(),
            Given::Value(json) | Given::Present(json) => {
                serde_json::Deserializer::from_str(json).deserialize_any(visitor)
            }
            Given::Many(elements) => visitor.visit_seq(SeqDeserializer::new(elements.iter())),
        }
    }

    /// Of such a struct around an `Option`, the inside may be absent.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    as_it_is! {
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

    fn value(json: &str) -> Given {
        Given::Value(json.to_owned())
    }

    fn many(elements: impl IntoIterator<Item = Given>) -> Given {
        Given::Many(elements.into_iter().collect())
    }

    fn decoded<T: DeserializeOwned>(given: Given) -> Result<T, String> {
        given.decode().map_err(|error| error.to_string())
    }

    #[test]
    fn an_absent_value_is_none_and_a_null_is_not() {
        type Pair = (Option<()>, Option<Option<u8>>);
        let absent = many([Given::Absent, Given::Absent]);
        assert_eq!(decoded::<Pair>(absent), Ok((None, None)));
        let null = || Given::Present("null".to_owned());
        assert_eq!(
            decoded::<Pair>(many([null(), null()])),
            Ok((Some(()), Some(None)))
        );
        assert_eq!(
            decoded::<Option<Option<u8>>>(Given::Present("7".to_owned())),
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
        let given = many([Given::Absent, value("1"), Given::Present("2".to_owned())]);
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
    fn an_error_names_the_place() {
        #[derive(Debug, Deserialize)]
        struct Thumb {
            #[allow(dead_code, reason = "only decoded")]
            width: u32,
        }
        let given = many([value("1"), value(r#"{"width":"wide"}"#)]);
        let error = decoded::<(u8, Thumb)>(given).err().unwrap_or_default();
        assert!(error.contains("[1].width"), "{error}");
        let error = decoded::<(u8, u8)>(many([value("1"), Given::Absent]))
            .err()
            .unwrap_or_default();
        assert!(error.contains("nothing is there"), "{error}");
    }
}
