//! Dates and timestamps: proleptic Gregorian, whatever the session's time zone.
//!
//! A date is a day and never moves. An instant is an instant: for a `timestamptz` column a text must say which one,
//! by an offset or `Z`; in a `timestamp` column an instant is its reading in UTC.

use std::io::Write as _;

use levada_core::Value;

use super::decimal::Decimal;
use super::{ColumnType, Problem};
use crate::sink::config::{ColumnOptions, EpochUnit};

/// The server counts from 2000-01-01.
const EPOCH_DAYS: i64 = 10_957;
const MICROS_PER_DAY: i64 = 86_400_000_000;
const EPOCH_MICROS: i64 = EPOCH_DAYS * MICROS_PER_DAY;
/// 4714-11-24 BC, the first day that the server knows.
const FIRST_DAY: i64 = -2_440_588;
/// The day after 5874897-12-31.
const END_OF_DATES: i64 = 2_145_042_906;
/// The day after 294276-12-31. Counted in microseconds, it is within 64 bits from 2000 on, but not from 1970 on.
const END_OF_TIMESTAMPS: i64 = 106_762_940;
const FIRST_MICROS: i64 = (FIRST_DAY - EPOCH_DAYS) * MICROS_PER_DAY;
const END_OF_MICROS: i64 = (END_OF_TIMESTAMPS - EPOCH_DAYS) * MICROS_PER_DAY;

enum Parsed {
    Infinity,
    NegativeInfinity,
    At {
        days: i64,
        /// Micros of the day and the offset from UTC in seconds, where the literal has them.
        time: Option<i64>,
        offset: Option<i64>,
    },
}

pub(super) fn date(ty: &ColumnType, options: &ColumnOptions, value: &Value) -> Result<i32, Problem> {
    let days = match value {
        Value::Date(days) => i64::from(*days),
        Value::Text(text) => match parse(text.as_str()).ok_or_else(|| Problem::literal(ty))? {
            Parsed::Infinity => return Ok(i32::MAX),
            Parsed::NegativeInfinity => return Ok(i32::MIN),
            Parsed::At { days, time: None, .. } => days,
            Parsed::At { .. } => return Err(Problem::new("text with a time of day cannot become date")),
        },
        Value::Timestamp { micros, is_instant: false } => whole_days(*micros, value)?,
        Value::Int(_) | Value::Number(_) => whole_days(counted(ty, options, value)?, value)?,
        _ => return Err(Problem::mismatch(value, ty)),
    };
    if !(FIRST_DAY..END_OF_DATES).contains(&days) {
        return Err(Problem::out_of_range(value.class(), ty));
    }
    i32::try_from(days - EPOCH_DAYS).map_err(|_| Problem::out_of_range(value.class(), ty))
}

fn whole_days(micros: i64, value: &Value) -> Result<i64, Problem> {
    match micros.rem_euclid(MICROS_PER_DAY) {
        0 => Ok(micros.div_euclid(MICROS_PER_DAY)),
        _ => Err(Problem::new(format!("{} with a time of day cannot become date", value.class()))),
    }
}

pub(super) fn timestamp(
    ty: &ColumnType,
    digits: u32,
    options: &ColumnOptions,
    value: &Value,
) -> Result<i64, Problem> {
    let micros = match value {
        Value::Timestamp { micros, .. } => since_2000(*micros),
        Value::Date(days) => instant(i64::from(*days), 0, 0),
        Value::Text(text) => match parse(text.as_str()).ok_or_else(|| Problem::literal(ty))? {
            Parsed::Infinity => return Ok(i64::MAX),
            Parsed::NegativeInfinity => return Ok(i64::MIN),
            Parsed::At { days, time, offset } => instant(days, time.unwrap_or(0), offset.unwrap_or(0)),
        },
        Value::Int(_) | Value::Number(_) => since_2000(counted(ty, options, value)?),
        _ => return Err(Problem::mismatch(value, ty)),
    };
    stored(ty, digits, value, micros)
}

pub(super) fn timestamptz(
    ty: &ColumnType,
    digits: u32,
    options: &ColumnOptions,
    value: &Value,
) -> Result<i64, Problem> {
    let needs_zone = |class: &str| {
        Problem::new(format!(
            "{class} without an offset from UTC does not say which instant it means, as {ty} needs; the option \
             assume_utc takes it as UTC"
        ))
    };
    let micros = match value {
        Value::Timestamp { micros, is_instant } if *is_instant || options.assume_utc => since_2000(*micros),
        Value::Timestamp { .. } => return Err(needs_zone("timestamp")),
        Value::Date(days) if options.assume_utc => instant(i64::from(*days), 0, 0),
        Value::Date(_) => return Err(needs_zone("date")),
        Value::Text(text) => match parse(text.as_str()).ok_or_else(|| Problem::literal(ty))? {
            Parsed::Infinity => return Ok(i64::MAX),
            Parsed::NegativeInfinity => return Ok(i64::MIN),
            Parsed::At { offset: None, .. } if !options.assume_utc => return Err(needs_zone("text")),
            Parsed::At { days, time, offset } => instant(days, time.unwrap_or(0), offset.unwrap_or(0)),
        },
        Value::Int(_) | Value::Number(_) => since_2000(counted(ty, options, value)?),
        _ => return Err(Problem::mismatch(value, ty)),
    };
    stored(ty, digits, value, micros)
}

