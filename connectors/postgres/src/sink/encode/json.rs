//! Any value as a JSON document. Numbers keep the text they came in.

use std::io::Write as _;

use levada_core::Value;
use serde_json::value::RawValue;

use super::text::{append_float, append_uuid};
use super::{ColumnType, Problem, temporal};
use crate::sink::config::ColumnOptions;

/// Appends `value` as a document. A text *is* a document, as for the literal of any other type, unless the column's
/// option says that it is a string.
pub(super) fn document(
    ty: &ColumnType,
    options: &ColumnOptions,
    value: &Value,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    match value {
        Value::Text(text) if !options.text_is_json_string => {
            serde_json::from_str::<&RawValue>(text.as_str()).map_err(|_| {
                Problem::new(format!(
                    "text is no JSON document, as {ty} needs; the option text_is_json_string stores it as a string"
                ))
            })?;
            if holds_escaped_nul(text.as_bytes()) {
                return Err(nul(ty));
            }
            out.extend_from_slice(text.as_bytes());
            Ok(())
        }
        _ => append(ty, value, out),
    }
}

fn nul(ty: &ColumnType) -> Problem {
    Problem::new(format!("text with a NUL character cannot become {ty}"))
}

// `\u0000`, whose backslash is not itself escaped. Outside of strings JSON has no backslash.
fn holds_escaped_nul(document: &[u8]) -> bool {
    let mut rest = document;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        let escape = &rest[at + 1..];
        if escape.starts_with(b"u0000") {
            return true;
        }
        rest = escape.get(1..).unwrap_or_default();
    }
    false
}

fn append(ty: &ColumnType, value: &Value, out: &mut Vec<u8>) -> Result<(), Problem> {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(truth) => out.extend_from_slice(if *truth { b"true" } else { b"false" }),
        // Writing into a vector cannot fail.
        Value::Int(int) => drop(write!(out, "{int}")),
        Value::Number(number) => out.extend_from_slice(number.as_bytes()),
        Value::Float(float) if float.is_finite() => append_float(*float, out),
        Value::Float(_) => {
            return Err(Problem::new(format!("a float that is not finite cannot become {ty}")));
        }
        Value::Text(text) => string(ty, text.as_str(), out)?,
        Value::Date(days) => quoted(out, |out| temporal::append_date(i64::from(*days), out)),
        Value::Time(micros) => quoted(out, |out| temporal::append_time(*micros, out)),
        Value::Timestamp { micros, is_instant } => {
            quoted(out, |out| temporal::append_timestamp(*micros, *is_instant, out));
        }
        Value::Uuid(uuid) => quoted(out, |out| append_uuid(uuid, out)),
        Value::List(items) => {
            out.push(b'[');
            for (number, item) in items.iter().enumerate() {
                separator(number, out);
                append(ty, item, out)?;
            }
            out.push(b']');
        }
        Value::Map(pairs) => {
            out.push(b'{');
            for (number, (key, item)) in pairs.iter().enumerate() {
                separator(number, out);
                name(ty, key, out)?;
                out.push(b':');
                append(ty, item, out)?;
            }
            out.push(b'}');
        }
        Value::Row(row) => {
            out.push(b'{');
            for (number, (field, item)) in row.iter().enumerate() {
                separator(number, out);
                string(ty, field, out)?;
                out.push(b':');
                append(ty, item, out)?;
            }
            out.push(b'}');
        }
        _ => return Err(Problem::mismatch(value, ty)),
    }
    Ok(())
}

fn separator(number: usize, out: &mut Vec<u8>) {
    if number > 0 {
        out.push(b',');
    }
}

fn quoted(out: &mut Vec<u8>, inner: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    inner(out);
    out.push(b'"');
}

// An object's names are strings: a scalar key becomes its text.
fn name(ty: &ColumnType, key: &Value, out: &mut Vec<u8>) -> Result<(), Problem> {
    match key {
        Value::Text(text) => string(ty, text.as_str(), out),
        Value::Int(int) => string(ty, &int.to_string(), out),
        Value::Number(number) => string(ty, number.as_str(), out),
        Value::Bool(truth) => string(ty, if *truth { "true" } else { "false" }, out),
        Value::Uuid(_) | Value::Date(_) | Value::Time(_) | Value::Timestamp { .. } => append(ty, key, out),
        _ => Err(Problem::new(format!("a map with keys of class {} cannot become {ty}", key.class()))),
    }
}

fn string(ty: &ColumnType, text: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            0 => return Err(nul(ty)),
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            1..=0x1f => drop(write!(out, "\\u{byte:04x}")),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_nul_is_told_from_an_escaped_backslash() {
        assert!(holds_escaped_nul(br#""a\u0000""#));
        assert!(holds_escaped_nul(br#""a\\\u0000""#));
        assert!(!holds_escaped_nul(br#""a\\u0000""#));
        assert!(!holds_escaped_nul(br#""plain""#));
    }
}
