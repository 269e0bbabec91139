//! The client's configuration, and lists of partitions for its calls.

use levada_core::{Budget, SplitId};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::config::KafkaSourceConfig;
use super::error::ReadError;

/// The largest share of one fetch: librdkafka's own default.
const LARGEST_FETCH: usize = 50 << 20;

/// The smallest: below it, librdkafka raises the value by itself.
const SMALLEST_FETCH: usize = 1 << 20;

/// What a record that was fetched ahead weighs at least, with the client's own notes on it. The client counts payload
/// alone, so for small records the number of them is the bound that holds.
const WEIGHT_AHEAD: usize = 1 << 10;

/// Builds the client's configuration: our defaults, then the user's properties, then what is ours alone.
pub(super) fn client_config(
    config: &KafkaSourceConfig,
    budget: &Budget,
    subtask: u32,
    parallelism: u32,
) -> ClientConfig {
    // Half of the budget is for what the client fetches ahead, shared by the subtasks; the other half is for batches.
    let ahead = budget.limit() / 2 / parallelism.max(1) as usize;
    let mut client = ClientConfig::new();
    client
        .set("queued.max.messages.kbytes", (ahead / 1024).clamp(1, 2_097_151).to_string())
        .set("queued.min.messages", (ahead / WEIGHT_AHEAD).clamp(1_000, 100_000).to_string())
        .set("fetch.max.bytes", ahead.clamp(SMALLEST_FETCH, LARGEST_FETCH).to_string())
        // The default of a second makes a full queue run dry before the next fetch.
        .set("fetch.queue.backoff.ms", "2")
        // A limit, no allocation: a single record may be larger than any fetch size.
        .set("receive.message.max.bytes", (1 << 30).to_string());
    for (name, value) in &config.properties {
        client.set(name, value);
    }
    let own_debug = config.properties.get("debug").filter(|contexts| !contexts.trim().is_empty());
    let debug = own_debug.map_or("topic".to_owned(), |contexts| format!("topic,{contexts}"));
    client
        .set("bootstrap.servers", &config.bootstrap)
        .set("group.id", &config.group_id)
        .set("client.id", format!("{}-{subtask}", config.client_id))
        .set("isolation.level", config.isolation.as_property())
        .set("enable.partition.eof", "true")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        .set("allow.auto.create.topics", "false")
        // The client tells only at this level that a topic was made anew: see `topic_ids`.
        .set("debug", debug)
        .set_log_level(RDKafkaLogLevel::Debug);
    client
}

/// Names splits for a call.
pub(super) fn partitions<'s>(
    splits: impl IntoIterator<Item = &'s SplitId>,
) -> Result<TopicPartitionList, ReadError> {
    let mut list = TopicPartitionList::new();
    for split in splits {
        list.add_partition(&split.stream, partition_number(split)?);
    }
    Ok(list)
}

/// Names splits together with an offset each.
pub(super) fn at_offsets<'s>(
    splits: impl IntoIterator<Item = (&'s SplitId, Offset)>,
) -> Result<TopicPartitionList, ReadError> {
    let mut list = TopicPartitionList::new();
    for (split, offset) in splits {
        list.add_partition_offset(&split.stream, partition_number(split)?, offset)
            .map_err(|cause| ReadError::Call { doing: "name a partition", cause })?;
    }
    Ok(list)
}

/// Kafka counts partitions and offsets in signed numbers; what does not fit was never a partition.
fn partition_number(split: &SplitId) -> Result<i32, ReadError> {
    i32::try_from(split.index).map_err(|_| ReadError::MissingTopic { topic: split.to_string() })
}
