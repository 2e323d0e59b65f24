//! Encoding as JSON that refuses floats which JSON cannot hold.
//!
//! serde_json writes NaN and infinite floats as `null`, and the job that reads them fails. Here the value that holds
//! one is refused when it is encoded, so that the error names the job that made it. The floats are checked by a
//! wrapper around the serializer while the value is encoded: there is no second pass, except to find the path of a
//! float that was refused.

use std::fmt;
use std::io;

use serde::ser::{
    Error as _, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use serde_json::value::RawValue;

use crate::redact;

/// Encodes a value as JSON.
///
/// # Errors
///
/// [`EncodeError`], if the value has no JSON or holds a float that is NaN or infinite.
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> Result<String, EncodeError> {
    serde_json::to_string(&Finite(value)).map_err(|error| EncodeError::of(value, &error))
}

/// Encodes a value as JSON that can be passed on without being read.
pub(crate) fn to_raw_value<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, EncodeError> {
    serde_json::value::to_raw_value(&Finite(value)).map_err(|error| EncodeError::of(value, &error))
}

/// Why a value cannot be encoded as JSON. It shows no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodeError(String);

impl EncodeError {
    fn of<T: Serialize + ?Sized>(value: &T, error: &serde_json::Error) -> Self {
        let reason = error.to_string();
        if reason != NON_FINITE {
            return Self(reason);
        }
        let mut sink = serde_json::Serializer::new(io::sink());
        let path = serde_path_to_error::serialize(&Finite(value), &mut sink)
            .err()
            .map(|error| redact::path(&error))
            .filter(|path| !path.is_empty() && path != ".");
        Self(match path {
            Some(path) => format!("{NON_FINITE} at `{path}`"),
            None => reason,
        })
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const NON_FINITE: &str = "a float is NaN or infinite, which JSON cannot hold";

/// A value whose floats must be finite when it is serialized.
struct Finite<'a, T: ?Sized>(&'a T);

impl<T: Serialize + ?Sized> Serialize for Finite<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(FiniteSerializer(serializer))
    }
}

/// A serializer, or what it returns for a compound value, that refuses floats which are not finite.
struct FiniteSerializer<S>(S);

macro_rules! pass_on {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        $(fn $name(self, $($arg: $type),*) -> Result<S::Ok, S::Error> {
            self.0.$name($($arg),*)
        })*
    };
}

impl<S: Serializer> Serializer for FiniteSerializer<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = FiniteSerializer<S::SerializeSeq>;
    type SerializeTuple = FiniteSerializer<S::SerializeTuple>;
    type SerializeTupleStruct = FiniteSerializer<S::SerializeTupleStruct>;
    type SerializeTupleVariant = FiniteSerializer<S::SerializeTupleVariant>;
    type SerializeMap = FiniteSerializer<S::SerializeMap>;
    type SerializeStruct = FiniteSerializer<S::SerializeStruct>;
    type SerializeStructVariant = FiniteSerializer<S::SerializeStructVariant>;

    fn serialize_f32(self, value: f32) -> Result<S::Ok, S::Error> {
        if !value.is_finite() {
            return Err(S::Error::custom(NON_FINITE));
        }
        self.0.serialize_f32(value)
    }

    fn serialize_f64(self, value: f64) -> Result<S::Ok, S::Error> {
        if !value.is_finite() {
            return Err(S::Error::custom(NON_FINITE));
        }
        self.0.serialize_f64(value)
    }

    pass_on! {
        serialize_bool(value: bool);
        serialize_i8(value: i8);
        serialize_i16(value: i16);
        serialize_i32(value: i32);
        serialize_i64(value: i64);
        serialize_i128(value: i128);
        serialize_u8(value: u8);
        serialize_u16(value: u16);
        serialize_u32(value: u32);
        serialize_u64(value: u64);
        serialize_u128(value: u128);
        serialize_char(value: char);
        serialize_str(value: &str);
        serialize_bytes(value: &[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(name: &'static str);
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str);
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.serialize_some(&Finite(value))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_newtype_struct(name, &Finite(value))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let value = Finite(value);
        self.0
            .serialize_newtype_variant(name, index, variant, &value)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        self.0.serialize_seq(len).map(FiniteSerializer)
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        self.0.serialize_tuple(len).map(FiniteSerializer)
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        self.0
            .serialize_tuple_struct(name, len)
            .map(FiniteSerializer)
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        self.0
            .serialize_tuple_variant(name, index, variant, len)
            .map(FiniteSerializer)
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        self.0.serialize_map(len).map(FiniteSerializer)
    }

    fn serialize_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        self.0.serialize_struct(name, len).map(FiniteSerializer)
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        self.0
            .serialize_struct_variant(name, index, variant, len)
            .map(FiniteSerializer)
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! elements {
    ($($compound:ident $element:ident;)*) => {
        $(impl<S: $compound> $compound for FiniteSerializer<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn $element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
                self.0.$element(&Finite(value))
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.0.end()
            }
        })*
    };
}

