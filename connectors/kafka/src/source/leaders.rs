//! Asking the leaders of splits where the splits end, beside the consumer's loop.
//!
//! ```text
//!   ask ── questions ──▶ thread: all that wait, in one request for each broker ── answers ──▶ exchange ──▶ poll
//! ```
//!
//! [TIM-05] An answer counts as proof that nothing waits, so it must not come from the consumer: that knows what its last
//! fetch said, and under `read_committed` not what lies behind an open transaction. This client reads uncommitted, and
//! every answer is asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use levada_core::time::{Question, SplitEvent};
use levada_core::{ErrorClass, SourceContext, SourceError, SplitId};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::{ClientConfig, ClientContext, Offset};

use super::client::{at_offsets, client_config};
use super::config::{Isolation, KafkaSourceConfig};
use super::contact::{Contact, OutOfContact};
use super::error::ReadError;
use super::events::knows_broker;
use super::handover::{Exchange, Handover, News, ReadingId};
use super::offsets;
use super::producers::{Behind, Finder, Then};
use super::retire::retire;
use super::status::SourceStatus;

/// A question, and the reading it is about.
type Asked = (ReadingId, SplitId, Question);

/// Asks on a thread of its own, with a client of its own. Both are made at the first question: who has no idle timeout
/// pays for neither.
pub(super) struct Asker {
    config: ClientConfig,
    exchange: Arc<Exchange>,
    status: Arc<SourceStatus>,
    finder: Finder,
    thread: Option<(mpsc::Sender<Vec<Asked>>, JoinHandle<()>)>,
}

impl Asker {
    pub(super) fn new(
        config: &KafkaSourceConfig,
        ctx: &SourceContext,
        exchange: Arc<Exchange>,
        status: Arc<SourceStatus>,
        finder: Finder,
    ) -> Self {
        Self { config: leaders_config(config, ctx), exchange, status, finder, thread: None }
    }

    /// Sends questions off. The answers, or that there are none, come as news.
    pub(super) fn ask(&mut self, questions: Vec<Asked>) -> Result<(), SourceError> {
        let failed = |text: &str| SourceError::new(ErrorClass::Fatal, text);
        let (sender, _) = match &mut self.thread {
            Some(running) => running,
            None => {
                let started =
                    self.start().map_err(|cause| failed("start the asking thread").caused_by(cause))?;
                self.thread.insert(started)
            }
        };
        sender.send(questions).map_err(|_| failed("the thread that asks for the ends of splits has ended"))
    }

    fn start(&self) -> std::io::Result<(mpsc::Sender<Vec<Asked>>, JoinHandle<()>)> {
        let (sender, questions) = mpsc::channel();
        let (config, exchange, status) =
            (self.config.clone(), Arc::clone(&self.exchange), Arc::clone(&self.status));
        let finder = self.finder.clone();
        let run = move || answer_all(&config, &exchange, &status, &finder, &questions);
        let thread = std::thread::Builder::new().name("kafka-leaders".to_owned()).spawn(run)?;
        Ok((sender, thread))
    }

    /// Lets the thread end, after the question that it is at: [`Question::DEADLINE`] at the latest.
    pub(super) fn stop(&mut self) -> Option<JoinHandle<()>> {
        self.thread.take().map(|(_, thread)| thread)
    }
}

/// Answers questions until nobody can ask any more. What has waited meanwhile is asked together.
///
/// While the consumer has no broker, no answer counts: it may not know of what this client is told.
fn answer_all(
    config: &ClientConfig,
    exchange: &Exchange,
    status: &SourceStatus,
    finder: &Finder,
    questions: &mpsc::Receiver<Vec<Asked>>,
) {
    let mut asking = Asking { config, status, contact: Contact::default(), leaders: None };
    while let Ok(mut asked) = questions.recv() {
        asked.extend(questions.try_iter().flatten());
        if asked.is_empty() {
            continue;
        }
        let mut news = asking.answer(asked);
        if status.is_cut_off() {
            news.iter_mut().for_each(|(_, _, event)| *event = unanswered(*event));
        }
        let behind = news.iter().filter_map(behind).collect();
        exchange.offer(Handover::News(news));
        finder.find(behind);
    }
}

/// Where the leader has more than may be read, a transaction may be in front.
fn behind((reading, split, event): &News) -> Option<Behind> {
    let SplitEvent::Answer { question, high_watermark } = event else { return None };
    let position = question.position();
    let behind = || Behind { split: split.clone(), position, then: Then::Tell(*reading) };
    (*high_watermark > position).then(behind)
}

fn unanswered(event: SplitEvent) -> SplitEvent {
    match event {
        SplitEvent::Answer { question, .. } => SplitEvent::NoAnswer { question },
        event => event,
    }
}

/// One client after the other that asks.
struct Asking<'a> {
    config: &'a ClientConfig,
    status: &'a SourceStatus,
    contact: Contact,
    leaders: Option<Leaders>,
}

