//! The job: a topic, an exchange by key, a target.

use std::time::Duration;

use levada_core::{BoxError, Change, Keyed, Row, Shape, Value};
use levada_engine::checkpoint::{CheckpointSettings, RestartStrategy};
use levada_engine::driver::{FileCommitter, Retry, TwoPhaseOptions};
use levada_engine::{CheckpointedJob, Flow, Input, Job};
use levada_files::{FileSink, FileSinkConfig};
use levada_kafka::sink::producing::{
    InBatch, KafkaSinkConfig, Message, Outgoing, Serialise, TransactionTimeout,
};
use levada_kafka::sink::two_phase::TransactionalSink;
use levada_kafka::source::{Headers, KafkaSource, KafkaSourceConfig, StopAt};
use levada_postgres::quote::TableName;
use levada_postgres::{PostgresSinkConfig, PostgresWriteAhead, WriteMode};

use super::wrong::{LeavesPending, MarksFirst, NeverKnows, PublishesEarly};
use super::wrong_kafka::{InitialisesFirst, OneEpoch};
use super::{AppendingSink, Target, Told, key_and_number, markers};

/// Short, so that a life of a second has several.
const INTERVAL: Duration = Duration::from_millis(100);

/// Small, so that a segment has some and a rest.
const PIECE_BYTES: usize = 6 << 10;

/// Brokers and program share a clock, and commits take milliseconds.
const MARGIN: Duration = Duration::from_millis(300);

/// What brokers allow transactions unless they are told otherwise.
const TRANSACTIONS: Duration = Duration::from_secs(900);

/// A failure of a task is over at once: what fails are the tests' own fail points.
const RESTARTS: RestartStrategy =
    RestartStrategy::FixedDelay { attempts: u32::MAX, delay: Duration::from_millis(10) };

const RETRY: Retry =
    Retry { first_pause: Duration::from_millis(20), longest_pause: Duration::from_millis(200), attempts: 20 };

/// Makes the job that a life is told to run.
pub fn job(told: &Told) -> CheckpointedJob {
    let flow = flow(told);
    let job = match &told.target {
        Target::Files | Target::FilesPublishedEarly | Target::FilesLeftPending => to_files(flow, told),
        Target::Appended | Target::AppendedMarkedFirst | Target::AppendedNeverKnown => appended(flow, told),
        Target::Rows(url) => to_rows(flow, url, false),
        Target::RowsMarkedApart(url) => to_rows(flow, url, true),
        Target::Topic(topic, timeout) => to_topic(flow, told, topic, *timeout),
        Target::TopicInitialisedFirst(topic) | Target::TopicOfOneEpoch(topic) => {
            to_topic(flow, told, topic, TRANSACTIONS)
        }
    };
    let settings = CheckpointSettings { interval: Some(INTERVAL), ..CheckpointSettings::default() };
    let settings = match &told.target {
        // A transaction has to outlast its checkpoint.
        Target::Topic(_, timeout) => {
            CheckpointSettings { timeout: settings.timeout.min(*timeout / 2), ..settings }
        }
        _ => settings,
    };
    let job = job.checkpoints(settings).piece_bytes(PIECE_BYTES);
    let job = if told.restarts { job.restarts(RESTARTS) } else { job };
    if told.takes_over { job.take_over() } else { job }
}

fn flow(told: &Told) -> Flow<String, String> {
    let stop = if told.until_now { StopAt::LatestAtStart } else { StopAt::Never };
    let config = KafkaSourceConfig::new(told.brokers.as_str(), [told.topic.as_str()])
        .headers(Headers::Skip)
        .stop_at(stop);
    Job::new("loop")
        .parallelism(told.parallelism)
        .source("topic", move |_| {
            KafkaSource::new(config.clone()).expect("settings that can be checked here")
        })
        .map("line", |input| line(&input))
        .checkpointed()
        .key_by("key", |line: &String| key_and_number(line).map(|(key, _)| key.to_owned()))
}

fn line(input: &Input<'_, ()>) -> Result<String, BoxError> {
    let (key, value) = (input.key().ok_or("no key")?, input.value().ok_or("no value")?);
    let line = format!("{} {}", str::from_utf8(key)?, str::from_utf8(value)?);
    key_and_number(&line).ok_or("no number")?;
    Ok(line)
}