elements! {
    SerializeSeq serialize_element;
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
    SerializeTupleVariant serialize_field;
}

macro_rules! fields {
    ($($compound:ident;)*) => {
        $(impl<S: $compound> $compound for FiniteSerializer<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), S::Error> {
                self.0.serialize_field(key, &Finite(value))
            }

            fn skip_field(&mut self, key: &'static str) -> Result<(), S::Error> {
                self.0.skip_field(key)
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.0.end()
            }
        })*
    };
}

fields! {
    SerializeStruct;
    SerializeStructVariant;
}

impl<S: SerializeMap> SerializeMap for FiniteSerializer<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    // Keys are passed on as they are: serde_json refuses keys that are not finite itself.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        self.0.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.0.serialize_value(&Finite(value))
    }

    fn serialize_entry<K: Serialize + ?Sized, V: Serialize + ?Sized>(
        &mut self,
        key: &K,
        value: &V,
    ) -> Result<(), S::Error> {
        self.0.serialize_entry(key, &Finite(value))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serialize;

    use super::*;

    #[derive(serde::Serialize)]
    struct Point {
        x: f64,
        y: Option<f32>,
    }

    #[derive(serde::Serialize)]
    struct Newtype(f64);

    #[derive(serde::Serialize)]
    struct Pair(i64, f64);

    #[derive(serde::Serialize)]
    struct Unit;

    #[derive(serde::Serialize)]
    enum Measure {
        None,
        One(f64),
        Two(i64, f64),
        Named { value: f64 },
    }

    fn refused<T: Serialize>(value: &T) -> String {
        to_string(value).map_or_else(
            |error| error.to_string(),
            |json| format!("encoded as {json}"),
        )
    }

    #[test]
    fn a_float_that_is_not_finite_is_refused_with_its_path() {
        let points = |x, y| {
            let finite = Point { x: 1.0, y: None };
            BTreeMap::from([("points", vec![finite, Point { x, y }])])
        };
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(
                refused(&points(number, None)),
                format!("{NON_FINITE} at `points[1].x`")
            );
        }
        assert_eq!(
            refused(&points(1.0, Some(f32::NAN))),
            format!("{NON_FINITE} at `points[1].y`")
        );
        assert_eq!(refused(&f64::NAN), NON_FINITE);
    }

    #[test]
    fn a_float_is_found_in_every_form_of_value() {
        let nan = f64::NAN;
        for text in [
            refused(&Some(nan)),
            refused(&[1.0, nan]),
            refused(&(1, nan)),
            refused(&Newtype(nan)),
            refused(&Pair(1, nan)),
            refused(&Measure::One(nan)),
            refused(&Measure::Two(1, nan)),
            refused(&Measure::Named { value: nan }),
            refused(&BTreeMap::from([("a", nan)])),
            refused(&Box::new(vec![Some((nan,))])),
        ] {
            assert!(text.starts_with(NON_FINITE), "{text}");
        }
    }

    #[test]
    fn everything_else_is_encoded_as_by_serde_json() -> Result<(), Box<dyn std::error::Error>> {
        fn same<T: Serialize>(value: &T) -> Result<(), Box<dyn std::error::Error>> {
            let json = serde_json::to_string(value)?;
            assert_eq!(to_string(value).map_err(|error| error.to_string())?, json);
            let raw = to_raw_value(value).map_err(|error| error.to_string())?;
            assert_eq!(raw.get(), json);
            Ok(())
        }
        same(&(
            1_u8,
            -1_i128,
            'a',
            "text\0",
            true,
            1.5_f32,
            f64::MIN_POSITIVE,
        ))?;
        same(&(None::<i64>, Some(1), (), Unit, Newtype(0.0), Pair(1, 2.0)))?;
        same(&[Measure::None, Measure::One(1.0), Measure::Two(1, 2.0)])?;
        same(&Measure::Named { value: 1.0 })?;
        same(&BTreeMap::from([(
            1,
            Point {
                x: 1.0,
                y: Some(2.0),
            },
        )]))?;
        same(&serde_json::json!({"a": [null, 1, 2.5, {"b": "c"}]}))?;
        same(&RawValue::from_string(
            "{\"raw\": [1e400, null]}".to_owned(),
        )?)?;
        same(&u128::MAX)?;
        same(&std::net::Ipv4Addr::LOCALHOST)?;
        Ok(())
    }

    #[test]
    fn a_value_without_json_says_why() {
        let keyed_by_list = BTreeMap::from([(vec![1], 1)]);
        assert_eq!(refused(&keyed_by_list), "key must be a string");
    }
}
