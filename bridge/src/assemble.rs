//! From a pipeline file to a running job.

use std::sync::{Arc, Mutex, PoisonError};

use levada_core::time::StrategyError;
use levada_core::{Budget, SinkError};
use levada_engine::{Job, JobHandle, ShapeError, Skipped};
use levada_kafka::source::{
    ConfigError, Headers, Isolation, KafkaSource, KafkaSourceConfig, StartAt, StopAt,
};
use levada_postgres::quote::{IdentifierError, TableName};
use levada_postgres::sink::{
    ColumnOptions, EpochUnit, PostgresSink, PostgresSinkConfig, Tombstone, WriteMode,
};
use thiserror::Error;

use crate::cli::Until;
use crate::config::{
    ColumnPart, KeyFrom, Pipeline, Poison, PostgresPart, StartFrom, TableMode, Tombstones, Unit,
};
use crate::decode::Decode;
use crate::event_time::strategy;
use crate::observe::Observed;

/// A pipeline that cannot be assembled. Nothing was started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// The source refuses its settings.
    #[error("source.kafka")]
    Kafka(#[from] ConfigError),
    /// A name cannot be one.
    #[error("sink.postgres.table")]
    Table(#[from] IdentifierError),
    /// The sink refuses its settings.
    #[error("sink.postgres.url")]
    Postgres(#[from] SinkError),
    /// Time cannot be kept as it should.
    #[error("watermark")]
    Time(#[from] StrategyError),
    /// The stages do not fit together.
    #[error("the pipeline's shape")]
    Shape(#[from] ShapeError),
}

/// A pipeline that runs.
#[derive(Debug)]
pub struct Assembled {
    /// The job.
    pub job: JobHandle,
    /// What can be seen of it.
    pub observed: Observed,
}

/// Starts the job of a pipeline on the current tokio runtime.
///
/// # Errors
/// What in the settings cannot work. What depends on the live systems fails the job instead.
pub fn assemble(pipeline: &Pipeline, until: Option<Until>) -> Result<Assembled, AssembleError> {
    let source = source_config(pipeline, until);
    source.check()?;
    let sink = sink_config(&pipeline.sink)?;
    let key = pipeline.sink.key.clone();
    let memory = usize::try_from(pipeline.memory).unwrap_or(usize::MAX);
    let statuses = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&statuses);
    let read = Job::new(&pipeline.name)
        .parallelism(pipeline.parallelism)
        .budget(Budget::new(memory))
        .commit_policy(pipeline.commit)
        .source("kafka", move |_| {
            // The configuration was checked above, and that is all that can fail.
            let source = KafkaSource::new(source.clone()).expect("checked settings");
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(source.status());
            source
        });
    let decode = move |_| Decode::new(key.clone());
    let decoded = match pipeline.source.poison {
        Poison::Fail => read.flat_map("decode", decode),
        Poison::Skip => {
            let skipped = Skipped::default();
            read.flat_map("decode", move |subtask| skipped.skipping(decode(subtask)))
        }
    };
    let timed = match &pipeline.watermark {
        Some(watermark) => decoded.watermarks("watermark", strategy(&pipeline.event_time, watermark)?),
        None => decoded,
    };
    let job = timed.atomic_sink("postgres", move |_| PostgresSink::new(sink.clone())).start()?;
    // Starting has made every source.
    let sources = statuses.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let observed = Observed::new(pipeline.name.as_str(), job.time(), job.progress(), sources);
    Ok(Assembled { job, observed })
}

/// Makes the source's settings.
pub fn source_config(pipeline: &Pipeline, until: Option<Until>) -> KafkaSourceConfig {
    let part = &pipeline.source;
    let client = format!("levada-{}", pipeline.name);
    KafkaSourceConfig::new(part.brokers.join(","), part.topics.iter().map(String::as_str))
        .start_at(match part.start {
            StartFrom::Earliest => StartAt::Earliest,
            StartFrom::Latest => StartAt::Latest,
        })
        .stop_at(match until {
            Some(Until::Now) => StopAt::LatestAtStart,
            None => StopAt::Never,
        })
        .isolation(Isolation::ReadCommitted)
        .headers(match pipeline.sink.key {
            Some(KeyFrom::Headers { .. }) => Headers::Read,
            _ => Headers::Skip,
        })
        .group_id(&client)
        .client_id(&client)
        .properties(part.properties.clone())
}

/// Makes the sink's settings.
///
/// # Errors
/// A name that cannot be one, or a connection string that is none.
pub fn sink_config(part: &PostgresPart) -> Result<PostgresSinkConfig, AssembleError> {
    let table = match &part.schema {
        Some(schema) => TableName::in_schema(schema, &part.table)?,
        None => TableName::new(&part.table)?,
    };
    let mode = match part.mode {
        TableMode::Upsert => WriteMode::Upsert,
        TableMode::Insert => WriteMode::Insert,
    };
    let mut config = PostgresSinkConfig::from_url(&part.url, table, mode)?
        .key(part.key.iter().flat_map(|key| key.columns()).map(String::as_str))
        .tombstones(match part.tombstones {
            Tombstones::Ignore => Tombstone::Ignore,
            Tombstones::Delete => Tombstone::Delete,
        });
    for (name, column) in &part.columns {
        config = config.column(name, column_options(column));
    }
    config.statement_timeout = part.statement_timeout.unwrap_or(config.statement_timeout);
    config.lock_timeout = part.lock_timeout.unwrap_or(config.lock_timeout);
    Ok(config)
}

fn column_options(part: &ColumnPart) -> ColumnOptions {
    let mut options = ColumnOptions::default();
    options.assume_utc = part.assume_utc;
    options.text_is_json_string = part.text_is_json_string;
    options.unit = part.unit.map(|unit| match unit {
        Unit::Seconds => EpochUnit::Seconds,
        Unit::Millis => EpochUnit::Millis,
        Unit::Micros => EpochUnit::Micros,
        Unit::Nanos => EpochUnit::Nanos,
    });
    options
}
