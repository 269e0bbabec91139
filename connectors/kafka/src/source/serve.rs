//! What each event of the client means for the splits.

use std::time::{Duration, Instant};

use levada_core::Position;
use levada_core::time::SplitEvent;
use rdkafka::consumer::Consumer;
use rdkafka::error::RDKafkaErrorCode;

use super::config::{Headers, WhenLost};
use super::error::{ClientError, ReadError};
use super::events::{Client, Event, Failure, Fetched, Place};
use super::splits::{Building, Reading, Splits};
use super::status::SourceStatus;
use super::topic_ids::TopicIds;

/// How long the thread may stand still to explain an error that ends the source anyway.
const EXPLAIN: Duration = Duration::from_secs(5);

/// How long after an error of a split its fetching is started again.
const RETRY: Duration = Duration::from_secs(1);

/// What an event may change.
pub(super) struct Serving<'a> {
    pub(super) client: &'a Client,
    pub(super) bootstrap: &'a str,
    pub(super) headers: Headers,
    pub(super) when_lost: WhenLost,
    /// Whether all splits are paused.
    pub(super) is_held_back: bool,
    pub(super) topic_ids: &'a TopicIds,
    pub(super) splits: &'a mut Splits,
    pub(super) building: &'a mut Building,
    pub(super) status: &'a SourceStatus,
    /// Set when a broker could not be reached, so that somebody looks whether any can.
    pub(super) suspects_outage: &'a mut bool,
    /// Set when fetching a split failed, so that somebody starts it again.
    pub(super) retry_at: &'a mut Option<Instant>,
}

/// Serves one event.
///
/// # Errors
/// Returns what ends the source.
#[inline]
pub(super) fn serve(event: Event<'_>, on: &mut Serving<'_>) -> Result<(), ReadError> {
    match event {
        Event::Fetched(fetched) => match fetched.failure() {
            None => append(&fetched, on),
            Some(failure) => return fail(failure, on),
        },
        Event::EndOfPartition(place) => reach_end(&place, on),
        Event::Error(failure) => return fail(failure, on),
        Event::Log { level, facility, text } => {
            log(level, facility, text);
            return on.topic_ids.check(text);
        }
        Event::Statistics(document) => on.status.set_statistics(document),
        Event::OffsetCommit => {}
        Event::Rebalance => {
            let text = "a client that only assigns was asked to rebalance".to_owned();
            return Err(ReadError::Client(ClientError { code: RDKafkaErrorCode::State, text }));
        }
        Event::TokenRefresh => {
            let text = "an OAUTHBEARER token is wanted; set sasl.oauthbearer.method=oidc".to_owned();
            let cause = ClientError { code: RDKafkaErrorCode::Authentication, text };
            return Err(ReadError::Authentication { bootstrap: on.bootstrap.to_owned(), cause });
        }
        Event::Other(number) => {
            on.status.count_ignored_event();
            tracing::debug!(number, "an event that nothing is done about");
        }
    }
    Ok(())
}

/// Appends a record and moves its split's position past it.
#[inline]
fn append(fetched: &Fetched<'_>, on: &mut Serving<'_>) {
    let record = fetched.record();
    let Some(reading) = on.splits.find(fetched.key(), || fetched.topic()) else {
        on.status.count_stale(1); // its split has ended or was removed
        return;
    };
    if record.offset < reading.next {
        on.status.count_stale(1);
        return;
    }
    let stop = reading.stop.unwrap_or(u64::MAX);
    if record.offset >= stop {
        end(reading.split.clone(), on);
        return;
    }
    let number = on.building.number(reading);
    let headers = match on.headers {
        Headers::Read => fetched.headers(),
        Headers::Skip => None,
    };
    match headers {
        None => on.building.builder.push(number, record),
        Some(headers) => on.building.builder.push_with_headers(number, record, headers),
    }
    reading.next = record.offset + 1;
    let counts = &mut reading.counts;
    counts.records += 1;
    counts.bytes += (record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len)) as u64;
    counts.last_timestamp = Some(record.timestamp);
    if reading.next >= stop {
        let split = reading.split.clone();
        end(split, on);
    }
}

