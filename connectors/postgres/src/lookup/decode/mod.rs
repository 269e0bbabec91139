//! Columns of an answer, from the server's binary form into values.
//!
//! What comes back can be given to a sink's column of the same type and is the same value there. Types that are not
//! listed come as their text, which the statement asks the server for.

mod numeric;
mod temporal;

use levada_core::Value;
use levada_core::arena::{Slice, Text};
use tokio_postgres::types::{FromSql, Type};

/// The bytes of a column were not what its type says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A column's bytes as they came.
#[derive(Debug)]
pub(crate) struct Raw<'a>(pub(crate) &'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Tells whether a type's binary form is read here; others are asked for as text.
pub(crate) fn reads(oid: u32) -> bool {
    matches!(
        oid,
        16 | 17
            | 19
            | 20
            | 21
            | 23
            | 25
            | 26
            | 114
            | 700
            | 701
            | 1042
            | 1043
            | 1082
            | 1083
            | 1114
            | 1184
            | 1700
            | 2950
            | 3802
    )
}

/// Reads a value of the type `oid`; `None` is NULL.
pub(crate) fn value(oid: u32, bytes: Option<&[u8]>) -> Result<Value, Malformed> {
    let Some(bytes) = bytes else { return Ok(Value::Null) };
    Ok(match oid {
        16 => Value::Bool(array::<1>(bytes)?[0] != 0),
        17 => Value::Bytes(Slice::owned(bytes)),
        21 => Value::Int(i16::from_be_bytes(array(bytes)?).into()),
        23 => Value::Int(i32::from_be_bytes(array(bytes)?).into()),
        20 => Value::Int(i64::from_be_bytes(array(bytes)?)),
        26 => Value::Int(u32::from_be_bytes(array(bytes)?).into()),
        700 => Value::Float(single(f32::from_be_bytes(array(bytes)?))),
        701 => Value::Float(f64::from_be_bytes(array(bytes)?)),
        1700 => numeric::decode(bytes)?,
        1082 => temporal::date(i32::from_be_bytes(array(bytes)?)),
        1083 => Value::Time(i64::from_be_bytes(array(bytes)?)),
        1114 => temporal::timestamp(i64::from_be_bytes(array(bytes)?), false),
        1184 => temporal::timestamp(i64::from_be_bytes(array(bytes)?), true),
        2950 => Value::Uuid(array(bytes)?),
        // The first byte is the version of the binary form.
        3802 => match bytes.split_first() {
            Some((1, document)) => text(document)?,
            _ => return Err(Malformed),
        },
        19 | 25 | 114 | 1042 | 1043 => text(bytes)?,
        _ => return Err(Malformed),
    })
}

/// Widens by the shortest decimal, so that `0.1::real` is 0.1 and not 0.10000000149011612.
fn single(float: f32) -> f64 {
    float.to_string().parse().unwrap_or_else(|_| f64::from(float))
}

fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Malformed> {
    bytes.try_into().map_err(|_| Malformed)
}

fn text(bytes: &[u8]) -> Result<Value, Malformed> {
    Text::new(Slice::owned(bytes)).map(Value::Text).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sink::ColumnOptions;
    use crate::sink::encode::{ColumnType, cell};

    fn column(oid: u32) -> ColumnType {
        ColumnType::from_catalog(oid, -1, "text", false)
    }

    /// Encodes as the sink does and reads it back.
    fn there_and_back(oid: u32, value: &Value) -> Value {
        let mut out = Vec::new();
        cell(&column(oid), &ColumnOptions::default(), value, &mut out).expect("a cell");
        super::value(oid, Some(&out[4..])).expect("a value")
    }

    proptest! {
        /// [LKP-08] whatever bytes come: a value or an error, never a panic.
        #[test]
        fn any_bytes_are_a_value_or_an_error(
            oid in prop::sample::select(vec![16_u32, 17, 18, 19, 20, 21, 23, 25, 26, 114, 700, 701, 1042, 1043, 1082, 1083, 1114, 1184, 1700, 2950, 3802, 9999]),
            bytes in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let _ = value(oid, Some(&bytes));
        }

        /// [LKP-08] numeric is exact, with all the digits that the server shows.
        #[test]
        fn numeric_comes_back_as_it_was(text in "-?[1-9][0-9]{0,40}(\\.[0-9]{1,30})?|-?0\\.[0-9]{0,20}[1-9]") {
            prop_assert_eq!(there_and_back(1700, &Value::Number(text.as_str().into())), Value::Number(text.as_str().into()));
        }

        /// [LKP-08]
        #[test]
        fn times_come_back_as_they_were(micros in -60_000_000_000_000_000_i64..9_000_000_000_000_000_000, days in -2_000_000_i32..2_000_000) {
            let instant = Value::Timestamp { micros, is_instant: true };
            prop_assert_eq!(there_and_back(1184, &instant), instant);
            prop_assert_eq!(there_and_back(1082, &Value::Date(days)), Value::Date(days));
        }
    }

    /// [LKP-08] what has no number or no day comes as the literal that a sink's column takes.
    #[test]
    fn values_without_a_number_come_as_their_literals() {
        for (oid, literal) in [
            (1700, "NaN"),
            (1700, "Infinity"),
            (1700, "-Infinity"),
            (1082, "infinity"),
            (1114, "-infinity"),
            (1114, "294276-12-31T23:59:59.999999"),
            (1184, "294276-12-31T23:59:59.999999Z"),
        ] {
            let value = Value::Text(literal.into());
            assert_eq!(there_and_back(oid, &value), value, "{literal}");
        }
    }

    /// [LKP-08]
    #[test]
    fn single_precision_reads_as_it_is_written() {
        assert_eq!(value(700, Some(&0.1_f32.to_be_bytes())), Ok(Value::Float(0.1)));
    }
}