impl Asking<'_> {
    fn answer(&mut self, asked: Vec<Asked>) -> Vec<News> {
        let ends = self.ends(&asked).unwrap_or_else(|error| {
            tracing::warn!(%error, "no client could be made to ask for the ends of splits");
            BTreeMap::new()
        });
        let event = |(reading, split, question): Asked| {
            let event = match ends.get(&split) {
                Some(&high_watermark) => SplitEvent::Answer { question, high_watermark },
                None => SplitEvent::NoAnswer { question },
            };
            (reading, split, event)
        };
        asked.into_iter().map(event).collect()
    }

    /// Asks with the client that is there, or with a new one. One that has let go of all brokers, or was silent for long, is
    /// replaced.
    fn ends(&mut self, asked: &[Asked]) -> Result<BTreeMap<SplitId, u64>, ReadError> {
        self.renew_if_let_go();
        let leaders = match &mut self.leaders {
            Some(leaders) => leaders,
            none => none.insert(Leaders::new(self.config)?),
        };
        let ends = leaders.ends(asked);
        let knows_broker = knows_broker(leaders.consumer());
        if !ends.is_empty() {
            self.contact.answered();
        } else if let Some(silent) = self.contact.unanswered(knows_broker, Instant::now()) {
            self.renew(OutOfContact::IsSilent(silent));
        }
        self.renew_if_let_go();
        Ok(ends)
    }

    fn renew_if_let_go(&mut self) {
        let Some(leaders) = &self.leaders else { return };
        if self.contact.has_let_go(knows_broker(leaders.consumer())) {
            self.renew(OutOfContact::HasLetGo);
        }
    }

    fn renew(&mut self, why: OutOfContact) {
        let Some(Leaders { consumer, .. }) = self.leaders.take() else { return };
        retire(consumer);
        self.contact.renewed(why);
        self.status.count_renewal();
        tracing::warn!(reason = %why, "a new Kafka client takes the place of the one that asked where splits end");
    }
}

/// The leaders of partitions, asked for what is there, committed or not.
pub(super) struct Leaders {
    consumer: BaseConsumer<Told>,
    /// Who leads which split, as far as the cluster has told. Only to ask each leader apart from the others.
    known: BTreeMap<SplitId, i32>,
}

impl Leaders {
    pub(super) fn new(config: &ClientConfig) -> Result<Self, ReadError> {
        let consumer = config.create_with_context(Told).map_err(ReadError::of_creation)?;
        Ok(Self { consumer, known: BTreeMap::new() })
    }

    pub(super) fn consumer(&self) -> &BaseConsumer<Told> {
        &self.consumer
    }

    /// Returns the ends that are told in time. Each leader is asked apart, all at once: one that is away would leave the whole
    /// list without an answer.
    fn ends(&mut self, asked: &[Asked]) -> BTreeMap<SplitId, u64> {
        let until = Instant::now() + Question::DEADLINE;
        let splits: BTreeSet<&SplitId> = asked.iter().map(|(_, split, _)| split).collect();
        self.learn(&splits);
        let parts = self.parts(&splits);
        let ends: BTreeMap<SplitId, u64> = std::thread::scope(|scope| {
            let this = &*self;
            let threads: Vec<_> =
                parts.iter().map(|part| scope.spawn(move || this.ends_of(part, until))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
        });
        // Who gave no answer may lead no longer.
        for split in splits {
            if !ends.contains_key(split) {
                self.known.remove(split);
            }
        }
        // The client's own events (errors, wanted tokens) pile up until somebody looks.
        while self.consumer.poll(Duration::ZERO).is_some() {}
        ends
    }

    /// Asks one leader. One partition that is gone leaves the whole list without an answer, so after an error each half is
    /// asked again.
    fn ends_of(&self, splits: &[&SplitId], until: Instant) -> BTreeMap<SplitId, u64> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || splits.is_empty() {
            return BTreeMap::new();
        }
        let list = at_offsets(splits.iter().map(|split| (*split, Offset::End)));
        let error = match list.map(|list| offsets::at(&self.consumer, list, left)) {
            Ok(Ok(ends)) => return ends,
            Ok(Err(error)) => error,
            Err(error) => {
                tracing::warn!(%error, "a split that nobody can be asked about");
                return BTreeMap::new();
            }
        };
        tracing::debug!(%error, splits = splits.len(), "no answer to where splits end");
        if splits.len() == 1 {
            return BTreeMap::new();
        }
        let (first, second) = splits.split_at(splits.len() / 2);
        let mut ends = self.ends_of(first, until);
        ends.append(&mut self.ends_of(second, until));
        ends
    }

    /// Finds out who leads the splits of which that is not known.
    fn learn(&mut self, splits: &BTreeSet<&SplitId>) {
        let unknown = splits.iter().filter(|split| !self.known.contains_key(**split));
        let topics: BTreeSet<&str> = unknown.map(|split| &*split.stream).collect();
        for topic in topics {
            let Ok(metadata) = self.consumer.fetch_metadata(Some(topic), Question::DEADLINE / 5) else {
                continue; // they are asked together then
            };
            for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
                if let Ok(index) = u32::try_from(partition.id()) {
                    self.known.insert(SplitId::new(topic, index), partition.leader());
                }
            }
        }
    }

    /// Sorts splits by their leader.
    fn parts<'s>(&self, splits: &BTreeSet<&'s SplitId>) -> Vec<Vec<&'s SplitId>> {
        let mut parts: BTreeMap<i32, Vec<&SplitId>> = BTreeMap::new();
        for &split in splits {
            let leader = self.known.get(split).copied().unwrap_or(-1);
            parts.entry(leader).or_default().push(split);
        }
        parts.into_values().collect()
    }
}

/// The consumer's configuration, with everything that its security needs, for a client that only asks.
pub(super) fn leaders_config(config: &KafkaSourceConfig, ctx: &SourceContext) -> ClientConfig {
    let mut client = client_config(config, &ctx.budget, ctx.subtask, ctx.parallelism);
    client
        .set("isolation.level", Isolation::ReadUncommitted.as_property())
        .set("client.id", format!("{}-{}-leaders", config.client_id, ctx.subtask))
        .set_log_level(RDKafkaLogLevel::Info);
    if !config.properties.contains_key("debug") {
        client.remove("debug");
    }
    client
}

/// Passes on what the client tells. What goes wrong shows in answers that do not come.
pub(super) struct Told;

impl ClientContext for Told {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        super::serve::log(level as i32, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "the client that asks for the ends of splits reports an error");
    }
}

impl ConsumerContext for Told {}
