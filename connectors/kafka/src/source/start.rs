//! Opening: which topics there are, what they are called for good, and where their partitions start and stop.
//!
//! Runs on the consumer's thread. Every question is asked in slices of a second, so that an answer that never comes
//! does not outlive the deadline or a source that was dropped, and so that the client's errors are seen in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_core::{Assignment, Position, Positions, SplitId, SplitStart, StreamId, StreamStart};
use rdkafka::Offset;
use rdkafka::consumer::Consumer;
use rdkafka::error::RDKafkaErrorCode;

use super::assign::owned_splits;
use super::client::at_offsets;
use super::config::{KafkaSourceConfig, StartAt, StopAt};
use super::error::{ClientError, ReadError};
use super::events::{Client, Event, TopicDescription};
use super::handover::Exchange;
use super::status::SourceStatus;

/// The longest that one question waits before the client's errors are looked at.
const SLICE: Duration = Duration::from_secs(1);

/// What opening found.
#[derive(Debug)]
pub(super) struct Opened {
    /// The splits of this subtask, and every stream with the starts of all its splits.
    pub(super) assignment: Assignment,
    /// Where this subtask's splits end, if the read is bounded.
    pub(super) stops: Option<Positions>,
}

/// Asks the cluster, with a deadline.
pub(super) struct Opener<'a> {
    pub(super) client: &'a Client,
    pub(super) config: &'a KafkaSourceConfig,
    pub(super) exchange: &'a Exchange,
    pub(super) status: &'a SourceStatus,
    pub(super) started: Instant,
    pub(super) last_error: Option<ClientError>,
}

/// The first and the next offset of a split.
#[derive(Clone, Copy)]
struct Ends {
    low: u64,
    high: u64,
}

