//! The job: put together as the bridge does it from a pipeline file, with a filter that the file has no word for.

use levada::assemble::{sink_config, source_config};
use levada::cli::Until;
use levada::config::{self, Pipeline};
use levada::decode::Decode;
use levada::enrich::{Enrich, settings, stage_name};
use levada_core::{Budget, Change, Keyed, Value};
use levada_engine::{Input, Job, JobHandle};
use levada_kafka::source::KafkaSource;
use levada_postgres::sink::PostgresSink;

use crate::{Arguments, Failure};

/// Whether answers of the lookup are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lookup {
    Batched,
    Cached,
}

fn pipeline(arguments: &Arguments, topic: &str, lookup: Lookup) -> Result<Pipeline, Failure> {
    let cache = match lookup {
        Lookup::Batched => "",
        Lookup::Cached => ", cache: {rows: 10000, after_write: 10min, missing: 1min}",
    };
    let text = format!(
        r#"
name: ads
parallelism: 2
source:
  kafka: {{brokers: "{}", topics: {topic}, format: json}}
enrich:
  - name: campaign
    postgres: {{table: ads, key: [ad]{cache}}}
    fields: [campaign]
    miss: drop
sink:
  postgres:
    url: "{}"
    table: views
    key: {{from: value, columns: event}}
    columns:
      produced: {{unit: ms}}
"#,
        arguments.brokers, arguments.postgres
    );
    Ok(config::parse("ads.yaml".as_ref(), &text)?)
}

/// Starts the job: events, of them the views, each with its campaign, into the table.
pub(crate) fn start(
    arguments: &Arguments,
    topic: &str,
    lookup: Lookup,
    until: Option<Until>,
) -> Result<JobHandle, Failure> {
    let pipeline = pipeline(arguments, topic, lookup)?;
    let source = source_config(&pipeline, until);
    source.check()?;
    let sink = sink_config(&pipeline.sink)?;
    let key = pipeline.sink.key.clone();
    let step = pipeline.enrich.first().ok_or("the pipeline has a lookup")?;
    let (calls, batching) = settings(step);
    let job = Job::new(&pipeline.name)
        .parallelism(pipeline.parallelism)
        .budget(Budget::new(usize::try_from(pipeline.memory)?))
        .commit_policy(pipeline.commit)
        .source("kafka", move |_| KafkaSource::new(source.clone()).expect("checked settings"))
        .flat_map("decode", move |_| Decode::new(key.clone()))
        .filter("views", is_view)
        .async_map_many(stage_name(&step.name), Enrich::new(step, &pipeline.name)?, calls, batching)
        .atomic_sink("postgres", move |_| PostgresSink::new(sink.clone()));
    Ok(job.start()?)
}

fn is_view(input: &Input<'_, Keyed>) -> bool {
    let Change::Upsert(row) = &input.item().change else { return false };
    matches!(row.get("type"), Some(Value::Text(text)) if text.as_str() == "view")
}
