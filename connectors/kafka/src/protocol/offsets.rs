//! Offsets of a group: the carrier of markers.

use std::time::Duration;

use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::{GroupId, OffsetFetchRequest, OffsetFetchResponse, TopicName};
use kafka_protocol::protocol::{Request as _, StrBytes};
use tokio::time::Instant;

use super::admin::Admin;
use super::api;
use super::backoff::Tries;
use super::coordinator::Kind;
use super::error::{ErrorCode, ProtocolError};

impl Admin {
    /// Returns what is committed for one partition in a group, offset and metadata; `None` if nothing is. What an open
    /// transaction is about to commit is waited for.
    ///
    /// # Errors
    /// The coordinator is not found or does not answer within the deadline, refuses, or the offset stays unstable.
    pub async fn committed(
        &self,
        group: &str,
        topic: &str,
        partition: i32,
        within: Duration,
    ) -> Result<Option<(i64, String)>, ProtocolError> {
        let mut tries = Tries::new(api::name(OffsetFetchRequest::KEY), within);
        loop {
            match self.committed_once(group, topic, partition, tries.until()).await {
                Err(error) => tries.again(error).await?,
                done => return done,
            }
        }
    }

    async fn committed_once(
        &self,
        group: &str,
        topic: &str,
        partition: i32,
        until: Instant,
    ) -> Result<Option<(i64, String)>, ProtocolError> {
        let name = TopicName(StrBytes::from_string(topic.to_owned()));
        let topics =
            OffsetFetchRequestTopics::default().with_name(name).with_partition_indexes(vec![partition]);
        let asked = OffsetFetchRequestGroup::default()
            .with_group_id(GroupId(StrBytes::from_string(group.to_owned())))
            .with_topics(Some(vec![topics]));
        let request = OffsetFetchRequest::default().with_groups(vec![asked]).with_require_stable(true);
        let answer = self.ask_coordinator(Kind::Group, group, &request, group_code, until).await?;
        let topics = answer.groups.into_iter().flat_map(|group| group.topics);
        let found =
            topics.flat_map(|topic| topic.partitions).find(|found| found.partition_index == partition);
        let Some(found) = found else { return Ok(None) };
        if found.error_code != 0 {
            let (api, code) = (api::name(OffsetFetchRequest::KEY), ErrorCode(found.error_code));
            let address = self.coordinator(Kind::Group, group, until).await?;
            let subject = format!("{group} at {topic}-{partition}");
            return Err(ProtocolError::Refused { address, api, subject, code });
        }
        let metadata = found.metadata.map(|metadata| metadata.to_string()).unwrap_or_default();
        Ok((found.committed_offset >= 0).then_some((found.committed_offset, metadata)))
    }
}

fn group_code(answer: &OffsetFetchResponse) -> Option<i16> {
    answer.groups.first().map(|group| group.error_code).or(Some(answer.error_code))
}
