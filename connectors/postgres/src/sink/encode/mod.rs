//! Values into the binary form of their column's type.
//!
//! A *cell* is what an array element is on the wire: a length of four bytes, or -1 for NULL, and the bytes. Cells of
//! one column put one after the other are an array parameter's body, so nothing is encoded twice.
//!
//! The column's type decides, never the value's. Widening is silent; whatever would not come back as it was is a
//! [`Problem`], which names the value's class and never the value.

mod decimal;
mod json;
mod numbers;
mod numeric;
mod temporal;
mod text;

use std::borrow::Cow;
use std::fmt;

use levada_core::Value;

use super::config::ColumnOptions;

pub(crate) use numeric::Precision;
#[cfg(feature = "lookup")]
pub(crate) use temporal::civil_from_days;

/// What is wrong with a value for its column. Holds no part of the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem(Cow<'static, str>);

impl Problem {
    fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(text.into())
    }

    fn mismatch(value: &Value, ty: &ColumnType) -> Self {
        Self::new(format!("a value of class {} cannot become {ty}", value.class()))
    }

    fn literal(ty: &ColumnType) -> Self {
        Self::new(format!("text is no valid literal of {ty}"))
    }

    fn out_of_range(class: &str, ty: &ColumnType) -> Self {
        Self::new(format!("{class} out of range for {ty}"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A column's type as far as encoding needs to know it; domains are resolved to what they are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric(Option<Precision>),
    Text,
    /// With the limit in characters.
    Varchar(Option<usize>),
    /// With the limit in characters.
    Char(Option<usize>),
    Bytea,
    Uuid,
    Date,
    /// With the number of fraction digits that the column keeps.
    Timestamp(u32),
    /// With the number of fraction digits that the column keeps.
    Timestamptz(u32),
    Json,
    Jsonb,
    /// Any other type: values travel as text and the server casts them.
    Cast {
        /// The type's name in SQL, quoted where needed, without a length, so that the server checks lengths when it
        /// assigns and does not cut when it casts.
        sql: String,
        /// Whether two values are equal exactly when their texts are.
        text_is_canonical: bool,
    },
}

/// Prints the type's name for messages.
impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnType::Numeric(Some(precision)) => write!(f, "numeric({precision})"),
            ColumnType::Varchar(Some(limit)) => write!(f, "varchar({limit})"),
            ColumnType::Char(Some(limit)) => write!(f, "char({limit})"),
            ColumnType::Timestamp(digits) if *digits < 6 => write!(f, "timestamp({digits})"),
            ColumnType::Timestamptz(digits) if *digits < 6 => write!(f, "timestamptz({digits})"),
            ColumnType::Cast { sql, .. } => f.write_str(sql),
            other => f.write_str(other.wire_name()),
        }
    }
}

impl ColumnType {
    /// Makes it of what the catalog says: the type's oid and modifier, and its quoted name.
    pub(crate) fn from_catalog(oid: u32, typmod: i32, sql: &str, is_enum: bool) -> Self {
        let length = || usize::try_from(typmod - 4).ok();
        let fraction_digits = || u32::try_from(typmod).map_or(6, |digits| digits.min(6));
        match oid {
            16 => ColumnType::Bool,
            21 => ColumnType::Int2,
            23 => ColumnType::Int4,
            20 => ColumnType::Int8,
            700 => ColumnType::Float4,
            701 => ColumnType::Float8,
            1700 => ColumnType::Numeric(Precision::from_typmod(typmod)),
            25 => ColumnType::Text,
            1043 => ColumnType::Varchar(length()),
            1042 => ColumnType::Char(length()),
            17 => ColumnType::Bytea,
            2950 => ColumnType::Uuid,
            1082 => ColumnType::Date,
            1114 => ColumnType::Timestamp(fraction_digits()),
            1184 => ColumnType::Timestamptz(fraction_digits()),
            114 => ColumnType::Json,
            3802 => ColumnType::Jsonb,
            _ => ColumnType::Cast { sql: sql.to_owned(), text_is_canonical: is_enum },
        }
    }

