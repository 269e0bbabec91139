//! Asking brokers for offsets of many partitions, with one request for each broker.

use std::collections::BTreeMap;
use std::time::Duration;

use levada_core::SplitId;
use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};

use super::error::ClientError;

/// Asks the leaders of partitions for what the list has in the place of each offset: the end, the beginning, or the first
/// record at or after a time (in milliseconds). A partition without an answer (no such record) is left out.
///
/// The answer is fresh: the client asks the brokers, and passes on its own isolation level.
///
/// # Errors
/// One partition without an answer fails the whole list: that is how the client tells it.
pub(super) fn at<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    list: TopicPartitionList,
    patience: Duration,
) -> Result<BTreeMap<SplitId, u64>, ClientError> {
    let answer = consumer.offsets_for_times(list, patience).map_err(|cause| ClientError::of(&cause))?;
    numbers(&answer)
}

/// Reads the offsets of a list; what has none is left out.
pub(super) fn numbers(list: &TopicPartitionList) -> Result<BTreeMap<SplitId, u64>, ClientError> {
    let mut offsets = BTreeMap::new();
    for element in list.elements() {
        element.error().map_err(|cause| ClientError::of(&cause))?;
        let offset = element.offset().to_raw().and_then(|offset| u64::try_from(offset).ok());
        if let (Some(offset), Ok(index)) = (offset, u32::try_from(element.partition())) {
            offsets.insert(SplitId::new(element.topic(), index), offset);
        }
    }
    Ok(offsets)
}
