//! One record as the console consumer prints it for us.

use std::fmt::{self, Display, Formatter};

use super::Payload;

/// How the console consumer is told to print, in the order of the fields in a line.
///
/// The fields are separated by tabs and the records by line ends; neither is in a key or a value, because Kafka's `Bytes`
/// prints both in hexadecimal digits. So the lines are unambiguous, but for the text that stands for null: it goes the same
/// way as the bytes, so it is a name that nobody else uses.
pub(super) fn formatter_properties(null: &str) -> Vec<String> {
    const BYTES: &str = "org.apache.kafka.common.serialization.BytesDeserializer";
    vec![
        "print.timestamp=true".to_owned(),
        "print.partition=true".to_owned(),
        "print.offset=true".to_owned(),
        "print.key=true".to_owned(),
        "print.value=true".to_owned(),
        "key.separator=\t".to_owned(),
        "line.separator=\n".to_owned(),
        format!("null.literal={null}"),
        format!("key.deserializer={BYTES}"),
        format!("value.deserializer={BYTES}"),
    ]
}

/// The time of a record, in milliseconds since 1970, and who chose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timestamp {
    /// The producer chose it.
    Create(i64),
    /// The broker chose it, when it appended the record.
    LogAppend(i64),
    /// The record has none: its format is older than timestamps.
    Absent,
}

/// A record of a topic. Its headers are not read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The partition.
    pub partition: i32,
    /// The offset in the partition.
    pub offset: i64,
    /// The time.
    pub timestamp: Timestamp,
    /// The key; `None` is null, which is not an empty key.
    pub key: Option<Payload>,
    /// The value; `None` is null, as of a tombstone, which is not an empty value.
    pub value: Option<Payload>,
}

impl Record {
    /// Reads a line printed with [`formatter_properties`] for the same null.
    pub(super) fn parse(line: &str, null: &str) -> Option<Record> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [timestamp, partition, offset, key, value] = fields.as_slice() else { return None };
        Some(Record {
            partition: partition.strip_prefix("Partition:")?.parse().ok()?,
            offset: offset.strip_prefix("Offset:")?.parse().ok()?,
            timestamp: parse_timestamp(timestamp)?,
            key: parse_payload(key, null)?,
            value: parse_payload(value, null)?,
        })
    }
}

fn parse_timestamp(field: &str) -> Option<Timestamp> {
    match field.split_once(':') {
        Some(("CreateTime", time)) => Some(Timestamp::Create(time.parse().ok()?)),
        Some(("LogAppendTime", time)) => Some(Timestamp::LogAppend(time.parse().ok()?)),
        None if field == "NO_TIMESTAMP" => Some(Timestamp::Absent),
        _ => None,
    }
}

/// Reads a key or a value; the outer option tells whether it is understood, the inner one is null.
fn parse_payload(field: &str, null: &str) -> Option<Option<Payload>> {
    if field == null {
        return Some(None);
    }
    Payload::parse(field).map(Some)
}

impl Display for Record {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.offset)?;
        match self.timestamp {
            Timestamp::Create(time) => write!(f, " at {time}")?,
            Timestamp::LogAppend(time) => write!(f, " appended at {time}")?,
            Timestamp::Absent => {}
        }
        for (name, payload) in [("key", &self.key), ("value", &self.value)] {
            match payload {
                Some(payload) => write!(f, " {name} {payload:?}")?,
                None => write!(f, " {name} null")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Payload, Record, Timestamp};

    fn parse(line: &str) -> Option<Record> {
        Record::parse(line, "NULL_1")
    }

    #[test]
    fn null_empty_and_the_text_null_are_three_things() {
        let payloads = |line| parse(line).map(|record| (record.key, record.value)).unwrap();
        assert_eq!(payloads("CreateTime:5\tPartition:0\tOffset:0\tNULL_1\tNULL_1"), (None, None));
        let (key, value) = payloads("CreateTime:5\tPartition:0\tOffset:0\t\tnull");
        assert_eq!((key, value), (Some(Payload::from("")), Some(Payload::from("null"))));
    }

    #[test]
    fn the_time_of_a_record_is_told_with_who_chose_it() {
        let timestamp = |field: &str| parse(&format!("{field}\tPartition:3\tOffset:9\ta\tb"));
        assert_eq!(timestamp("CreateTime:-1").unwrap().timestamp, Timestamp::Create(-1));
        assert_eq!(timestamp("LogAppendTime:7").unwrap().timestamp, Timestamp::LogAppend(7));
        assert_eq!(timestamp("NO_TIMESTAMP").unwrap().timestamp, Timestamp::Absent);
        let record = timestamp("CreateTime:7").unwrap();
        assert_eq!((record.partition, record.offset), (3, 9));
        assert_eq!(record.to_string(), "9 at 7 key \"a\" value \"b\"");
    }

    #[test]
    fn a_line_of_another_shape_is_refused() {
        for line in [
            "",
            "CreateTime:5\tPartition:0\tOffset:0\ta",
            "CreateTime:5\tPartition:0\tOffset:0\ta\tb\tc",
            "CreateTime:\tPartition:0\tOffset:0\ta\tb",
            "5\tPartition:0\tOffset:0\ta\tb",
            "CreateTime:5\t0\tOffset:0\ta\tb",
            "CreateTime:5\tOffset:0\tPartition:0\ta\tb",
            "CreateTime:5\tPartition:0\tOffset:0\ta\\q\tb",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