fn to_files(flow: Flow<String, String>, told: &Told) -> CheckpointedJob {
    let config = FileSinkConfig::new(told.home.join("out"), "files").suffix(".txt");
    let options = TwoPhaseOptions { retry: RETRY, ..TwoPhaseOptions::default() };
    let sink = move || FileSink::<String>::new(config.clone());
    match told.target {
        Target::FilesPublishedEarly => flow.two_phase_sink("files", options, move |_| PublishesEarly(sink())),
        Target::FilesLeftPending => {
            flow.two_phase_sink("files", options, move |_| LeavesPending::new(sink()))
        }
        _ => flow.two_phase_sink("files", options, move |_| sink()),
    }
}

fn appended(flow: Flow<String, String>, told: &Told) -> CheckpointedJob {
    let home = told.home.clone();
    let pair = move || (AppendingSink::new(&home), FileCommitter::new(markers::folder(&home)));
    match told.target {
        Target::AppendedMarkedFirst => flow.write_ahead_sink("appended", RETRY, move |_| {
            let (sink, committer) = pair();
            (sink, MarksFirst(committer))
        }),
        Target::AppendedNeverKnown => flow.write_ahead_sink("appended", RETRY, move |_| {
            let (sink, committer) = pair();
            (sink, NeverKnows(committer))
        }),
        _ => flow.write_ahead_sink("appended", RETRY, move |_| pair()),
    }
}

fn to_rows(flow: Flow<String, String>, url: &str, is_marked_apart: bool) -> CheckpointedJob {
    let table = TableName::new("log").expect("a name");
    let config = PostgresSinkConfig::from_url(url, table, WriteMode::Insert).expect("a URL");
    #[cfg(feature = "failpoints")]
    if is_marked_apart {
        fail::cfg("pgwal::without_marker", "return").expect("a fail point");
    }
    flow.map("row", |input| row(input.item())).write_ahead_sink("rows", RETRY, move |_| {
        let (sink, committer) = PostgresWriteAhead::with_committer(config.clone());
        (sink, if is_marked_apart { committer.alone() } else { committer })
    })
}

fn to_topic(flow: Flow<String, String>, told: &Told, topic: &str, timeout: Duration) -> CheckpointedJob {
    let options = TwoPhaseOptions { retry: RETRY, ..TwoPhaseOptions::default() };
    let (brokers, topic) = (told.brokers.clone(), topic.to_owned());
    // Three subtasks share one: so from life to life there are more, or fewer, or it is the default.
    let writers = if told.parallelism == 3 { 1 } else { told.parallelism };
    match told.target {
        Target::TopicInitialisedFirst(_) => flow.two_phase_sink("out", options, move |_| {
            InitialisesFirst::new(topic_sink(&brokers, &topic, writers, timeout), &brokers)
        }),
        Target::TopicOfOneEpoch(_) => {
            flow.two_phase_sink("out", options, move |_| OneEpoch::new(&brokers, &topic))
        }
        _ => flow.two_phase_sink("out", options, move |_| topic_sink(&brokers, &topic, writers, timeout)),
    }
}

/// The sink, whose transactional ids begin with the topic's name.
fn topic_sink(
    brokers: &str,
    topic: &str,
    writers: u32,
    timeout: Duration,
) -> TransactionalSink<String, impl Serialise<String> + use<>> {
    let timeout = TransactionTimeout::After(timeout);
    let config = KafkaSinkConfig::new(brokers).topics([topic]).writers(writers).transaction_timeout(timeout);
    let to = topic.to_owned();
    let serialise = move |record: InBatch<'_, String>, out: &mut Outgoing| -> Result<(), BoxError> {
        let line: &String = record.item();
        let (key, _) = key_and_number(line).ok_or("no number")?;
        out.push(&Message::to(&to).key(key.as_bytes()).value(line.as_bytes()));
        Ok(())
    };
    let sink = TransactionalSink::new(config, topic, "out", serialise);
    sink.expect("settings that can be checked here").margin(MARGIN)
}

fn row(line: &str) -> Result<Keyed, BoxError> {
    let (key, number) = key_and_number(line).ok_or("no number")?;
    let values = vec![Value::Text(key.into()), Value::Number(number.to_string().as_str().into())];
    Ok(Keyed { key: None, change: Change::Upsert(Row::new(Shape::new(["key", "n"]), values)) })
}