impl Opener<'_> {
    /// Finds everything that subtask `subtask` of `parallelism` must know.
    pub(super) fn open(mut self, subtask: u32, parallelism: u32) -> Result<Opened, ReadError> {
        let topics = self.describe()?;
        let client = self.client;
        let cluster = self.ask("asking for the cluster's id", |patience| {
            client.cluster_id(patience).ok_or(ClientError {
                code: RDKafkaErrorCode::OperationTimedOut,
                text: "no broker told the cluster's id".to_owned(),
            })
        })?;
        let ends = self.ends(&topics)?;
        Ok(self.resolve(&topics, &cluster, &ends, subtask, parallelism))
    }

    fn describe(&mut self) -> Result<Vec<TopicDescription>, ReadError> {
        let client = self.client;
        let config = self.config;
        let topics = self.ask("asking for the topics", |patience| {
            let topics = client.describe_topics(&config.topics, patience)?;
            // A topic that has no leader yet is asked for again.
            let unready = topics.iter().find_map(|topic| topic.error().filter(ClientError::is_retriable));
            unready.map_or(Ok(topics), Err)
        })?;
        for topic in &topics {
            let Some(cause) = topic.error() else { continue };
            let name = topic.name.clone();
            return Err(match cause.code {
                RDKafkaErrorCode::UnknownTopicOrPartition => ReadError::MissingTopic { topic: name },
                _ => ReadError::Topic { topic: name, cause },
            });
        }
        Ok(topics)
    }

    /// Asks for the ends of all partitions, the low ones before the high ones. With `read_committed`, the high end is
    /// the last stable offset: the client passes its isolation level on.
    fn ends(&mut self, topics: &[TopicDescription]) -> Result<BTreeMap<SplitId, Ends>, ReadError> {
        let splits: Vec<SplitId> = topics.iter().flat_map(splits_of).collect();
        let low = self.offsets(&splits, Offset::Beginning)?;
        let high = self.offsets(&splits, Offset::End)?;
        // Retention may move the low end past the high one that was asked for a moment later only on an empty split.
        let ends = |(split, low): (SplitId, u64)| {
            let high = high.get(&split).copied().unwrap_or(low).max(low);
            (split, Ends { low, high })
        };
        Ok(low.into_iter().map(ends).collect())
    }

    fn offsets(&mut self, splits: &[SplitId], which: Offset) -> Result<BTreeMap<SplitId, u64>, ReadError> {
        if splits.is_empty() {
            return Ok(BTreeMap::new());
        }
        let client = self.client;
        let question = at_offsets(splits.iter().map(|split| (split, which)))?;
        let answer = self.ask("asking for the partitions' offsets", |patience| {
            let answer = client.consumer().offsets_for_times(question.clone(), patience);
            let answer = answer.map_err(|cause| ClientError::of(&cause))?;
            match answer.elements().iter().find_map(|element| element.error().err()) {
                Some(cause) => Err(ClientError::of(&cause)),
                None => Ok(answer),
            }
        })?;
        let known: BTreeMap<(&str, u32), &SplitId> =
            splits.iter().map(|split| ((&*split.stream, split.index), split)).collect();
        let elements = answer.elements();
        let offset = |element: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| {
            let split = known.get(&(element.topic(), u32::try_from(element.partition()).ok()?))?;
            let offset = u64::try_from(element.offset().to_raw()?).ok()?;
            Some(((*split).clone(), offset))
        };
        let offsets: BTreeMap<SplitId, u64> = elements.iter().filter_map(offset).collect();
        match splits.iter().find(|split| !offsets.contains_key(split)) {
            Some(split) => Err(ReadError::NoOffsets { split: split.clone() }),
            None => Ok(offsets),
        }
    }

    fn resolve(
        &self,
        topics: &[TopicDescription],
        cluster: &str,
        ends: &BTreeMap<SplitId, Ends>,
        subtask: u32,
        parallelism: u32,
    ) -> Opened {
        let mut opened = Opened {
            assignment: Assignment::default(),
            stops: (self.config.stop == StopAt::LatestAtStart).then(Positions::new),
        };
        for topic in topics {
            let owned = owned_splits(&topic.name, topic.partitions, subtask, parallelism);
            if owned.is_empty() {
                continue;
            }
            let stream = self.stream_start(topic, cluster, ends);
            for index in owned {
                let split = SplitId { stream: Arc::clone(&stream.stream), index };
                if let (Some(stops), Some(ends)) = (&mut opened.stops, ends.get(&split)) {
                    stops.set(split.clone(), Position::at(ends.high));
                }
                opened.assignment.splits.push(split);
            }
            opened.assignment.streams.push(stream);
        }
        opened.assignment.ends = opened.stops.clone().unwrap_or_default();
        opened
    }

    fn stream_start(
        &self,
        topic: &TopicDescription,
        cluster: &str,
        ends: &BTreeMap<SplitId, Ends>,
    ) -> StreamStart {
        let starts = splits_of(topic).filter_map(|split| {
            let ends = ends.get(&split)?;
            let start = match self.config.start {
                StartAt::Earliest => ends.low,
                StartAt::Latest => ends.high,
            };
            Some(SplitStart {
                index: split.index,
                start: Position::at(start),
                earliest: Position::at(ends.low),
            })
        });
        // Brokers before 2.8 know no topic ids: the name is the best that there is.
        let id = topic.id.as_deref().map_or_else(|| topic.name.clone(), as_kafka_prints);
        StreamStart {
            stream: topic.name.as_str().into(),
            id: StreamId(format!("{cluster}/{id}").into()),
            splits: starts.collect(),
        }
    }

    /// Asks again until there is an answer, an error that waiting does not help, or the deadline.
    fn ask<T>(
        &mut self,
        doing: &'static str,
        mut question: impl FnMut(Duration) -> Result<T, ClientError>,
    ) -> Result<T, ReadError> {
        loop {
            let left = self.config.open_within.saturating_sub(self.started.elapsed());
            let asked = Instant::now();
            let error = match question(left.min(SLICE)) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // An answer that came at once is not asked for again at once: the client's events take up the slice.
            self.drain_errors(SLICE.min(left).saturating_sub(asked.elapsed()).min(SLICE / 5))?;
            if !error.is_retriable() {
                return Err(ReadError::Client(error));
            }
            self.last_error.get_or_insert(error);
            if self.exchange.has_commands() {
                return Err(ReadError::GivenUp); // before it is open, the only command is to stop
            }
            if self.started.elapsed() >= self.config.open_within {
                return Err(ReadError::Open {
                    bootstrap: self.config.bootstrap.clone(),
                    within: self.config.open_within,
                    doing,
                    last: self.last_error.take(),
                });
            }
        }
    }

    /// Takes the client's events, for at least `patience`, and keeps the last error.
    fn drain_errors(&mut self, patience: Duration) -> Result<(), ReadError> {
        let until = Instant::now() + patience;
        while let Some(mut event) = self.client.poll(until.saturating_duration_since(Instant::now())) {
            let Event::Error(failure) = event.view() else { continue };
            self.status.count_error(&failure.error);
            if failure.error.code == RDKafkaErrorCode::Authentication {
                let bootstrap = self.config.bootstrap.clone();
                return Err(ReadError::Authentication { bootstrap, cause: failure.error });
            }
            // The reason is worth more than the sum of it.
            if failure.error.code != RDKafkaErrorCode::AllBrokersDown || self.last_error.is_none() {
                self.last_error = Some(failure.error);
            }
        }
        Ok(())
    }
}

fn splits_of(topic: &TopicDescription) -> impl Iterator<Item = SplitId> {
    let stream: Arc<str> = topic.name.as_str().into();
    (0..topic.partitions).map(move |index| SplitId { stream: Arc::clone(&stream), index })
}

/// Writes an id as Kafka's own tools do, so that whoever is told it can look for it: in base64 for URLs, and not as the
/// client writes it.
fn as_kafka_prints(id: &str) -> String {
    id.replace('+', "-").replace('/', "_")
}

#[cfg(test)]
mod tests {
    use super::as_kafka_prints;

    /// [SRC-07] the two ids in the refusal of a topic that was made anew are those that `kafka-topics --describe` shows.
    #[test]
    fn topic_id_reads_as_in_kafkas_own_tools() {
        assert_eq!(as_kafka_prints("tXxPC7QjQ+SXiHh/3GXnrw"), "tXxPC7QjQ-SXiHh_3GXnrw");
    }
}
