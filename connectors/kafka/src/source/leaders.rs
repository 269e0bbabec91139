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
use super::error::ReadError;
use super::handover::{Exchange, Handover, News, ReadingId};
use super::offsets;

/// A question, and the reading it is about.
type Asked = (ReadingId, SplitId, Question);

/// Asks on a thread of its own, with a client of its own. Both are made at the first question: who has no idle timeout
/// pays for neither.
pub(super) struct Asker {
    config: ClientConfig,
    exchange: Arc<Exchange>,
    thread: Option<(mpsc::Sender<Vec<Asked>>, JoinHandle<()>)>,
}

impl Asker {
    pub(super) fn new(config: &KafkaSourceConfig, ctx: &SourceContext, exchange: Arc<Exchange>) -> Self {
        Self { config: leaders_config(config, ctx), exchange, thread: None }
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
        let (config, exchange) = (self.config.clone(), Arc::clone(&self.exchange));
        let run = move || answer_all(&config, &exchange, &questions);
        let thread = std::thread::Builder::new().name("kafka-leaders".to_owned()).spawn(run)?;
        Ok((sender, thread))
    }

    /// Lets the thread end, after the question that it is at: [`Question::DEADLINE`] at the latest.
    pub(super) fn stop(&mut self) -> Option<JoinHandle<()>> {
        self.thread.take().map(|(_, thread)| thread)
    }
}

/// Answers questions until nobody can ask any more. What has waited meanwhile is asked together.
fn answer_all(config: &ClientConfig, exchange: &Exchange, questions: &mpsc::Receiver<Vec<Asked>>) {
    let mut leaders = None;
    while let Ok(mut asked) = questions.recv() {
        asked.extend(questions.try_iter().flatten());
        if asked.is_empty() {
            continue;
        }
        exchange.offer(Handover::News(answer(&mut leaders, config, asked)));
    }
}

fn answer(leaders: &mut Option<Leaders>, config: &ClientConfig, asked: Vec<Asked>) -> Vec<News> {
    let ends = match leaders {
        Some(leaders) => leaders.ends(&asked),
        None => match Leaders::new(config) {
            Ok(made) => leaders.insert(made).ends(&asked),
            Err(error) => {
                tracing::warn!(%error, "no client could be made to ask for the ends of splits");
                BTreeMap::new()
            }
        },
    };
    let event = |(reading, split, question): Asked| {
        let event = match ends.get(&split) {
            Some(&high_watermark) => SplitEvent::Answer { question, high_watermark },
            None => SplitEvent::NoAnswer { question },
        };
        (reading, split, event)
    };
    asked.into_iter().map(event).collect()
}

/// The leaders of partitions, asked for what is there, committed or not.
pub(super) struct Leaders(BaseConsumer<Told>);

impl Leaders {
    pub(super) fn new(config: &ClientConfig) -> Result<Self, ReadError> {
        config.create_with_context(Told).map(Self).map_err(ReadError::of_creation)
    }

    pub(super) fn consumer(&self) -> &BaseConsumer<Told> {
        &self.0
    }

    fn ends(&self, asked: &[Asked]) -> BTreeMap<SplitId, u64> {
        let until = Instant::now() + Question::DEADLINE;
        let splits: BTreeSet<&SplitId> = asked.iter().map(|(_, split, _)| split).collect();
        let ends = self.ends_of(&splits.into_iter().collect::<Vec<_>>(), until);
        // The client's own events (errors, wanted tokens) pile up until somebody looks.
        while self.0.poll(Duration::ZERO).is_some() {}
        ends
    }

    /// Returns the ends that are told in time.
    ///
    /// One broker that is away, or one partition that is gone, leaves the whole list without an answer. So that is then
    /// asked again in parts: by leader, and in halves where a leader answers with an error.
    fn ends_of(&self, splits: &[&SplitId], until: Instant) -> BTreeMap<SplitId, u64> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return BTreeMap::new();
        }
        let is_one = splits.len() == 1;
        let patience = if is_one { left } else { left / 2 };
        let list = at_offsets(splits.iter().map(|split| (*split, Offset::End)));
        let error = match list.map(|list| offsets::at(&self.0, list, patience)) {
            Ok(Ok(ends)) => return ends,
            Ok(Err(error)) => error,
            Err(error) => {
                tracing::warn!(%error, "a split that nobody can be asked about");
                return BTreeMap::new();
            }
        };
        tracing::debug!(%error, splits = splits.len(), "no answer to where splits end");
        if is_one {
            return BTreeMap::new();
        }
        let was_slow = until.saturating_duration_since(Instant::now()) < left / 2 + left / 8;
        match self.parts(splits) {
            parts if parts.len() > 1 => self.ends_of_parts(&parts, until),
            _ if was_slow => BTreeMap::new(),
            _ => {
                let (first, second) = splits.split_at(splits.len() / 2);
                self.ends_of_parts(&[first.to_vec(), second.to_vec()], until)
            }
        }
    }

    fn ends_of_parts(&self, parts: &[Vec<&SplitId>], until: Instant) -> BTreeMap<SplitId, u64> {
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                parts.iter().map(|part| scope.spawn(|| self.ends_of(part, until))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
        })
    }

    /// Sorts splits by their leader, as far as the cluster tells.
    fn parts<'s>(&self, splits: &[&'s SplitId]) -> Vec<Vec<&'s SplitId>> {
        let topics: BTreeSet<&str> = splits.iter().map(|split| &*split.stream).collect();
        let mut leaders = BTreeMap::new();
        for topic in topics {
            let Ok(metadata) = self.0.fetch_metadata(Some(topic), Question::DEADLINE / 10) else { continue };
            for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
                leaders.insert((topic, partition.id()), partition.leader());
            }
        }
        let mut parts: BTreeMap<i32, Vec<&SplitId>> = BTreeMap::new();
        for &split in splits {
            let index = i32::try_from(split.index).unwrap_or(-1);
            let leader = leaders.get(&(&*split.stream, index)).copied().unwrap_or(-1);
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
