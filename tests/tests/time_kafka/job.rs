//! The two kinds of jobs, over the same topic and with the same strategy.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use levada_core::template::WriteContext;
use levada_core::time::WatermarkStrategy;
use levada_core::{BoxError, Change, Keyed, Record, Row, Shape, Value};
use levada_engine::checkpoint::CheckpointSettings;
use levada_engine::store::Store;
use levada_engine::{CheckpointedHandle, Input, Job, JobHandle, Pipeline, TimeStatus};
use levada_kafka::source::{Headers, KafkaSource, KafkaSourceConfig};
use levada_postgres::quote::TableName;
use levada_postgres::{PostgresSink, PostgresSinkConfig, WriteMode};
use levada_testcontainers::{Database, Postgres};

use crate::clock::Hands;
use crate::watched::{Proof, Watched};

/// How long a split is at its end before its leader is asked.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);
/// From one tick to the next: short, since a test waits for them.
const INTERVAL: Duration = Duration::from_millis(20);

/// Which job, and over what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) kind: Kind,
    pub(crate) subtasks: u32,
    pub(crate) partitions: i32,
    pub(crate) drift: Option<Duration>,
    pub(crate) proof: Proof,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Into a table, with the positions.
    Atomic,
    /// With an exchange by key, so that what one subtask says holds for all.
    Checkpointed,
}

impl Setup {
    pub(crate) fn new(kind: Kind, subtasks: u32, partitions: i32) -> Self {
        Self { kind, subtasks, partitions, drift: None, proof: Proof::LeaderAsked }
    }

    fn strategy(&self) -> WatermarkStrategy<i64> {
        let bounded = WatermarkStrategy::bounded_out_of_orderness(Duration::from_millis(10));
        let strategy =
            bounded.idle_after(TIMEOUT).and_then(|strategy| strategy.every(INTERVAL)).expect("a strategy");
        match self.drift {
            Some(limit) => strategy.within_drift("group", limit),
            None => strategy,
        }
    }
}

/// A running job, and where its records go.
pub(crate) enum Running {
    Atomic(JobHandle, Database),
    Checkpointed(CheckpointedHandle, Arc<Mutex<Vec<i64>>>),
}

/// The place of the poll counter of each subtask.
pub(crate) type Polls = Vec<Arc<AtomicU64>>;

/// Starts a job on the current runtime.
pub(crate) async fn start(setup: Setup, brokers: &str, topic: &str, clock: &Hands, polls: &Polls) -> Running {
    // A transaction is said to hang as soon as anybody looks.
    let config = KafkaSourceConfig::new(brokers, [topic])
        .headers(Headers::Skip)
        .hanging_after(Duration::from_millis(1))
        .property("reconnect.backoff.max.ms", "500");
    let polls = polls.clone();
    let read = Job::new("time").parallelism(setup.subtasks).source("topic", move |subtask| {
        let source = KafkaSource::new(config.clone()).expect("settings that can be checked here");
        Watched::new(source, setup.proof, Arc::clone(&polls[subtask as usize]))
    });
    let numbers = read.map("number", |input| number(&input));
    match setup.kind {
        Kind::Atomic => to_table(numbers, setup, clock),
        Kind::Checkpointed => to_memory(numbers, setup, clock).await,
    }
}

fn number(input: &Input<'_, ()>) -> Result<i64, BoxError> {
    Ok(str::from_utf8(input.value().ok_or("no value")?)?.parse()?)
}

fn to_table(numbers: Pipeline<Watched, i64>, setup: Setup, clock: &Hands) -> Running {
    let database = Postgres::database().expect("a database");
    database.psql("CREATE TABLE numbers (n bigint)").expect("a table");
    let table = TableName::new("numbers").expect("a name");
    let config = PostgresSinkConfig::from_url(database.url(), table, WriteMode::Insert).expect("a URL");
    let rows = numbers.watermarks("time", setup.strategy()).map("row", |input| Ok(row(*input.item())));
    let job = rows.atomic_sink("numbers", move |_| PostgresSink::new(config.clone()));
    Running::Atomic(job.clock(Arc::new(clock.clone())).start().expect("a job of good shape"), database)
}

fn row(number: i64) -> Keyed {
    let values = vec![Value::Number(number.to_string().as_str().into())];
    Keyed { key: None, change: Change::Upsert(Row::new(Shape::new(["n"]), values)) }
}

async fn to_memory(numbers: Pipeline<Watched, i64>, setup: Setup, clock: &Hands) -> Running {
    let written = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&written);
    let note = move |record: &Record<i64>, _: &WriteContext| {
        to.lock().unwrap_or_else(PoisonError::into_inner).push(record.item);
        Ok(())
    };
    let flow =
        numbers.checkpointed().watermarks("time", setup.strategy()).key_by("by number", |number| *number);
    let settings = CheckpointSettings { interval: None, ..CheckpointSettings::default() };
    let job = flow.for_each("numbers", note).checkpoints(settings).clock(Arc::new(clock.clone()));
    let store = Store::open("memory:").await.expect("a store");
    Running::Checkpointed(job.start(store).expect("a job of good shape"), written)
}

impl Running {
    pub(crate) fn time(&self) -> TimeStatus {
        match self {
            Running::Atomic(job, _) => job.time(),
            Running::Checkpointed(job, _) => job.time(),
        }
    }

    /// Stops it, and returns what it has written, in order.
    pub(crate) async fn stop(self) -> Vec<i64> {
        let mut numbers = match self {
            Running::Atomic(mut job, database) => {
                job.stop();
                job.wait().await.expect("a good end");
                let rows = database.psql("SELECT n FROM numbers").expect("SQL");
                rows.lines().map(|row| row.parse().expect("a number")).collect()
            }
            Running::Checkpointed(mut job, written) => {
                job.stop().await.expect("a last checkpoint");
                job.wait().await.expect("a good end");
                written.lock().unwrap_or_else(PoisonError::into_inner).clone()
            }
        };
        numbers.sort_unstable();
        numbers
    }
}