/// Moves a split's position to the end of its partition: past control records, aborted data and holes.
fn reach_end(place: &Place, on: &mut Serving<'_>) {
    on.status.set_cut_off(false);
    let Ok(offset) = u64::try_from(place.offset) else { return };
    let Some(reading) = on.splits.named_mut(&place.topic, place.partition) else { return };
    if reading.stop.is_some_and(|stop| offset >= stop) {
        let split = reading.split.clone();
        end(split, on);
        return;
    }
    if offset > reading.next {
        let number = on.building.number(reading);
        on.building.builder.advance(number, Position::at(offset));
        reading.next = offset;
    }
    // An end below the position belongs to what was fetched before it.
    if offset == reading.next {
        reading.is_failing = false;
        reading.end = Some(offset);
        on.building.tell(reading, SplitEvent::EndOfPartition { position: offset });
    }
}

/// Ends a split's bounded read at its stop: whatever lies between the last record and the stop was passed.
fn end(split: levada_core::SplitId, on: &mut Serving<'_>) {
    let Some(mut reading) = on.splits.remove(&split) else { return };
    let end = Position::at(reading.stop.unwrap_or(reading.next));
    let number = on.building.number(&mut reading);
    on.building.builder.advance(number, end.clone());
    on.building.ended.push((reading.id, split, end));
}

/// Counts an error, and decides whether it ends the source.
fn fail(failure: Failure, on: &mut Serving<'_>) -> Result<(), ReadError> {
    use RDKafkaErrorCode as Code;
    let Failure { error, is_fatal, place } = failure;
    on.status.count_error(&error);
    if is_fatal {
        return Err(ReadError::Client(error));
    }
    match error.code {
        Code::AllBrokersDown if on.status.set_cut_off(true) => {
            on.building.tell_of_all(on.splits, SplitEvent::BrokerAway);
        }
        Code::BrokerTransportFailure | Code::Resolve | Code::SSL => *on.suspects_outage = true,
        Code::Authentication => {
            // Credentials were good when the source was opened, and may be again: a state, but one that somebody must
            // hear of, since waiting alone does not end it.
            tracing::error!(%error, "a broker refuses the credentials; reading stands still until it takes them");
            *on.suspects_outage = true;
        }
        _ => {}
    }
    let Some(place) = place else {
        tracing::warn!(%error, "the Kafka client reports an error");
        return Ok(());
    };
    if place.partition < 0 {
        return fail_topic(&place.topic, error, on.client);
    }
    if matches!(error.code, Code::AutoOffsetReset | Code::OffsetOutOfRange) {
        return out_of_range(&place, error, on);
    }
    let Some(reading) = on.splits.named_mut(&place.topic, place.partition) else {
        tracing::debug!(%error, topic = place.topic, partition = place.partition, "an error of a split not read");
        return Ok(());
    };
    match error.code {
        Code::UnknownTopicOrPartition
        | Code::UnknownTopic
        | Code::UnknownPartition
        | Code::UnknownTopicId => confirm_gone(&place.topic, on.client),
        // Records that cannot be read are skipped by the client: going on would lose them.
        Code::BadMessage
        | Code::BadCompression
        | Code::InvalidMessage
        | Code::UnsupportedCompressionType
        | Code::NotImplemented
        | Code::MessageSizeTooLarge
        | Code::LogTruncation
        | Code::TopicAuthorizationFailed
        | Code::InvalidTopic => {
            let split = reading.split.clone();
            Err(ReadError::Split { split, next: reading.next, cause: error })
        }
        _ => {
            tracing::warn!(%error, split = %reading.split, next = reading.next, "the Kafka client reports an error");
            reading.is_failing = true;
            on.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
            on.building.tell(reading, SplitEvent::FetchFailed);
            Ok(())
        }
    }
}

