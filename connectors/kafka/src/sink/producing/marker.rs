//! The marker of a transaction: an offset of a group without members.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

use levada_core::CheckpointId;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

/// So many names are kept: there is one for each subtask of each sink.
const KEPT: usize = 1000;

/// The client gives a group's name in its own form to consumers only, and the end of a consumer takes a tenth of a second: too
/// long for each transaction.
static NAMED: Mutex<BTreeMap<String, Arc<ConsumerGroupMetadata>>> = Mutex::new(BTreeMap::new());

/// Returns a group's name in the client's form. Blocks the first time, for a few milliseconds.
pub(super) fn named(group: &str) -> KafkaResult<Arc<ConsumerGroupMetadata>> {
    if let Some(known) = NAMED.lock().unwrap_or_else(PoisonError::into_inner).get(group) {
        return Ok(Arc::clone(known));
    }
    // Without an address it connects to nothing: it only has the group's name.
    let consumer: BaseConsumer = ClientConfig::new().set("group.id", group).create()?;
    let metadata = consumer.group_metadata();
    // Where there is no thread for it, it ends here.
    drop(Builder::new().name("kafka-sink-end".to_owned()).spawn(move || drop(consumer)));
    let metadata = metadata.ok_or_else(|| KafkaError::ClientCreation("no group metadata".to_owned()))?;
    let metadata = Arc::new(metadata);
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    if named.len() >= KEPT {
        named.clear();
    }
    named.insert(group.to_owned(), Arc::clone(&metadata));
    Ok(metadata)
}

/// The offset that stands for a checkpoint.
pub(super) fn offset_of(
    topic: &str,
    partition: u32,
    checkpoint: CheckpointId,
) -> KafkaResult<TopicPartitionList> {
    let mut offsets = TopicPartitionList::new();
    let mut offset = offsets.add_partition(topic, i32::try_from(partition).unwrap_or(i32::MAX));
    offset.set_metadata(checkpoint.attempt.to_string());
    offset.set_offset(Offset::Offset(i64::try_from(checkpoint.sequence).unwrap_or(i64::MAX)))?;
    Ok(offsets)
}
