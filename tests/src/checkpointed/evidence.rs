//! What both topics hold of a key that a judge complains of: whether the order was wrong already in what was fed.

use std::fmt::Write as _;

use levada_testcontainers::oracle::{self, Record, TopicContents};

use super::key_and_number;

/// How many records of the key are told of each topic.
const SHOWN: usize = 12;

/// Tells the first records of `key` from the number `due` on, in the order of their offsets.
pub(super) fn of(brokers: &str, topics: &[&str], key: &str, due: u64) -> String {
    let mut text = String::new();
    for topic in topics {
        let told = match oracle::topic(brokers, topic) {
            Ok(contents) => told(&contents, key, due),
            Err(error) => format!(" it cannot be read: {error}"),
        };
        let _ = write!(text, "\n  {topic}:{told}");
    }
    text
}

fn told(contents: &TopicContents, key: &str, due: u64) -> String {
    let hidden =
        |fate, records: Vec<&Record>| records.into_iter().map(|record| (fate, record.clone())).collect();
    let mut records: Vec<(&str, Record)> = hidden("aborted", contents.aborted());
    records.append(&mut hidden("undecided", contents.undecided()));
    records.extend(contents.committed.iter().map(|record| ("committed", record.clone())));
    records.sort_by_key(|(_, record)| (record.partition, record.offset));
    let of_the_key = records.iter().filter_map(|(fate, record)| {
        let number = number_of(record, key).filter(|number| *number >= due.saturating_sub(2))?;
        Some(format!(" {number} at {}/{} {fate};", record.partition, record.offset))
    });
    let told: String = of_the_key.take(SHOWN).collect();
    let ends: Vec<String> =
        contents.ends.iter().map(|(partition, end)| format!("{partition}/{end}")).collect();
    format!(" {key}{told} ends {}", ends.join(" "))
}

/// What is fed has the key as its key and the number as its value; what is written has both in its value.
fn number_of(record: &Record, key: &str) -> Option<u64> {
    let value = record.value.as_ref()?.text()?;
    match record.key.as_ref().and_then(|key| key.text()) {
        Some(fed) if fed == key && !value.starts_with(key) => value.split(' ').next()?.parse().ok(),
        _ => key_and_number(value).filter(|(of, _)| *of == key).map(|(_, number)| number),
    }
}