/// Decides about an error of a whole topic.
fn fail_topic(topic: &str, error: ClientError, client: &Client) -> Result<(), ReadError> {
    use RDKafkaErrorCode as Code;
    match error.code {
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownTopicId => {
            confirm_gone(topic, client)
        }
        Code::TopicAuthorizationFailed | Code::InvalidTopic => Err(ReadError::Client(error)),
        _ => {
            tracing::warn!(%error, topic, "the Kafka client reports an error of a topic");
            Ok(())
        }
    }
}

/// Decides about a position that the partition does not hold: explains it, with the range that it does hold, or goes on
/// behind the gap.
fn out_of_range(place: &Place, cause: ClientError, on: &mut Serving<'_>) -> Result<(), ReadError> {
    let Some(reading) = on.splits.named_mut(&place.topic, place.partition) else { return Ok(()) };
    let split = reading.split.clone();
    let asked = reading.next;
    let range = on.client.consumer().fetch_watermarks(&split.stream, place.partition, EXPLAIN);
    let Ok((Ok(low), Ok(high))) = range.map(|(low, high)| (u64::try_from(low), u64::try_from(high))) else {
        return Err(ReadError::OutOfRange { split, asked, cause });
    };
    if asked > high {
        return Err(ReadError::BeyondRange { split, asked, low, high });
    }
    if asked >= low {
        return restart(reading, on.is_held_back, on.client);
    }
    let next = match on.when_lost {
        WhenLost::Fail => return Err(ReadError::BehindRange { split, asked, low, high }),
        WhenLost::Earliest => low,
        WhenLost::Latest => high.max(low),
    };
    // Beyond the stop nothing was wanted.
    on.status.count_gap(next.min(reading.stop.unwrap_or(next)) - asked);
    tracing::warn!(%split, from = asked, to = next, "records were gone before they were read");
    if reading.stop.is_some_and(|stop| next >= stop) {
        end(split, on);
        return Ok(());
    }
    reading.next = next;
    let number = on.building.number(reading);
    on.building.builder.advance(number, Position::at(next));
    restart(reading, on.is_held_back, on.client)
}

/// Starts a split's fetching again from where it stands: after an error, or when the client gave up on a position that was
/// asked for earlier.
pub(super) fn restart(reading: &Reading, is_held_back: bool, client: &Client) -> Result<(), ReadError> {
    let call = |doing| move |cause| ReadError::Call { doing, cause };
    let consumer = client.consumer();
    let offset = rdkafka::Offset::Offset(i64::try_from(reading.next).unwrap_or(i64::MAX));
    let list = super::client::at_offsets([(&reading.split, offset)])?;
    consumer.incremental_unassign(&list).map_err(call("unassign a partition"))?;
    consumer.incremental_assign(&list).map_err(call("assign a partition"))?;
    if reading.is_resting() || is_held_back {
        consumer.pause(&list).map_err(call("pause a partition"))?;
    }
    tracing::warn!(split = %reading.split, next = reading.next, "fetching starts again");
    Ok(())
}

/// Asks the cluster whether a topic is really gone: a broker that has just started may not know it yet.
fn confirm_gone(topic: &str, client: &Client) -> Result<(), ReadError> {
    let answer = client.describe_topics(&[topic.to_owned()], EXPLAIN);
    let is_gone = answer.is_ok_and(|topics| {
        topics.iter().any(|topic| topic.error == Some(RDKafkaErrorCode::UnknownTopicOrPartition))
    });
    if is_gone {
        return Err(ReadError::TopicGone { topic: topic.to_owned() });
    }
    tracing::warn!(topic, "a broker does not know the topic, the cluster does");
    Ok(())
}

/// Passes a line of the client's log on. Levels are those of syslog.
pub(super) fn log(level: i32, facility: &str, text: &str) {
    match level {
        ..=3 => tracing::error!(target: "librdkafka", facility, "{text}"),
        4 => tracing::warn!(target: "librdkafka", facility, "{text}"),
        5 | 6 => tracing::info!(target: "librdkafka", facility, "{text}"),
        _ => tracing::debug!(target: "librdkafka", facility, "{text}"),
    }
}