    /// Returns the name of the type in which cells travel.
    pub(crate) fn wire_name(&self) -> &'static str {
        match self {
            ColumnType::Bool => "bool",
            ColumnType::Int2 => "int2",
            ColumnType::Int4 => "int4",
            ColumnType::Int8 => "int8",
            ColumnType::Float4 => "float4",
            ColumnType::Float8 => "float8",
            ColumnType::Numeric(_) => "numeric",
            ColumnType::Text | ColumnType::Cast { .. } => "text",
            ColumnType::Varchar(_) => "varchar",
            ColumnType::Char(_) => "bpchar",
            ColumnType::Bytea => "bytea",
            ColumnType::Uuid => "uuid",
            ColumnType::Date => "date",
            ColumnType::Timestamp(_) => "timestamp",
            ColumnType::Timestamptz(_) => "timestamptz",
            ColumnType::Json => "json",
            ColumnType::Jsonb => "jsonb",
        }
    }

    /// Returns the oid of the type in which cells travel.
    pub(crate) fn wire_oid(&self) -> u32 {
        match self {
            ColumnType::Bool => 16,
            ColumnType::Int2 => 21,
            ColumnType::Int4 => 23,
            ColumnType::Int8 => 20,
            ColumnType::Float4 => 700,
            ColumnType::Float8 => 701,
            ColumnType::Numeric(_) => 1700,
            ColumnType::Text | ColumnType::Cast { .. } => 25,
            ColumnType::Varchar(_) => 1043,
            ColumnType::Char(_) => 1042,
            ColumnType::Bytea => 17,
            ColumnType::Uuid => 2950,
            ColumnType::Date => 1082,
            ColumnType::Timestamp(_) => 1114,
            ColumnType::Timestamptz(_) => 1184,
            ColumnType::Json => 114,
            ColumnType::Jsonb => 3802,
        }
    }

    /// Returns the cast that a cell needs beyond its own type.
    pub(crate) fn cast(&self) -> Option<&str> {
        match self {
            ColumnType::Cast { sql, .. } => Some(sql),
            _ => None,
        }
    }

    /// Tells whether equality of values can be told from their cells, which a key column needs.
    pub(crate) fn can_be_key(&self) -> bool {
        match self {
            ColumnType::Json | ColumnType::Jsonb => false,
            ColumnType::Cast { text_is_canonical, .. } => *text_is_canonical,
            _ => true,
        }
    }

    /// Tells whether a unit of counted time means something for the column.
    pub(crate) fn takes_unit(&self) -> bool {
        matches!(self, ColumnType::Date | ColumnType::Timestamp(_) | ColumnType::Timestamptz(_))
    }
}

/// The length that stands for NULL.
const NULL_LENGTH: i32 = -1;

/// Appends a NULL cell.
pub(crate) fn null(out: &mut Vec<u8>) {
    out.extend_from_slice(&NULL_LENGTH.to_be_bytes());
}

