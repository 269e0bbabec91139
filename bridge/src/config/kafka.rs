//! The part of the pipeline file about the Kafka source.

use std::collections::BTreeMap;

use levada_kafka::source::{ConfigError as KafkaError, KafkaSourceConfig};

use super::fields::Field;

/// The Kafka source.
#[derive(Debug, Clone)]
pub struct KafkaPart {
    /// Bootstrap servers, `host:port`.
    pub brokers: Vec<String>,
    /// The topics, by name.
    pub topics: Vec<String>,
    /// Where a pipeline begins that has no stored positions.
    pub start: StartFrom,
    /// What becomes of a record that cannot be decoded.
    pub poison: Poison,
    /// The client's own properties.
    pub properties: BTreeMap<String, String>,
}

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFrom {
    /// At the oldest record.
    Earliest,
    /// Behind the newest record at the time of the first start.
    Latest,
}

/// What becomes of a record that cannot be decoded, or has no key where one is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poison {
    /// The pipeline stops and names the record.
    Fail,
    /// It is passed over and counted.
    Skip,
}

pub(super) fn source(field: &Field<'_>) -> Option<KafkaPart> {
    let section = field.section()?;
    let kafka = section.required("kafka", "a section").and_then(|field| kafka(&field));
    section.finish();
    kafka
}

fn kafka(field: &Field<'_>) -> Option<KafkaPart> {
    let section = field.section()?;
    let brokers = section.required("brokers", "one or more host:port").and_then(|field| field.names());
    let topics = section.required("topics", "one or more topics").and_then(|field| field.distinct_names());
    let starts = [("earliest", StartFrom::Earliest), ("latest", StartFrom::Latest)];
    let start = section.optional("start").map_or(Some(StartFrom::Earliest), |field| field.choice(&starts));
    let policies = [("fail", Poison::Fail), ("skip", Poison::Skip)];
    let poison = section.optional("poison").map_or(Some(Poison::Fail), |field| field.choice(&policies));
    let format = section.required("format", "json").and_then(|field| field.choice(&[("json", ())]));
    let properties =
        section.optional("properties").map_or_else(|| Some(BTreeMap::new()), |field| properties(&field));
    section.finish();
    format?;
    Some(KafkaPart {
        brokers: brokers?,
        topics: topics?,
        start: start?,
        poison: poison?,
        properties: properties?,
    })
}

fn properties(field: &Field<'_>) -> Option<BTreeMap<String, String>> {
    let read = |(name, field): (&str, Field<'_>)| {
        if is_ours(name) {
            field.error(match name {
                "auto.offset.reset" => "not passed on; \"start\" says where to begin",
                "bootstrap.servers" | "metadata.broker.list" => {
                    "not passed on; \"brokers\" names the servers"
                }
                _ => "not passed on; what is exactly once rests on it, or it is made of the pipeline's name",
            });
        }
        Some((name.to_owned(), field.text()?))
    };
    // Collecting first reports every entry, not only the first bad one.
    let entries: Vec<_> = field.section()?.all().map(read).collect();
    entries.into_iter().collect()
}

/// Tells whether the source sets a client property itself.
fn is_ours(property: &str) -> bool {
    let config = KafkaSourceConfig::new("any", ["any"]).property(property, "");
    matches!(config.check(), Err(KafkaError::OwnedProperty { .. }))
}
