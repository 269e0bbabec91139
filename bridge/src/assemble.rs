//! From a pipeline file to a running job.

use std::sync::{Arc, Mutex, PoisonError};

use levada_core::async_io::{AsyncSettings, Batching};
use levada_core::time::StrategyError;
use levada_core::{Budget, Keyed, SinkError, Source};
use levada_engine::async_io::Enriched;
use levada_engine::{Job, JobHandle, RunnableJob, ShapeError, Skipped};
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
    ColumnPart, EnrichPart, KeyFrom, Pipeline, Poison, PostgresPart, StartFrom, TableMode, Tombstones, Unit,
};
use crate::decode::Decode;
use crate::enrich::{Enrich, LookupConfigError, settings, stage_name};
use crate::event_time::strategy;
use crate::observe::{Observed, ObservedLookup};

/// A pipeline that cannot be assembled. Nothing was started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// The source refuses its settings.
    #[error("source.kafka")]
    Kafka(#[from] ConfigError),
    /// A lookup refuses its settings.
    #[error("enrich: {step:?}")]
    Lookup {
        /// The step.
        step: String,
        /// Why.
        #[source]
        cause: LookupConfigError,
    },
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
    let steps = steps(pipeline)?;
    let lookups: Vec<_> = steps.iter().map(Step::observed).collect();
    let job = enriched(timed, steps, move |_| PostgresSink::new(sink.clone())).start()?;
    // Starting has made every source.
    let sources = statuses.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let observed = Observed::new(pipeline.name.as_str(), job.time(), job.progress(), sources)
        .lookups(job.calls(), lookups);
    Ok(Assembled { job, observed })
}

/// A lookup on the way, ready to be called.
struct Step {
    name: String,
    function: Enrich,
    settings: AsyncSettings<Keyed, Keyed>,
    batching: Batching,
}

impl Step {
    fn observed(&self) -> ObservedLookup {
        ObservedLookup { name: self.name.clone(), opened: self.function.opened() }
    }
}

fn steps(pipeline: &Pipeline) -> Result<Vec<Step>, AssembleError> {
    let step = |part: &EnrichPart| {
        let refused = |cause| AssembleError::Lookup { step: part.name.clone(), cause };
        let (settings, batching) = settings(part);
        let function = Enrich::new(part, &pipeline.name).map_err(refused)?;
        Ok(Step { name: part.name.clone(), function, settings, batching })
    };
    pipeline.enrich.iter().map(step).collect()
}

/// Puts the lookups between what was read and the sink.
fn enriched<S, F>(
    read: levada_engine::Pipeline<S, Keyed>,
    steps: Vec<Step>,
    make_sink: F,
) -> RunnableJob<S, PostgresSink, Keyed>
where
    S: Source + 'static,
    F: Fn(u32) -> PostgresSink + Send + 'static,
{
    let mut steps = steps.into_iter();
    let Some(first) = steps.next() else { return read.atomic_sink("postgres", make_sink) };
    let begun = read.async_map_many(stage_name(&first.name), first.function, first.settings, first.batching);
    let add = |before: Enriched<S, Keyed, Keyed>, step: Step| {
        before.async_map_many(stage_name(&step.name), step.function, step.settings, step.batching)
    };
    steps.fold(begun, add).atomic_sink("postgres", make_sink)
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
