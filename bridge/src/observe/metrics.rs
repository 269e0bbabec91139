//! An observation as text for Prometheus.
//!
//! Every name is in the table of `docs/operations.md`, which a test holds against what a running pipeline serves.

use std::fmt;
use std::time::Duration;

use levada_core::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::Observation;
use super::client::ClientStatistics;
use super::family::{Family, Number, Sample};
use super::lookup;
use super::names;
use super::partition::Partition;

/// What the text is, as HTTP names it.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Writes an observation down. What does not hold any more, such as a partition that is read elsewhere, is not in it.
///
/// # Errors
/// None in practice: a string takes everything.
pub fn text(observation: Observation) -> Result<String, fmt::Error> {
    let pipeline = escaped(&observation.pipeline);
    let labels = [("pipeline".into(), pipeline.into())];
    let mut registry = Registry::with_prefix_and_labels("levada", labels.into_iter());
    registry.register_collector(Box::new(Scrape(observation)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Escapes what may not stand in a label as it is; the library does not.
pub(super) fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[derive(Debug)]
struct Scrape(Observation);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in pipeline(&self.0)
            .into_iter()
            .chain(partitions(&self.0.partitions))
            .chain(subtasks(&self.0))
            .chain(lookup::families(&self.0.lookups))
        {
            family.encode(&mut encoder)?;
        }
        Ok(())
    }
}

fn pipeline(observation: &Observation) -> Vec<Family> {
    let Observation { balance, commits, .. } = observation;
    let outcomes = [
        ("written", balance.committed.written),
        ("coalesced", balance.committed.coalesced),
        ("deleted", balance.committed.deleted),
        ("ignored", balance.committed.ignored),
        ("guarded", balance.committed.guarded),
        ("filtered", balance.tally.filtered),
        ("skipped", balance.tally.skipped),
    ];
    let outcomes = outcomes.map(|(outcome, count)| Sample::of([("outcome", outcome)], count));
    let version = Sample::of([("version", env!("CARGO_PKG_VERSION"))], 1);
    let watermark = observation.watermark();
    vec![
        Family::gauge(names::BUILD_INFO, "The program that serves this", [version]),
        Family::counter(
            names::READ_RECORDS,
            "Records read, and committed with what became of them",
            [Sample::alone(balance.tally.read)],
        ),
        Family::counter(names::COMMITTED_RECORDS, "What became of the records that are committed", outcomes),
        Family::counter(names::COMMITS, "Commits of rows together with positions", [Sample::alone(*commits)]),
        Family::gauge(
            names::WATERMARK_TIMESTAMP_SECONDS,
            "No more records up to this event time, in seconds since 1970",
            watermark.map(|watermark| Sample::alone(epoch_seconds(watermark))),
        ),
        Family::gauge(
            names::WATERMARK_LAG_SECONDS,
            "How far the watermark is behind the wall clock",
            watermark.map(|watermark| Sample::alone(observation.behind(watermark))),
        ),
    ]
}

fn partitions(partitions: &[Partition]) -> Vec<Family> {
    let each = |value: fn(&Partition) -> Option<Number>| -> Vec<Sample> {
        partitions
            .iter()
            .filter_map(|partition| Some(Sample::of(place(partition), value(partition)?)))
            .collect()
    };
    vec![
        Family::gauge(
            names::PARTITION_POSITION,
            "The first offset that was not read yet",
            each(|of| of.position.map(Number::from)),
        ),
        Family::gauge(
            names::PARTITION_COMMITTED_POSITION,
            "The first offset that is not committed with its rows yet",
            each(|of| of.committed.map(Number::from)),
        ),
        Family::gauge(
            names::PARTITION_HIGH_WATERMARK,
            "The end of the partition, open transactions included",
            each(|of| of.high_watermark.map(Number::from)),
        ),
        Family::gauge(
            names::PARTITION_LAST_STABLE_OFFSET,
            "The end of what may be read, where the partition was read up to it",
            each(|of| of.last_stable_offset.map(Number::from)),
        ),
        Family::gauge(
            names::PARTITION_LAG_RECORDS,
            "Offsets from the position to the high watermark",
            each(|of| of.lag.map(Number::from)),
        ),
        Family::gauge(
            names::PARTITION_STABLE_LAG_RECORDS,
            "Offsets from the position to the last stable offset",
            each(|of| of.stable_lag.map(Number::from)),
        ),
        Family::gauge(
            names::PARTITION_LAG_SECONDS,
            "Age of the record read last, 0 where all is read",
            each(|of| of.time_lag.map(Number::from)),
        ),
        Family::gauge(
            names::PARTITION_BEHIND_TRANSACTION_SECONDS,
            "How long an open transaction has been in front, 0 where none is",
            each(|of| Some(of.behind_transaction.unwrap_or_default().into())),
        ),
        Family::gauge(
            names::PARTITION_TRANSACTION_HANGS,
            "1 where that is longer than a transaction may live",
            each(|of| Some(u64::from(of.is_hanging).into())),
        ),
        Family::gauge(
            names::PARTITION_WATERMARK_TIMESTAMP_SECONDS,
            "The partition's own watermark, in seconds since 1970",
            each(|of| of.watermark.map(epoch_seconds)),
        ),
        Family::gauge(
            names::PARTITION_WATERMARK_LAG_SECONDS,
            "How far that is behind the wall clock",
            each(|of| of.watermark_lag.map(Number::from)),
        ),
        Family::gauge(
            names::PARTITION_STATUS,
            "1 for what the partition is doing, and why if it is blocked",
            partitions.iter().map(status),
        ),
        Family::gauge(
            names::PARTITION_SPENT_SECONDS,
            "How the partition's time was spent since it was added",
            partitions.iter().flat_map(spent),
        ),
        Family::counter(
            names::PARTITION_RECORDS,
            "Records read since the start",
            each(|of| Some(of.records.into())),
        ),
        Family::counter(
            names::PARTITION_BYTES,
            "Bytes of the keys and values of these records",
            each(|of| Some(of.bytes.into())),
        ),
    ]
}

fn place(partition: &Partition) -> [(&'static str, String); 2] {
    let split = &partition.split;
    [("topic", escaped(&split.stream)), ("partition", split.index.to_string())]
}

fn status(partition: &Partition) -> Sample {
    let labels = [("status", partition.status.name()), ("reason", partition.status.cause())];
    Sample::of(place(partition), 1).and(labels)
}

fn spent(partition: &Partition) -> impl Iterator<Item = Sample> {
    let states = partition.spent.map(|spent| {
        [("active", spent.active), ("idle", spent.idle), ("blocked", spent.blocked), ("paused", spent.paused)]
    });
    let of_state =
        |(state, time): (&'static str, Duration)| Sample::of(place(partition), time).and([("state", state)]);
    states.into_iter().flatten().map(of_state).collect::<Vec<_>>().into_iter()
}

fn subtasks(observation: &Observation) -> Vec<Family> {
    let numbered = || observation.subtasks.iter().zip(0_u32..);
    let each = |value: fn(&super::Subtask) -> Option<Number>| -> Vec<Sample> {
        let of = |(subtask, number): (&super::Subtask, u32)| {
            Some(Sample::of([("subtask", number.to_string())], value(subtask)?))
        };
        numbered().filter_map(of).collect()
    };
    let of_time = |value: fn(&super::SubtaskTime) -> Option<Number>| -> Vec<Sample> {
        let of = |(subtask, number): (&super::Subtask, u32)| {
            Some(Sample::of([("subtask", number.to_string())], value(subtask.time.as_ref()?)?))
        };
        numbered().filter_map(of).collect()
    };
    let without = |outcome, value: fn(&super::SubtaskTime) -> u64| {
        let of = move |(subtask, number): (&super::Subtask, u32)| {
            let labels = [("subtask", number.to_string())];
            Some(Sample::of(labels, value(subtask.time.as_ref()?)).and([("outcome", outcome)]))
        };
        numbered().filter_map(of).collect::<Vec<_>>()
    };
    let outcome = |outcome, value: fn(&super::Subtask) -> u64| {
        let of = move |(subtask, number): (&super::Subtask, u32)| {
            Sample::of([("subtask", number.to_string())], value(subtask)).and([("outcome", outcome)])
        };
        numbered().map(of).collect::<Vec<_>>()
    };
    let of_client = |value: fn(&ClientStatistics) -> u64| {
        let of = |(subtask, number): (&super::Subtask, u32)| {
            Some(Sample::of([("subtask", number.to_string())], value(subtask.client.as_ref()?)))
        };
        numbered().filter_map(of).collect::<Vec<_>>()
    };
    vec![
        Family::gauge(
            names::SOURCE_WATERMARK_TIMESTAMP_SECONDS,
            "The merged watermark of the subtask's partitions, in seconds since 1970",
            of_time(|of| of.watermark.map(epoch_seconds)),
        ),
        Family::gauge(
            names::SOURCE_IS_IDLE,
            "1 where nobody waits for the subtask",
            of_time(|of| Some(u64::from(of.is_idle).into())),
        ),
        Family::counter(
            names::SOURCE_LATE_RECORDS,
            "Records that the subtask's watermark had covered when they were read",
            of_time(|of| Some(of.late.into())),
        ),
        Family::counter(
            names::SOURCE_RECORDS_WITHOUT_TIMESTAMP,
            "Records without an event time, by what became of them",
            [without("taken_from_record", |of| of.taken_from_record), without("failed", |of| of.failed)]
                .concat(),
        ),
        Family::gauge(
            names::SINK_WATERMARK_TIMESTAMP_SECONDS,
            "The watermark that has come to the sink, in seconds since 1970",
            of_time(|of| of.at_sink.map(epoch_seconds)),
        ),
        Family::counter(
            names::SINK_LATE_RECORDS,
            "Records that came to the sink behind a watermark that had covered them",
            of_time(|of| Some(of.late_at_sink.into())),
        ),
        Family::gauge(
            names::SOURCE_IS_CUT_OFF,
            "1 while no broker can be reached",
            each(|of| Some(u64::from(of.is_cut_off).into())),
        ),
        Family::gauge(
            names::SOURCE_IS_HELD_BACK,
            "1 while reading rests for want of memory",
            each(|of| Some(u64::from(of.is_held_back).into())),
        ),
        Family::counter(
            names::SOURCE_PAUSES,
            "How often reading rested for want of memory",
            each(|of| Some(of.pauses.into())),
        ),
        Family::counter(
            names::SOURCE_ERRORS,
            "Errors that the Kafka client reported, those that pass by themselves included",
            each(|of| Some(of.errors.into())),
        ),
        Family::counter(
            names::SOURCE_STALE_RECORDS,
            "Records fetched and dropped, to be read again elsewhere or later",
            each(|of| Some(of.stale.into())),
        ),
        Family::counter(
            names::SOURCE_GAPS,
            "How often records were gone before they were read",
            each(|of| Some(of.gaps.into())),
        ),
        Family::counter(names::SOURCE_LOST_OFFSETS, "Offsets in these gaps", each(|of| Some(of.lost.into()))),
        Family::counter(
            names::SOURCE_OFFSET_COMMITS,
            "Commits of offsets for the group, for others to see, by what became of them",
            [outcome("ok", |of| of.offset_commits), outcome("failed", |of| of.failed_offset_commits)]
                .concat(),
        ),
        Family::counter(
            names::SOURCE_BATCHES,
            "Batches that were taken from the thread that reads",
            each(|of| Some(of.batches.into())),
        ),
        Family::counter(
            names::SOURCE_BATCH_WAIT_SECONDS,
            "How long they had stood ready, all together",
            each(|of| Some(of.batch_wait.into())),
        ),
        Family::gauge(
            names::SOURCE_LONGEST_BATCH_WAIT_SECONDS,
            "The longest of these times",
            each(|of| Some(of.longest_batch_wait.into())),
        ),
        Family::counter(
            names::SOURCE_CLIENT_REQUESTS,
            "Requests that the Kafka client has sent",
            of_client(|of| of.requests),
        ),
        Family::counter(
            names::SOURCE_CLIENT_RESPONSES,
            "Responses that it has received",
            of_client(|of| of.responses),
        ),
        Family::counter(names::SOURCE_CLIENT_SENT_BYTES, "Bytes of the requests", of_client(|of| of.sent)),
        Family::counter(
            names::SOURCE_CLIENT_RECEIVED_BYTES,
            "Bytes of the responses",
            of_client(|of| of.received),
        ),
        Family::gauge(
            names::SOURCE_CLIENT_QUEUED_EVENTS,
            "Events that wait for the thread that reads",
            of_client(|of| of.queued),
        ),
    ]
}

fn epoch_seconds(time: Timestamp) -> Number {
    // Exact to the millisecond for thousands of years.
    Number::Real(time.0 as f64 / 1000.0)
}