/// Appends `value` as a cell of a column of type `ty`. What was appended before an error is the caller's to drop.
pub(crate) fn cell(
    ty: &ColumnType,
    options: &ColumnOptions,
    value: &Value,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    if matches!(value, Value::Null) {
        null(out);
        return Ok(());
    }
    match ty {
        ColumnType::Bool => fixed(out, [u8::from(numbers::boolean(ty, value)?)]),
        ColumnType::Int2 => {
            let int = numbers::integer(ty, value)?;
            fixed(
                out,
                i16::try_from(int).map_err(|_| Problem::out_of_range(value.class(), ty))?.to_be_bytes(),
            );
        }
        ColumnType::Int4 => {
            let int = numbers::integer(ty, value)?;
            fixed(
                out,
                i32::try_from(int).map_err(|_| Problem::out_of_range(value.class(), ty))?.to_be_bytes(),
            );
        }
        ColumnType::Int8 => fixed(out, numbers::integer(ty, value)?.to_be_bytes()),
        ColumnType::Float4 => fixed(out, numbers::float4(ty, value)?.to_be_bytes()),
        ColumnType::Float8 => fixed(out, numbers::float8(ty, value)?.to_be_bytes()),
        ColumnType::Numeric(precision) => {
            return framed(out, |out| numeric::encode(ty, *precision, value, out));
        }
        ColumnType::Text | ColumnType::Cast { .. } => {
            return framed(out, |out| text::encode(ty, None, value, out));
        }
        ColumnType::Varchar(limit) => return framed(out, |out| text::encode(ty, *limit, value, out)),
        ColumnType::Char(limit) => return framed(out, |out| text::encode_padded(ty, *limit, value, out)),
        ColumnType::Bytea => return framed(out, |out| text::encode_bytes(ty, value, out)),
        ColumnType::Uuid => fixed(out, text::uuid(ty, value)?),
        ColumnType::Date => fixed(out, temporal::date(ty, options, value)?.to_be_bytes()),
        ColumnType::Timestamp(digits) => {
            fixed(out, temporal::timestamp(ty, *digits, options, value)?.to_be_bytes());
        }
        ColumnType::Timestamptz(digits) => {
            fixed(out, temporal::timestamptz(ty, *digits, options, value)?.to_be_bytes());
        }
        ColumnType::Json => return framed(out, |out| json::document(ty, options, value, out)),
        ColumnType::Jsonb => {
            return framed(out, |out| {
                out.push(1); // the version of the binary form
                json::document(ty, options, value, out)
            });
        }
    }
    Ok(())
}

/// Appends the canonical form of a key cell: equal bytes mean equal values for the column's type, and integers, times
/// and texts sort as the server's index does, so that neighbours in a statement are neighbours in the index.
///
/// No canonical form is a prefix of another one of the same column, so those of a composite key can stand side by
/// side.
pub(crate) fn canonical_key(ty: &ColumnType, cell: &[u8], out: &mut Vec<u8>) {
    let body = cell.get(4..).unwrap_or_default();
    match ty {
        ColumnType::Int2
        | ColumnType::Int4
        | ColumnType::Int8
        | ColumnType::Date
        | ColumnType::Timestamp(_)
        | ColumnType::Timestamptz(_) => {
            // Two's complement with the sign flipped sorts as unsigned bytes.
            out.extend_from_slice(body);
            let first = out.len() - body.len();
            if let Some(first) = out.get_mut(first) {
                *first ^= 0x80;
            }
        }
        ColumnType::Float4 | ColumnType::Float8 => numbers::canonical_float(body, out),
        ColumnType::Numeric(_) => numeric::canonical(body, out),
        ColumnType::Char(_) => {
            let end = body.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
            terminated(&body[..end], out);
        }
        ColumnType::Text
        | ColumnType::Varchar(_)
        | ColumnType::Cast { .. }
        | ColumnType::Json
        | ColumnType::Jsonb => terminated(body, out),
        ColumnType::Bytea => {
            out.extend_from_slice(&(body.len() as u32).to_be_bytes());
            out.extend_from_slice(body);
        }
        ColumnType::Bool | ColumnType::Uuid => out.extend_from_slice(body),
    }
}

// Text holds no zero byte, so one ends it and keeps the order.
fn terminated(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(text);
    out.push(0);
}

fn fixed<const N: usize>(out: &mut Vec<u8>, bytes: [u8; N]) {
    out.extend_from_slice(&(N as i32).to_be_bytes());
    out.extend_from_slice(&bytes);
}

fn framed(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>) -> Result<(), Problem>) -> Result<(), Problem> {
    let frame = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out)?;
    let length = out.len() - frame - 4;
    let length =
        i32::try_from(length).map_err(|_| Problem::new("a value larger than 1 GB cannot be stored"))?;
    out[frame..frame + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [LKP-08] a document ends where it ends: two keys that have one are two.
    #[test]
    fn documents_of_composite_keys_stay_apart() {
        let key = |document: &[u8], text: &[u8]| {
            let mut canonical = Vec::new();
            for (ty, body) in [(ColumnType::Jsonb, document), (ColumnType::Text, text)] {
                let cell = [&(body.len() as u32).to_be_bytes(), body].concat();
                canonical_key(&ty, &cell, &mut canonical);
            }
            canonical
        };
        assert_ne!(key(b"\x011", b"2"), key(b"\x0112", b""));
    }
}
