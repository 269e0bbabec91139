//! Truth values, integers and binary floating-point numbers.

use levada_core::Value;

use super::decimal::Decimal;
use super::{ColumnType, Problem};

pub(super) fn boolean(ty: &ColumnType, value: &Value) -> Result<bool, Problem> {
    match value {
        Value::Bool(truth) => Ok(*truth),
        Value::Text(text) => boolean_literal(text.as_str().trim_ascii()).ok_or_else(|| Problem::literal(ty)),
        _ => Err(Problem::mismatch(value, ty)),
    }
}

// The server's own grammar: unique prefixes of these words, in any case.
fn boolean_literal(text: &str) -> Option<bool> {
    let is_prefix = |word: &str, least: usize| {
        text.len() >= least && word.get(..text.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(text))
    };
    if is_prefix("true", 1) || is_prefix("yes", 1) || is_prefix("on", 2) || text == "1" {
        return Some(true);
    }
    if is_prefix("false", 1) || is_prefix("no", 1) || is_prefix("off", 2) || text == "0" {
        return Some(false);
    }
    None
}

pub(super) fn integer(ty: &ColumnType, value: &Value) -> Result<i64, Problem> {
    match value {
        Value::Int(int) => Ok(*int),
        Value::Number(number) => whole_number(ty, value, number.as_bytes()),
        Value::Text(text) => integer_literal(ty, text.as_str()),
        Value::Float(float) => {
            let has_fraction = float.is_finite() && float.fract() != 0.0;
            // 2^63 is exact as a double, and the first one that does not fit.
            let fits = *float >= -9_223_372_036_854_775_808.0 && *float < 9_223_372_036_854_775_808.0;
            match (has_fraction, fits) {
                (true, _) => Err(fraction(value.class(), ty)),
                (false, true) => Ok(*float as i64),
                (false, false) => Err(Problem::out_of_range(value.class(), ty)),
            }
        }
        _ => Err(Problem::mismatch(value, ty)),
    }
}

fn whole_number(ty: &ColumnType, value: &Value, text: &[u8]) -> Result<i64, Problem> {
    if let Some(int) = plain_digits(text) {
        return Ok(int);
    }
    let decimal = Decimal::parse(text).ok_or_else(|| Problem::literal(ty))?;
    match decimal.floor() {
        Some((int, false)) => Ok(int),
        Some((_, true)) => Err(fraction(value.class(), ty)),
        None => Err(Problem::out_of_range(value.class(), ty)),
    }
}

// The common case at the price of one pass; up to 18 digits cannot overflow.
fn plain_digits(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut int: i64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        int = int * 10 + i64::from(digit - b'0');
    }
    Some(if is_negative { -int } else { int })
}

// As the server reads an integer: no point, no exponent.
fn integer_literal(ty: &ColumnType, text: &str) -> Result<i64, Problem> {
    let trimmed = text.trim_ascii();
    let digits = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Problem::literal(ty));
    }
    trimmed.parse().map_err(|_| Problem::out_of_range("text", ty))
}

fn fraction(class: &str, ty: &ColumnType) -> Problem {
    Problem::new(format!("{class} with a fraction cannot become {ty}"))
}

pub(super) fn float8(ty: &ColumnType, value: &Value) -> Result<f64, Problem> {
    match value {
        Value::Float(float) => Ok(*float),
        Value::Int(int) => Ok(*int as f64),
        Value::Number(number) => {
            parsed(ty, value, number.as_bytes(), |float: f64| (float.is_finite(), float == 0.0))
        }
        Value::Text(text) => match special(text.as_str()) {
            Some(float) => Ok(float),
            None => {
                let trimmed = text.as_str().trim_ascii().as_bytes();
                parsed(ty, value, trimmed, |float: f64| (float.is_finite(), float == 0.0))
            }
        },
        _ => Err(Problem::mismatch(value, ty)),
    }
}

pub(super) fn float4(ty: &ColumnType, value: &Value) -> Result<f32, Problem> {
    match value {
        Value::Float(float) => {
            let narrow = *float as f32;
            if (float.is_finite() && narrow.is_infinite()) || (*float != 0.0 && narrow == 0.0) {
                return Err(Problem::out_of_range(value.class(), ty));
            }
            Ok(narrow)
        }
        Value::Int(int) => Ok(*int as f32),
        // Parsed straight to 32 bits: by way of 64 it would be rounded twice.
        Value::Number(number) => {
            parsed(ty, value, number.as_bytes(), |float: f32| (float.is_finite(), float == 0.0))
        }
        Value::Text(text) => match special(text.as_str()) {
            Some(float) => Ok(float as f32),
            None => {
                let trimmed = text.as_str().trim_ascii().as_bytes();
                parsed(ty, value, trimmed, |float: f32| (float.is_finite(), float == 0.0))
            }
        },
        _ => Err(Problem::mismatch(value, ty)),
    }
}

// `judge` tells whether the result is finite and whether it is zero.
fn parsed<F: std::str::FromStr + Copy>(
    ty: &ColumnType,
    value: &Value,
    text: &[u8],
    judge: impl FnOnce(F) -> (bool, bool),
) -> Result<F, Problem> {
    let decimal = Decimal::parse(text).ok_or_else(|| Problem::literal(ty))?;
    let float: Option<F> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let float = float.ok_or_else(|| Problem::literal(ty))?;
    let (is_finite, is_zero) = judge(float);
    if !is_finite || (is_zero && decimal.significant().is_some()) {
        return Err(Problem::out_of_range(value.class(), ty));
    }
    Ok(float)
}

/// Reads the words for what is no finite number.
pub(super) fn special(text: &str) -> Option<f64> {
    let text = text.trim_ascii();
    let (sign, word) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    if word.eq_ignore_ascii_case("infinity") || word.eq_ignore_ascii_case("inf") {
        return Some(sign * f64::INFINITY);
    }
    text.eq_ignore_ascii_case("nan").then_some(f64::NAN)
}

/// Both zeros are one value for the server, and so are all NaNs.
pub(super) fn canonical_float(body: &[u8], out: &mut Vec<u8>) {
    let is_zero = body
        .split_first()
        .is_none_or(|(first, rest)| first & 0x7f == 0 && rest.iter().all(|byte| *byte == 0));
    let is_nan = match body.len() {
        4 => body.try_into().is_ok_and(|bytes| f32::from_be_bytes(bytes).is_nan()),
        _ => body.try_into().is_ok_and(|bytes| f64::from_be_bytes(bytes).is_nan()),
    };
    let start = out.len();
    match (is_zero, is_nan) {
        (true, _) => out.resize(start + body.len(), 0),
        (_, true) => out.resize(start + body.len(), 0xff),
        _ => out.extend_from_slice(body),
    }
    // Order as the server's: flip the sign of what is positive, every bit of what is negative.
    let is_negative = out.get(start).is_some_and(|first| first & 0x80 != 0) && !is_nan;
    for (number, byte) in out[start..].iter_mut().enumerate() {
        match (is_nan, is_negative, number) {
            (true, _, _) => {}
            (_, true, _) => *byte = !*byte,
            (_, false, 0) => *byte ^= 0x80,
            _ => {}
        }
    }
}