/// Returns microseconds since the server's epoch.
fn instant(days: i64, micros_of_day: i64, offset_seconds: i64) -> Option<i64> {
    let midnight = (days - EPOCH_DAYS).checked_mul(MICROS_PER_DAY)?;
    midnight.checked_add(micros_of_day)?.checked_sub(offset_seconds * 1_000_000)
}

fn since_2000(unix_micros: i64) -> Option<i64> {
    unix_micros.checked_sub(EPOCH_MICROS)
}

/// Checks what the column can keep. Microseconds count from the server's epoch; `None` is beyond any.
fn stored(ty: &ColumnType, digits: u32, value: &Value, micros: Option<i64>) -> Result<i64, Problem> {
    let micros = micros.filter(|micros| (FIRST_MICROS..END_OF_MICROS).contains(micros));
    let micros = micros.ok_or_else(|| Problem::out_of_range(value.class(), ty))?;
    if micros % 10_i64.pow(6_u32.saturating_sub(digits)) != 0 {
        return Err(Problem::new(format!("{} has more fraction digits than {ty} keeps", value.class())));
    }
    Ok(micros)
}

/// Reads a number as time since 1970, in the unit that the configuration gives the column. Like all digits beyond
/// microseconds, those of a finer unit or a fraction are cut, towards the past.
fn counted(ty: &ColumnType, options: &ColumnOptions, value: &Value) -> Result<i64, Problem> {
    let Some(unit) = options.unit else {
        return Err(Problem::new(format!(
            "{} does not say what it counts, as {ty} needs; the option unit does",
            value.class()
        )));
    };
    let shift = match unit {
        EpochUnit::Seconds => 6,
        EpochUnit::Millis => 3,
        EpochUnit::Micros => 0,
        EpochUnit::Nanos => -3,
    };
    let written;
    let text = match value {
        Value::Number(number) => number.as_bytes(),
        Value::Int(int) => {
            written = int.to_string();
            written.as_bytes()
        }
        _ => return Err(Problem::mismatch(value, ty)),
    };
    let decimal = Decimal::parse(text).ok_or_else(|| Problem::literal(ty))?;
    let (micros, _cut) =
        decimal.shifted(shift).floor().ok_or_else(|| Problem::out_of_range(value.class(), ty))?;
    Ok(micros)
}

/// Counts days from 1970-01-01 in the proleptic Gregorian calendar; year 0 is 1 BC.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // A year that starts in March has its leap day last.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

pub(crate) fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Reads ISO 8601 as the server writes it and as the usual formats do: `2024-02-29`, `2024-02-29T12:00:00.5+01:00`,
/// `0044-03-15 BC`, `infinity`.
fn parse(text: &str) -> Option<Parsed> {
    let trimmed = text.trim_ascii();
    if trimmed.eq_ignore_ascii_case("infinity") {
        return Some(Parsed::Infinity);
    }
    if trimmed.eq_ignore_ascii_case("-infinity") {
        return Some(Parsed::NegativeInfinity);
    }
    let (literal, is_before_christ) = match trimmed.strip_suffix(" BC") {
        Some(literal) => (literal, true),
        None => (trimmed, false),
    };
    let mut rest = literal.as_bytes();
    let shown_year = digits(&mut rest, 4..=7)?;
    literally(&mut rest, b'-')?;
    let month = digits(&mut rest, 2..=2)?;
    literally(&mut rest, b'-')?;
    let day = digits(&mut rest, 2..=2)?;
    if shown_year == 0 || !(1..=12).contains(&month) {
        return None;
    }
    let year = if is_before_christ { 1 - shown_year } else { shown_year };
    if !(1..=days_in_month(year, month)).contains(&day) {
        return None;
    }
    let days = days_from_civil(year, month, day);
    if rest.is_empty() {
        return Some(Parsed::At { days, time: None, offset: None });
    }
    let (separator, tail) = rest.split_first()?;
    if !matches!(separator, b'T' | b't' | b' ') {
        return None;
    }
    rest = tail;
    let time = time_of_day(&mut rest)?;
    let offset = zone(rest)?;
    Some(Parsed::At { days, time: Some(time), offset })
}

fn time_of_day(rest: &mut &[u8]) -> Option<i64> {
    let hour = digits(rest, 2..=2)?;
    literally(rest, b':')?;
    let minute = digits(rest, 2..=2)?;
    let mut second = 0;
    let mut micros = 0;
    if rest.first() == Some(&b':') {
        literally(rest, b':')?;
        second = digits(rest, 2..=2)?;
        if matches!(rest.first(), Some(b'.' | b',')) {
            *rest = &rest[1..];
            micros = fraction(rest)?;
        }
    }
    let is_whole_minute = second == 0 && micros == 0;
    let is_end_of_day = hour == 24 && minute == 0 && is_whole_minute;
    let is_leap_second = second == 60 && micros == 0;
    if (hour > 23 && !is_end_of_day) || minute > 59 || (second > 59 && !is_leap_second) {
        return None;
    }
    Some(((hour * 60 + minute) * 60 + second) * 1_000_000 + micros)
}

