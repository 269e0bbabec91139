//! Which changes keep their order in a step.

use levada_core::{Keyed, Row, Value};

/// What the order of a change goes by: equal for changes of one row of the table, by whatever type its key's columns compare.
///
/// The bytes of the record's key would not do: `{"id":1}` and `{"id":1.0,"from":"b"}` are one row. So this is coarser than columns
/// are. Changes of two rows that seem to be one wait for each other, and that is all. Finer it is where a column rounds (two numbers
/// that one `real` holds, two counts of nanoseconds in one microsecond) or its collation takes more than case for equal.
pub(super) fn of_key(input: &Keyed) -> Option<Vec<String>> {
    input.key.as_ref().map(parts)
}

/// Of a UUID, in its text.
const UUID_DIGITS: usize = 32;

fn parts(key: &Row) -> Vec<String> {
    key.iter().map(|(_, value)| part(value)).collect()
}

fn part(value: &Value) -> String {
    match value {
        Value::Bool(is_true) => number(f64::from(u8::from(*is_true))),
        Value::Int(integer) => number(*integer as f64),
        Value::Float(float) => number(*float),
        Value::Number(digits) => digits.as_str().parse().map_or_else(|_| String::new(), number),
        Value::Text(text) => word(text.as_str()),
        Value::Uuid(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        // Times, networks, bytes and nested values have many spellings.
        _ => String::new(),
    }
}

fn word(text: &str) -> String {
    let lower = text.trim().to_lowercase();
    // Without the dashes of a UUID, or the blanks at the end of a char.
    let letters: String = lower.chars().filter(|letter| letter.is_alphanumeric()).collect();
    let is_uuid = letters.len() == UUID_DIGITS && letters.bytes().all(|letter| letter.is_ascii_hexdigit());
    match (lower.parse(), lower.as_str()) {
        _ if is_uuid => letters,
        (Ok(parsed), _) => number(parsed),
        // Whatever begins like one is a truth value for the server.
        (_, "t" | "tr" | "tru" | "true" | "y" | "ye" | "yes" | "on") => number(1.0),
        (_, "f" | "fa" | "fal" | "fals" | "false" | "n" | "no" | "of" | "off") => number(0.0),
        (_, spelled) if spelled.contains([':', '/', '\\']) || is_date(spelled) => String::new(),
        _ => letters,
    }
}

/// Begins with a year.
fn is_date(text: &str) -> bool {
    let year = text.bytes().take_while(u8::is_ascii_digit).count();
    (4..=7).contains(&year) && text.as_bytes().get(year) == Some(&b'-')
}

/// Two zeros are one, and so are two integers that no float tells apart.
fn number(number: f64) -> String {
    format!("{:?}", number + 0.0)
}

#[cfg(test)]
mod tests {
    use levada_core::{Change, Shape};

    use super::*;

    fn keyed(value: Value) -> Option<Vec<String>> {
        of_key(&Keyed { key: Some(Row::new(Shape::new(["id"]), vec![value])), change: Change::Delete })
    }

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    /// [ASY-16] [PGS-10] keys that some column takes for equal keep their order.
    #[test]
    fn keys_of_one_row_keep_their_order() {
        let same = [
            (Value::Number("1".into()), Value::Number("1.0".into())),
            (Value::Number("100".into()), text("1e2")),
            (Value::Int(42), text("042")),
            (Value::Float(0.0), Value::Number("-0".into())),
            (text("AA"), text("aa  ")),
            (text("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"), text("{a0eebc999c0b4ef8bb6d6bb9bd380a11}")),
            (text("12345678-9012-3456-7890-123456789012"), text("12345678901234567890123456789012")),
            (Value::Bool(true), text("yes")),
            (text("2013-01-01T00:00:00Z"), text("2013-01-01T01:00:00+01:00")),
            (text("2024-02-29"), text("2024-02-29T00:00:00")),
            (text("tru"), text("TRUE")),
        ];
        for (one, other) in same {
            assert_eq!(keyed(one.clone()), keyed(other.clone()), "{one:?} and {other:?}");
        }
    }

    #[test]
    fn most_keys_of_two_rows_are_two() {
        for (one, other) in [("AA", "DL"), ("1", "2"), ("N1", "N10"), ("a-1", "a-2")] {
            assert_ne!(keyed(text(one)), keyed(text(other)), "{one} and {other}");
        }
    }
}
