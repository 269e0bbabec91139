//! Opening: which topics there are, what they are called for good, and where their partitions start and stop.
//!
//! Runs on the consumer's thread. Every question is asked in slices of a second, so that an answer that never comes
//! does not outlive the deadline or a source that was dropped, and so that the client's errors are seen in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_core::{
    Assignment, Budget, Position, Positions, SourceContext, SplitId, SplitStart, StreamId, StreamStart,
};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{ClientConfig, Offset};

use super::assign::owned_splits;
use super::client::{at_offsets, client_config, partitions};
use super::config::{KafkaSourceConfig, StartAt, StopAt};
use super::contact::Contact;
use super::error::{ClientError, ReadError};
use super::events::{Client, Event, TopicDescription, knows_broker};
use super::handover::Exchange;
use super::leaders::{Leaders, leaders_config};
use super::offsets;
use super::resolve::{self, Known};
use super::status::SourceStatus;
use super::topic_ids::{TopicIds, as_kafka_prints};

/// The longest that one question waits before the client's errors are looked at.
const SLICE: Duration = Duration::from_secs(1);

/// What opening found.
#[derive(Debug)]
pub(super) struct Opened {
    /// The splits of this subtask, and every stream with the starts of all its splits.
    pub(super) assignment: Assignment,
    /// Where this subtask's splits end, if the read is bounded.
    pub(super) stops: Option<Positions>,
    /// What the topics are called for good.
    pub(super) topic_ids: TopicIds,
}

