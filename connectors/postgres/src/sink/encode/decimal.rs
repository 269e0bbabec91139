//! A decimal literal, looked at without leaving its text.

/// The parts of `[+-] digits [. digits] [e [+-] digits]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decimal<'a> {
    pub(super) is_negative: bool,
    integer: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

/// Where the digits that matter stand; positions count through integer and fraction digits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Significant {
    /// The first digit that is not zero.
    pub(super) first: i64,
    /// The last digit that is not zero.
    pub(super) last: i64,
    /// The position before which the decimal point stands; may lie outside of the digits.
    pub(super) point: i64,
}

impl Significant {
    /// Returns the power of ten of the first digit.
    pub(super) fn highest_power(&self) -> i64 {
        self.point - 1 - self.first
    }

    /// Returns the power of ten of the last digit.
    pub(super) fn lowest_power(&self) -> i64 {
        self.point - 1 - self.last
    }
}

// Far beyond what any column holds, and far from overflowing the arithmetic on positions.
const EXPONENT_LIMIT: i64 = 1 << 40;

impl<'a> Decimal<'a> {
    /// Takes a literal apart; `None` if it is none.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let (is_negative, unsigned) = match text.split_first()? {
            (b'-', rest) => (true, rest),
            (b'+', rest) => (false, rest),
            _ => (false, text),
        };
        let (integer, rest) = split_digits(unsigned);
        let (fraction, rest) = match rest.split_first() {
            Some((b'.', rest)) => split_digits(rest),
            _ => (&rest[..0], rest),
        };
        if integer.is_empty() && fraction.is_empty() {
            return None;
        }
        let exponent = match rest.split_first() {
            None => 0,
            Some((b'e' | b'E', exponent)) => parse_exponent(exponent)?,
            Some(_) => return None,
        };
        Some(Self { is_negative, integer, fraction, exponent })
    }

    /// Shifts the decimal point to the right by `digits`.
    pub(super) fn shifted(mut self, digits: i64) -> Self {
        self.exponent += digits;
        self
    }

    /// Returns the number of fraction digits that the literal shows, zeros included.
    pub(super) fn display_scale(&self) -> i64 {
        (self.fraction.len() as i64 - self.exponent).max(0)
    }

    /// Finds the digits that matter; `None` when the number is zero.
    pub(super) fn significant(&self) -> Option<Significant> {
        let is_not_zero = |digit: &u8| *digit != b'0';
        let shown = self.integer.len();
        let first = self.integer.iter().position(is_not_zero);
        let first = first.or_else(|| self.fraction.iter().position(is_not_zero).map(|at| shown + at))?;
        let last = self.fraction.iter().rposition(is_not_zero).map(|at| shown + at);
        let last = last.or_else(|| self.integer.iter().rposition(is_not_zero))?;
        Some(Significant { first: first as i64, last: last as i64, point: shown as i64 + self.exponent })
    }

    /// Returns the digit at a position, zero outside of the literal.
    pub(super) fn digit(&self, position: i64) -> u8 {
        let Ok(position) = usize::try_from(position) else { return 0 };
        let digit = match position.checked_sub(self.integer.len()) {
            None => self.integer.get(position),
            Some(position) => self.fraction.get(position),
        };
        digit.map_or(0, |digit| digit - b'0')
    }

    /// Returns the integer part rounded down, and whether a fraction was left out; `None` outside of 64 bits.
    pub(super) fn floor(&self) -> Option<(i64, bool)> {
        let Some(significant) = self.significant() else { return Some((0, false)) };
        let has_fraction = significant.last >= significant.point;
        if significant.point - significant.first > 19 {
            return None;
        }
        let mut magnitude: i128 = 0;
        for position in significant.first..significant.point {
            magnitude = magnitude * 10 + i128::from(self.digit(position));
        }
        let floor = match self.is_negative {
            true => -magnitude - i128::from(has_fraction),
            false => magnitude,
        };
        Some((i64::try_from(floor).ok()?, has_fraction))
    }
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut exponent: i64 = 0;
    for digit in digits {
        exponent = (exponent * 10 + i64::from(digit - b'0')).min(EXPONENT_LIMIT);
    }
    Some(if is_negative { -exponent } else { exponent })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floor_goes_down_also_below_zero() {
        let floor = |text: &str| Decimal::parse(text.as_bytes()).expect("a literal").floor();
        assert_eq!(floor("1.0"), Some((1, false)));
        assert_eq!(floor("1e3"), Some((1000, false)));
        assert_eq!(floor("-1.5"), Some((-2, true)));
        assert_eq!(floor("0.001e3"), Some((1, false)));
        assert_eq!(floor("9223372036854775807"), Some((i64::MAX, false)));
        assert_eq!(floor("-9223372036854775808"), Some((i64::MIN, false)));
        assert_eq!(floor("9223372036854775808"), None);
        assert_eq!(floor("1e999999999999999999999"), None);
        assert_eq!(floor("0e999999999999999999999"), Some((0, false)));
        assert_eq!(floor("1e-999999999999999999999"), Some((0, true)));
    }

    #[test]
    fn what_is_no_literal_is_refused() {
        for text in ["", "-", ".", "1e", "1e+", "0x10", "1 ", "1_000", "Infinity", "1.2.3"] {
            assert!(Decimal::parse(text.as_bytes()).is_none(), "{text:?}");
        }
    }
}
