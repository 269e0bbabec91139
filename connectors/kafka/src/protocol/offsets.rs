//! OffsetFetch: what a group has committed, in transactions too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponsePartitions,
};
use kafka_protocol::messages::{GroupId, OffsetFetchRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::client::ProtocolClient;
use super::error::{ProtocolError, accepted};
use super::known::CoordinatorOf;
use super::retry::Call;

/// Where brokers keep what groups have committed.
#[cfg(feature = "sink")]
const OFFSETS: &str = "__consumer_offsets";

/// What a group has committed of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The offset.
    pub offset: u64,
    /// The text beside it.
    pub metadata: String,
}

impl ProtocolClient {
    /// Asks for the stable offsets of a group, by topic and partition. A partition of which nothing is committed is left
    /// out.
    ///
    /// # Errors
    /// `UNSTABLE_OFFSET_COMMIT`, behind a deadline, while a transaction is open that has offsets of one of these
    /// partitions in it: they may become the committed ones or not.
    pub async fn stable_offsets(
        &self,
        group: &str,
        partitions: &BTreeMap<String, BTreeSet<i32>>,
        within: Duration,
    ) -> Result<BTreeMap<(String, i32), Committed>, ProtocolError> {
        self.offsets(group, request(group, partitions).with_require_stable(true), within).await
    }

    /// The same as it is now: what open transactions have in them is passed over.
    ///
    /// # Errors
    /// [`ProtocolError`].
    pub async fn offsets_now(
        &self,
        group: &str,
        partitions: &BTreeMap<String, BTreeSet<i32>>,
        within: Duration,
    ) -> Result<BTreeMap<(String, i32), Committed>, ProtocolError> {
        self.offsets(group, request(group, partitions), within).await
    }

    /// Returns the partition that keeps the offsets of a group: its transactions have their markers there, too.
    ///
    /// # Errors
    /// `TOPIC_AUTHORIZATION_FAILED` where we may not describe the topic.
    #[cfg(feature = "sink")]
    pub(crate) async fn offsets_partition(
        &self,
        group: &str,
        within: Duration,
    ) -> Result<(String, i32), ProtocolError> {
        let cluster = self.cluster(&[OFFSETS], within).await?;
        let count = cluster.topics.get(OFFSETS).map_or(0, |topic| topic.partitions.len());
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let none = || ProtocolError::UnknownPartition { topic: OFFSETS.to_owned(), partition: 0 };
        let partition = java_hash(group).checked_abs().unwrap_or(0).checked_rem(count).ok_or_else(none)?;
        Ok((OFFSETS.to_owned(), partition))
    }

    async fn offsets(
        &self,
        group: &str,
        request: OffsetFetchRequest,
        within: Duration,
    ) -> Result<BTreeMap<(String, i32), Committed>, ProtocolError> {
        let mut call = Call::new(format!("OffsetFetch of group {group}"), within);
        let of = (CoordinatorOf::Group, group);
        let answer = self.ask_coordinator(of, &request, worst_code, &mut call).await?;
        let told = of_group(answer, group)
            .ok_or_else(|| self.malformed(&call, "the group is not in it".to_owned()))?;
        let mut committed = BTreeMap::new();
        for topic in told.topics {
            for partition in topic.partitions {
                let place = (topic.name.to_string(), partition.partition_index);
                accepted(&call.told, partition.error_code)?;
                if let Some(offset) = read(partition) {
                    committed.insert(place, offset);
                }
            }
        }
        Ok(committed)
    }
}

fn request(group: &str, partitions: &BTreeMap<String, BTreeSet<i32>>) -> OffsetFetchRequest {
    let topics = partitions.iter().map(|(topic, partitions)| {
        OffsetFetchRequestTopics::default()
            .with_name(TopicName(StrBytes::from_string(topic.clone())))
            .with_partition_indexes(partitions.iter().copied().collect())
    });
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(GroupId(StrBytes::from_string(group.to_owned())))
        .with_topics(Some(topics.collect()));
    OffsetFetchRequest::default().with_groups(vec![group])
}

fn of_group(answer: OffsetFetchResponse, group: &str) -> Option<OffsetFetchResponseGroup> {
    answer.groups.into_iter().find(|told| told.group_id.as_str() == group)
}

/// The first code that is none of success: of the group, or of a partition.
fn worst_code(answer: &OffsetFetchResponse) -> i16 {
    let partitions = |group: &OffsetFetchResponseGroup| {
        group.topics.iter().flat_map(|topic| topic.partitions.iter().map(|told| told.error_code)).collect()
    };
    let codes = answer.groups.iter().flat_map(|group| {
        let mut codes: Vec<i16> = partitions(group);
        codes.insert(0, group.error_code);
        codes
    });
    codes.into_iter().find(|code| *code != 0).unwrap_or(0)
}

fn read(told: OffsetFetchResponsePartitions) -> Option<Committed> {
    let offset = u64::try_from(told.committed_offset).ok()?;
    let metadata = told.metadata.map(|metadata| metadata.to_string()).unwrap_or_default();
    Some(Committed { offset, metadata })
}

/// The hash of a text as Java counts it, by which brokers find the partition of a group.
#[cfg(feature = "sink")]
fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

#[cfg(all(test, feature = "sink"))]
mod tests {
    use super::*;

    #[test]
    fn groups_are_hashed_as_java_does() {
        assert_eq!((java_hash(""), java_hash("a"), java_hash("abc")), (0, 97, 96_354));
        // The one number without an absolute value.
        assert_eq!(java_hash("polygenelubricants"), i32::MIN);
    }
}
