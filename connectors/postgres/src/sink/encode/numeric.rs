//! Exact numbers of any width: the server's base-10000 form, made from decimal text.

use std::fmt;

use levada_core::Value;

use super::decimal::Decimal;
use super::numbers::special;
use super::{ColumnType, Problem};

/// The limits of a `numeric(precision, scale)` column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Precision {
    /// Digits in all.
    pub(crate) digits: i64,
    /// Digits after the point; negative where the column keeps only tens, hundreds, …
    pub(crate) scale: i64,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.digits, self.scale)
    }
}

impl Precision {
    /// Reads the type modifier; `None` where the column has no limits.
    pub(crate) fn from_typmod(typmod: i32) -> Option<Self> {
        let packed = typmod.checked_sub(4).filter(|packed| *packed >= 0)?;
        // The scale has eleven bits, two's complement.
        let scale = ((packed & 0x7ff) ^ 0x400) - 0x400;
        Some(Self { digits: i64::from((packed >> 16) & 0xffff), scale: i64::from(scale) })
    }
}

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
const NOT_A_NUMBER: u16 = 0xc000;
const POSITIVE_INFINITY: u16 = 0xd000;
const NEGATIVE_INFINITY: u16 = 0xf000;
/// The server keeps the number of shown fraction digits in fourteen bits.
const MAX_DISPLAY_SCALE: i64 = 0x3fff;

pub(super) fn encode(
    ty: &ColumnType,
    precision: Option<Precision>,
    value: &Value,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    match value {
        Value::Number(number) => decimal(ty, precision, value, number.as_bytes(), out),
        Value::Int(int) => decimal(ty, precision, value, int.to_string().as_bytes(), out),
        // The shortest decimal that reads back as the same double.
        Value::Float(float) if float.is_finite() => {
            decimal(ty, precision, value, format!("{float:?}").as_bytes(), out)
        }
        Value::Float(float) => not_finite(ty, precision, *float, out),
        Value::Text(text) => match special(text.as_str()) {
            Some(float) => not_finite(ty, precision, float, out),
            None => decimal(ty, precision, value, text.as_str().trim_ascii().as_bytes(), out),
        },
        _ => Err(Problem::mismatch(value, ty)),
    }
}

fn not_finite(
    ty: &ColumnType,
    precision: Option<Precision>,
    float: f64,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    let sign = match (float.is_nan(), float > 0.0, precision) {
        (true, _, _) => NOT_A_NUMBER,
        (_, _, Some(_)) => return Err(Problem::out_of_range("infinity", ty)),
        (_, true, None) => POSITIVE_INFINITY,
        (_, false, None) => NEGATIVE_INFINITY,
    };
    header(out, 0, 0, sign, 0);
    Ok(())
}

fn header(out: &mut Vec<u8>, groups: i16, weight: i16, sign: u16, scale: u16) {
    out.extend_from_slice(&groups.to_be_bytes());
    out.extend_from_slice(&weight.to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&scale.to_be_bytes());
}

fn decimal(
    ty: &ColumnType,
    precision: Option<Precision>,
    value: &Value,
    text: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    let out_of_range = || Problem::out_of_range(value.class(), ty);
    let decimal = Decimal::parse(text).ok_or_else(|| Problem::literal(ty))?;
    let significant = decimal.significant();
    let shown = match precision {
        Some(limits) => limits.scale.max(0),
        // A zero has no digit that a larger scale would show.
        None if significant.is_none() => decimal.display_scale().min(MAX_DISPLAY_SCALE),
        None => decimal.display_scale(),
    };
    let shown = u16::try_from(shown).ok().filter(|shown| i64::from(*shown) <= MAX_DISPLAY_SCALE);
    let shown = shown.ok_or_else(out_of_range)?;
    let Some(significant) = significant else {
        header(out, 0, 0, POSITIVE, shown);
        return Ok(());
    };
    if let Some(limits) = precision {
        if significant.highest_power() >= limits.digits - limits.scale {
            return Err(out_of_range());
        }
        if significant.lowest_power() < -limits.scale {
            return Err(Problem::new(format!("{} has more fraction digits than {ty} keeps", value.class())));
        }
    }
    // Groups of four digits, aligned at the decimal point.
    let first_group = significant.highest_power().div_euclid(4);
    let last_group = significant.lowest_power().div_euclid(4);
    let weight = i16::try_from(first_group).map_err(|_| out_of_range())?;
    let groups = i16::try_from(first_group - last_group + 1).map_err(|_| out_of_range())?;
    let sign = if decimal.is_negative { NEGATIVE } else { POSITIVE };
    header(out, groups, weight, sign, shown);
    for group in (last_group..=first_group).rev() {
        let position_of_highest = significant.point - 1 - (group * 4 + 3);
        let mut digits: i16 = 0;
        for position in position_of_highest..position_of_highest + 4 {
            digits = digits * 10 + i16::from(decimal.digit(position));
        }
        out.extend_from_slice(&digits.to_be_bytes());
    }
    Ok(())
}

/// Drops what does not count for equality: how many fraction digits are shown. Our encoder writes no zero groups at
/// either end, so the rest is unique; the number of groups, which comes first, keeps the form free of prefixes.
pub(super) fn canonical(body: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(body);
    for byte in out[start..].iter_mut().skip(6).take(2) {
        *byte = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(precision: Option<Precision>, text: &str) -> Result<Vec<u8>, Problem> {
        let mut out = Vec::new();
        encode(&ColumnType::Numeric(precision), precision, &Value::Number(text.into()), &mut out)?;
        Ok(out)
    }

    #[test]
    fn type_modifier_holds_precision_and_scale() {
        assert_eq!(Precision::from_typmod(-1), None);
        assert_eq!(Precision::from_typmod(((10 << 16) | 2) + 4), Some(Precision { digits: 10, scale: 2 }));
        assert_eq!(
            Precision::from_typmod(((3 << 16) | (0x7ff & -2)) + 4),
            Some(Precision { digits: 3, scale: -2 })
        );
    }

    #[test]
    fn equal_numbers_have_one_canonical_form() {
        let canonical_of = |text: &str| {
            let mut out = Vec::new();
            canonical(&encoded(None, text).expect("a number"), &mut out);
            out
        };
        for (one, other) in
            [("1", "1.00"), ("1e3", "1000"), ("0", "-0.000"), ("120000", "1.2e5"), ("0.5", "5e-1")]
        {
            assert_eq!(canonical_of(one), canonical_of(other), "{one} = {other}");
        }
        assert_ne!(canonical_of("1"), canonical_of("10"));
        assert_ne!(canonical_of("1"), canonical_of("-1"));
    }

    /// [PGS-24] digits that the column does not keep are an error, zeros among them are not.
    #[test]
    fn digits_beyond_the_scale_are_an_error() {
        let limits = Some(Precision { digits: 5, scale: 2 });
        assert!(encoded(limits, "999.99").is_ok());
        assert!(encoded(limits, "1.2300000").is_ok());
        assert!(encoded(limits, "1.234").is_err());
        assert!(encoded(limits, "1000").is_err());
        assert!(encoded(limits, "0.000").is_ok());
        let hundreds = Some(Precision { digits: 3, scale: -2 });
        assert!(encoded(hundreds, "12300").is_ok());
        assert!(encoded(hundreds, "12340").is_err());
        assert!(encoded(None, "1e200000").is_err());
        assert!(encoded(None, "1e-20000").is_err());
    }
}
