//! The typed pipeline.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use levada_engine::CommitPolicy;

use super::enrich::{EnrichPart, enrich};
use super::fields::{ConfigError, ConfigErrors, Errors, Field, Section};
use super::kafka::{KafkaPart, source};
use super::postgres::{PostgresPart, sink};
use super::time::{EventTimePart, WatermarkPart, event_time, watermark};
use super::watching::{DEFAULT_HTTP, DEFAULT_LOG_EVERY, http, log_every};
use super::yaml;

/// One pipeline: topics of one Kafka cluster into one table of one Postgres database.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// The pipeline's name; stored positions belong to it.
    pub name: String,
    /// What is read.
    pub source: KafkaPart,
    /// The lookups on the way, in their order.
    pub enrich: Vec<EnrichPart>,
    /// What is written.
    pub sink: PostgresPart,
    /// How many subtasks work side by side, each with its own connections.
    pub parallelism: u32,
    /// Payload bytes that may be in flight: half in queues, half prefetched.
    pub memory: u64,
    /// When an interval is committed.
    pub commit: CommitPolicy,
    /// Where event time comes from.
    pub event_time: EventTimePart,
    /// What makes watermarks; without it there are none, and no partition is ever idle.
    pub watermark: Option<WatermarkPart>,
    /// Where metrics are served; `None` means nowhere.
    pub http: Option<SocketAddr>,
    /// How often the log says where the pipeline stands.
    pub log_every: Duration,
}

/// Reads a pipeline file.
///
/// # Errors
/// Everything that is wrong, each with its line and field.
pub fn load(file: &Path) -> Result<Pipeline, ConfigErrors> {
    match fs::read_to_string(file) {
        Ok(text) => parse(file, &text),
        Err(error) => {
            let error = ConfigError::new(1, "", format!("cannot read the file: {error}"));
            Err(ConfigErrors { file: file.to_owned(), errors: vec![error] })
        }
    }
}

/// Reads a pipeline from text; `file` is for messages.
///
/// # Errors
/// Everything that is wrong, each with its line and field.
pub fn parse(file: &Path, text: &str) -> Result<Pipeline, ConfigErrors> {
    let errors = Errors::default();
    let node = yaml::parse(text, &errors);
    let pipeline = node.as_ref().and_then(|node| pipeline(Section::root(node, &errors)?));
    drop(node);
    let errors = errors.into_sorted();
    match pipeline {
        Some(pipeline) if errors.is_empty() => Ok(pipeline),
        _ => Err(ConfigErrors { file: file.to_owned(), errors }),
    }
}

fn pipeline(root: Section<'_>) -> Option<Pipeline> {
    // Every part is read before any `?`, so that one error does not hide the others.
    let name = root.required("name", "the pipeline's name").and_then(|field| field.name());
    let source = root.required("source", "a section with \"kafka\"").and_then(|field| source(&field));
    let sink = root.required("sink", "a section with \"postgres\"").and_then(|field| sink(&field));
    let enrich =
        root.optional("enrich").map_or_else(|| Some(Vec::new()), |field| enrich(&field, sink.as_ref()));
    let parallelism = root.optional("parallelism").map_or(Some(1), |field| field.number(1));
    let memory = root.optional("memory").map_or(Some(256 << 20), |field| field.bytes());
    let commit =
        root.optional("commit").map_or_else(|| Some(CommitPolicy::default()), |field| commit(&field));
    let time_field = root.optional("event_time");
    let time = time_field.as_ref().map_or_else(|| Some(EventTimePart::default()), event_time);
    let watermark_field = root.optional("watermark");
    let watermark = watermark_field.as_ref().map(watermark);
    if let (Some(field), None) = (&time_field, &watermark_field) {
        field.error("does nothing without \"watermark\"");
    }
    let http = root.optional("http").map_or(Some(Some(DEFAULT_HTTP)), |field| http(&field));
    let log_every = root.optional("log").map_or(Some(DEFAULT_LOG_EVERY), |field| log_every(&field));
    root.finish();
    Some(Pipeline {
        name: name?,
        source: source?,
        enrich: enrich?,
        sink: sink?,
        parallelism: parallelism?,
        memory: memory?,
        commit: commit?,
        event_time: time?,
        watermark: match watermark {
            Some(watermark) => Some(watermark?),
            None => None,
        },
        http: http?,
        log_every: log_every?,
    })
}

fn commit(field: &Field<'_>) -> Option<CommitPolicy> {
    let section = field.section()?;
    let defaults = CommitPolicy::default();
    let max_rows = section.optional("rows").map_or(Some(defaults.max_rows), |field| field.number(1));
    let max_bytes = section.optional("bytes").map_or(Some(defaults.max_bytes), |field| field.bytes());
    let max_age = section.optional("age").map_or(Some(defaults.max_age), |field| field.duration());
    section.finish();
    Some(CommitPolicy { max_rows: max_rows?, max_bytes: max_bytes?, max_age: max_age?, ..defaults })
}
