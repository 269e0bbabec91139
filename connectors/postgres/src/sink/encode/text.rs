//! Text of every kind, bytes and UUIDs.

use std::io::Write as _;

use levada_core::Value;

use super::{ColumnType, Problem, temporal};

pub(super) fn encode(
    ty: &ColumnType,
    limit: Option<usize>,
    value: &Value,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    let start = out.len();
    append(ty, value, out)?;
    match limit {
        Some(limit) => within(ty, limit, value, &out[start..]),
        None => Ok(()),
    }
}

/// Trailing spaces do not count in a padded column, so those beyond the limit are no loss.
pub(super) fn encode_padded(
    ty: &ColumnType,
    limit: Option<usize>,
    value: &Value,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    let start = out.len();
    append(ty, value, out)?;
    let Some(limit) = limit else { return Ok(()) };
    let end = out[start..].iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    within(ty, limit, value, &out[start..start + end])
}

fn within(ty: &ColumnType, limit: usize, value: &Value, text: &[u8]) -> Result<(), Problem> {
    // No character is shorter than a byte; only what could be too long is counted.
    if text.len() <= limit || characters(text) <= limit {
        return Ok(());
    }
    Err(Problem::new(format!("{} is too long for {ty}", value.class())))
}

fn characters(utf8: &[u8]) -> usize {
    utf8.iter().filter(|byte| (**byte as i8) >= -0x40).count()
}

/// Appends the text form of a scalar.
fn append(ty: &ColumnType, value: &Value, out: &mut Vec<u8>) -> Result<(), Problem> {
    match value {
        Value::Text(text) => {
            let bytes = text.as_bytes();
            if bytes.contains(&0) {
                return Err(Problem::new(format!("text with a NUL character cannot become {ty}")));
            }
            out.extend_from_slice(bytes);
        }
        Value::Number(number) => out.extend_from_slice(number.as_bytes()),
        Value::Bool(truth) => out.extend_from_slice(if *truth { b"true" } else { b"false" }),
        // Writing into a vector cannot fail.
        Value::Int(int) => drop(write!(out, "{int}")),
        Value::Float(float) => append_float(*float, out),
        Value::Uuid(uuid) => append_uuid(uuid, out),
        Value::Date(days) => temporal::append_date(i64::from(*days), out),
        Value::Time(micros) => temporal::append_time(*micros, out),
        Value::Timestamp { micros, is_instant } => temporal::append_timestamp(*micros, *is_instant, out),
        Value::List(_) | Value::Map(_) | Value::Row(_) => {
            return Err(Problem::new(format!(
                "a nested value ({}) cannot become {ty}; a jsonb column takes it",
                value.class()
            )));
        }
        _ => return Err(Problem::mismatch(value, ty)),
    }
    Ok(())
}

/// Appends the shortest decimal that reads back as the same double, or the server's word for what is not finite.
pub(super) fn append_float(float: f64, out: &mut Vec<u8>) {
    let _ = match (float.is_nan(), float.is_infinite(), float.fract() == 0.0 && float.abs() < 1e15) {
        (true, _, _) => write!(out, "NaN"),
        (_, true, _) => write!(out, "{}Infinity", if float < 0.0 { "-" } else { "" }),
        (_, _, true) => write!(out, "{float}"),
        _ => write!(out, "{float:?}"),
    };
}

pub(super) fn append_uuid(uuid: &[u8; 16], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for (number, byte) in uuid.iter().enumerate() {
        if matches!(number, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        out.push(HEX[usize::from(byte >> 4)]);
        out.push(HEX[usize::from(byte & 15)]);
    }
}

pub(super) fn encode_bytes(ty: &ColumnType, value: &Value, out: &mut Vec<u8>) -> Result<(), Problem> {
    match value {
        Value::Bytes(bytes) => out.extend_from_slice(bytes.as_bytes()),
        Value::Uuid(uuid) => out.extend_from_slice(uuid),
        Value::Text(text) => {
            let digits = text.as_bytes().strip_prefix(b"\\x").ok_or_else(|| Problem::literal(ty))?;
            if digits.len() % 2 != 0 {
                return Err(Problem::literal(ty));
            }
            for pair in digits.chunks_exact(2) {
                let byte = hex(pair[0]).zip(hex(pair[1])).map(|(high, low)| high << 4 | low);
                out.push(byte.ok_or_else(|| Problem::literal(ty))?);
            }
        }
        _ => return Err(Problem::mismatch(value, ty)),
    }
    Ok(())
}

fn hex(digit: u8) -> Option<u8> {
    // A hexadecimal digit's value is below 16.
    char::from(digit).to_digit(16).map(|value| value as u8)
}

pub(super) fn uuid(ty: &ColumnType, value: &Value) -> Result<[u8; 16], Problem> {
    match value {
        Value::Uuid(uuid) => Ok(*uuid),
        Value::Text(text) => uuid_literal(text.as_bytes()).ok_or_else(|| Problem::literal(ty)),
        Value::Bytes(bytes) => bytes.as_bytes().try_into().map_err(|_| Problem::mismatch(value, ty)),
        _ => Err(Problem::mismatch(value, ty)),
    }
}

// As the server reads it: braces around it or not, a hyphen after any group of four digits or none.
fn uuid_literal(text: &[u8]) -> Option<[u8; 16]> {
    let inner = match text {
        [b'{', inner @ .., b'}'] => inner,
        _ => text,
    };
    let mut uuid = [0; 16];
    let mut rest = inner;
    for (number, byte) in uuid.iter_mut().enumerate() {
        if number > 0 && number % 2 == 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        let (pair, tail) = rest.split_first_chunk::<2>()?;
        *byte = hex(pair[0])? << 4 | hex(pair[1])?;
        rest = tail;
    }
    rest.is_empty().then_some(uuid)
}