/// Asks the cluster, with a deadline.
pub(super) struct Opener<'a> {
    pub(super) client: &'a Client,
    pub(super) contact: Contact,
    pub(super) config: &'a KafkaSourceConfig,
    /// For a client that asks about all records, committed or not.
    pub(super) leaders: ClientConfig,
    pub(super) exchange: &'a Exchange,
    pub(super) status: &'a SourceStatus,
    pub(super) started: Instant,
    pub(super) last_error: Option<ClientError>,
    /// Lines of the client's log that came meanwhile.
    pub(super) log: Vec<String>,
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
        let splits: Vec<SplitId> = topics.iter().flat_map(splits_of).collect();
        let known = self.look_up(&splits)?;
        let opened = self.resolve(&topics, &cluster, &known, subtask, parallelism)?;
        self.log.iter().try_for_each(|line| opened.topic_ids.check(line))?;
        Ok(opened)
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

    /// Asks for everything that starts and stops need to know of all partitions.
    ///
    /// The low ends come before the high ones, and those before the times. With `read_committed`, `high` is the last stable
    /// offset: the client passes its isolation level on. Times are looked up among all records: a record of an open
    /// transaction may be the first of its time, and is read once it is committed.
    fn look_up(&mut self, splits: &[SplitId]) -> Result<Known, ReadError> {
        let config = self.config;
        if let Some(split) = resolve::unknown(splits, &config.start, &config.stop) {
            return Err(ReadError::UnknownSplit { split: split.clone() });
        }
        let mut known = Known::default();
        if splits.is_empty() {
            return Ok(known);
        }
        let consumer = self.client.consumer();
        known.low = self.all_offsets(consumer, splits, Offset::Beginning)?;
        known.high = self.all_offsets(consumer, splits, Offset::End)?;
        // Retention may move the low end past the high one that was asked for a moment later only on an empty split.
        for (split, high) in &mut known.high {
            *high = known.low.get(split).copied().unwrap_or(*high).max(*high);
        }
        let times = resolve::times(&config.start, &config.stop);
        if !times.is_empty() {
            let leaders = Leaders::new(&self.leaders)?;
            known.high_watermark = self.all_offsets(leaders.consumer(), splits, Offset::End)?;
            for time in times {
                // Negative numbers mean something else to brokers; no record of Kafka's is older.
                let which = Offset::Offset(time.0.max(0));
                known.at.insert(time, self.offsets(leaders.consumer(), splits, which)?);
            }
        }
        let asked = resolve::wants_committed(splits, &config.start, &config.stop);
        if !asked.is_empty() {
            known.committed = self.committed(&asked)?;
        }
        Ok(known)
    }

    fn committed(&mut self, splits: &[SplitId]) -> Result<BTreeMap<SplitId, u64>, ReadError> {
        let client = self.client;
        let question = partitions(splits)?;
        self.ask("asking for the group's offsets", |patience| {
            let answer = client.consumer().committed_offsets(question.clone(), patience);
            offsets::numbers(&answer.map_err(|cause| ClientError::of(&cause))?)
        })
    }

    fn all_offsets<C: ConsumerContext>(
        &mut self,
        consumer: &BaseConsumer<C>,
        splits: &[SplitId],
        which: Offset,
    ) -> Result<BTreeMap<SplitId, u64>, ReadError> {
        let offsets = self.offsets(consumer, splits, which)?;
        match splits.iter().find(|split| !offsets.contains_key(split)) {
            Some(split) => Err(ReadError::NoOffsets { split: split.clone() }),
            None => Ok(offsets),
        }
    }

    fn offsets<C: ConsumerContext>(
        &mut self,
        consumer: &BaseConsumer<C>,
        splits: &[SplitId],
        which: Offset,
    ) -> Result<BTreeMap<SplitId, u64>, ReadError> {
        let question = at_offsets(splits.iter().map(|split| (split, which)))?;
        let answer = self.ask("asking for the partitions' offsets", |patience| {
            offsets::at(consumer, question.clone(), patience)
        });
        match answer {
            // It says that a partition does not exist when it knows nobody who could tell.
            Err(ReadError::Client(_)) if !knows_broker(consumer) => Err(ReadError::LetGo),
            answer => answer,
        }
    }

    fn resolve(
        &self,
        topics: &[TopicDescription],
        cluster: &str,
        known: &Known,
        subtask: u32,
        parallelism: u32,
    ) -> Result<Opened, ReadError> {
        let mut opened = Opened {
            assignment: Assignment::default(),
            stops: (self.config.stop != StopAt::Never).then(Positions::new),
            topic_ids: TopicIds::default(),
        };
        for topic in topics {
            if let Some(id) = &topic.id {
                opened.topic_ids.set(&topic.name, id);
            }
            let owned = owned_splits(&topic.name, topic.partitions, subtask, parallelism);
            if owned.is_empty() {
                continue;
            }
            let stream = self.stream_start(topic, cluster, known)?;
            for index in owned {
                let split = SplitId { stream: Arc::clone(&stream.stream), index };
                let stop = known.stop(&split, &self.config.stop)?;
                if let (Some(stops), Some(stop)) = (&mut opened.stops, stop) {
                    stops.set(split.clone(), Position::at(stop));
                }
                opened.assignment.splits.push(split);
            }
            opened.assignment.streams.push(stream);
        }
        opened.assignment.ends = opened.stops.clone().unwrap_or_default();
        Ok(opened)
    }

    fn stream_start(
        &self,
        topic: &TopicDescription,
        cluster: &str,
        known: &Known,
    ) -> Result<StreamStart, ReadError> {
        let starts = splits_of(topic).map(|split| {
            let start = known.start(&split, &self.config.start)?;
            let earliest = known.start(&split, &StartAt::Earliest)?;
            let (start, earliest) = (Position::at(start), Position::at(earliest));
            Ok(SplitStart { index: split.index, start, earliest })
        });
        let splits = starts.collect::<Result<_, ReadError>>()?;
        // Brokers before 2.8 know no topic ids: the name is the best that there is.
        let id = topic.id.as_deref().map_or_else(|| topic.name.clone(), as_kafka_prints);
        Ok(StreamStart {
            stream: topic.name.as_str().into(),
            id: StreamId(format!("{cluster}/{id}").into()),
            splits,
        })
    }

    /// Asks again until there is an answer, an error that waiting does not help, or the deadline.
    fn ask<T>(
        &mut self,
        doing: &'static str,
        mut question: impl FnMut(Duration) -> Result<T, ClientError>,
    ) -> Result<T, ReadError> {
        loop {
            if self.contact.has_let_go(self.client.knows_broker()) {
                return Err(ReadError::LetGo);
            }
            let left = self.config.open_within.saturating_sub(self.started.elapsed());
            let asked = Instant::now();
            let error = match question(left.min(SLICE)) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // An answer that came at once is not asked for again at once: the client's events take up the slice.
            self.drain_errors(SLICE.min(left).saturating_sub(asked.elapsed()).min(SLICE / 5))?;
            if !error.is_retriable() && !self.contact.has_let_go(self.client.knows_broker()) {
                return Err(ReadError::Client(error));
            }
            self.last_error.get_or_insert(error);
            if self.exchange.is_stopped() {
                return Err(ReadError::GivenUp);
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
            let failure = match event.view() {
                Event::Error(failure) => failure,
                Event::Log { level, facility, text } => {
                    super::serve::log(level, facility, text);
                    self.log.push(text.to_owned());
                    continue;
                }
                _ => continue,
            };
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

/// Finds the configured start of one split as of now, with a client of its own. Blocks.
pub(super) fn resolve_now(config: &KafkaSourceConfig, split: &SplitId) -> Result<u64, ReadError> {
    let ctx = SourceContext { subtask: 0, parallelism: 1, budget: Budget::new(0) };
    let exchange = Exchange::default();
    let properties = client_config(config, &ctx.budget, ctx.subtask, ctx.parallelism);
    let client = Client::new(properties, Arc::clone(exchange.wake())).map_err(ReadError::of_creation)?;
    let mut opener = Opener {
        client: &client,
        contact: Contact::default(),
        config,
        leaders: leaders_config(config, &ctx),
        exchange: &exchange,
        status: &SourceStatus::default(),
        started: Instant::now(),
        last_error: None,
        log: Vec::new(),
    };
    opener.look_up(std::slice::from_ref(split))?.start(split, &config.start)
}

fn splits_of(topic: &TopicDescription) -> impl Iterator<Item = SplitId> {
    let stream: Arc<str> = topic.name.as_str().into();
    (0..topic.partitions).map(move |index| SplitId { stream: Arc::clone(&stream), index })
}