// Digits beyond microseconds are cut: the one documented loss.
fn fraction(rest: &mut &[u8]) -> Option<i64> {
    let end = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    let (shown, tail) = rest.split_at(end);
    if shown.is_empty() {
        return None;
    }
    *rest = tail;
    let mut micros = 0;
    for place in 0..6 {
        micros = micros * 10 + shown.get(place).map_or(0, |digit| i64::from(digit - b'0'));
    }
    Some(micros)
}

/// Reads what follows the time: nothing, `Z`, `+01`, `+0130`, `+01:30`, `+01:30:15`.
fn zone(text: &[u8]) -> Option<Option<i64>> {
    let text = text.strip_prefix(b" ").unwrap_or(text);
    let (sign, mut rest) = match text.split_first() {
        None => return Some(None),
        Some((b'Z' | b'z', [])) => return Some(Some(0)),
        Some((b'+', rest)) => (1, rest),
        Some((b'-', rest)) => (-1, rest),
        Some(_) => return None,
    };
    let hours = two_digits(&mut rest)?;
    let mut parts = [0, 0];
    for part in &mut parts {
        if rest.is_empty() {
            break;
        }
        rest = rest.strip_prefix(b":").unwrap_or(rest);
        *part = two_digits(&mut rest)?;
    }
    let [minutes, seconds] = parts;
    if !rest.is_empty() || hours > 15 || minutes > 59 || seconds > 59 {
        return None;
    }
    Some(Some(sign * ((hours * 60 + minutes) * 60 + seconds)))
}

fn literally(rest: &mut &[u8], byte: u8) -> Option<()> {
    let (first, tail) = rest.split_first()?;
    *rest = tail;
    (*first == byte).then_some(())
}

/// Takes two digits, whatever follows them.
fn two_digits(rest: &mut &[u8]) -> Option<i64> {
    let (shown, tail) = rest.split_first_chunk::<2>()?;
    *rest = tail;
    digits(&mut &shown[..], 2..=2)
}

/// Takes as many digits as there are, if that is one of `counts`.
fn digits(rest: &mut &[u8], counts: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let shown = rest.iter().take(counts.end() + 1).take_while(|byte| byte.is_ascii_digit()).count();
    if !counts.contains(&shown) {
        return None;
    }
    let (shown, tail) = rest.split_at(shown);
    *rest = tail;
    Some(shown.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
}

// Writing into a vector cannot fail, here and below.
pub(super) fn append_date(days: i64, out: &mut Vec<u8>) {
    let (year, month, day) = civil_from_days(days);
    let _ = match year > 0 {
        true => write!(out, "{year:04}-{month:02}-{day:02}"),
        false => write!(out, "{:04}-{month:02}-{day:02} BC", 1 - year),
    };
}

pub(super) fn append_time(micros: i64, out: &mut Vec<u8>) {
    let seconds = micros.div_euclid(1_000_000);
    let fraction = micros.rem_euclid(1_000_000);
    let _ = write!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if fraction != 0 {
        let _ = write!(out, ".{fraction:06}");
    }
}

pub(super) fn append_timestamp(micros: i64, is_instant: bool, out: &mut Vec<u8>) {
    let (year, month, day) = civil_from_days(micros.div_euclid(MICROS_PER_DAY));
    let shown_year = if year > 0 { year } else { 1 - year };
    let _ = write!(out, "{shown_year:04}-{month:02}-{day:02}T");
    append_time(micros.rem_euclid(MICROS_PER_DAY), out);
    if is_instant {
        out.push(b'Z');
    }
    if year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_the_servers() {
        assert_eq!(days_from_civil(-4713, 11, 24), FIRST_DAY);
        assert_eq!(days_from_civil(5_874_898, 1, 1), END_OF_DATES);
        assert_eq!(days_from_civil(294_277, 1, 1), END_OF_TIMESTAMPS);
        assert_eq!(days_from_civil(2000, 1, 1), EPOCH_DAYS);
    }

    #[test]
    fn calendar_goes_there_and_back() {
        for days in (-3_000_000..3_000_000).step_by(997) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
            assert!((1..=days_in_month(year, month)).contains(&day));
        }
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for text in [
            "",
            "2023-02-29",
            "2024-13-01",
            "2024-1-1",
            "0000-01-01",
            "24-01-01",
            "2024-01-01T",
            "2024-01-01T25:00",
            "2024-01-01T00:00:61",
            "2024-01-01T00:00:00+",
            "2024-01-01T00:00:00 Europe/Berlin",
            "now",
            "tomorrow",
        ] {
            assert!(parse(text).is_none(), "{text:?}");
        }
    }
}
