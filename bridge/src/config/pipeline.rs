//! The typed pipeline.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use levada_engine::CommitPolicy;
use levada_kafka::source::{ConfigError as KafkaError, KafkaSourceConfig};
use levada_postgres::quote::{Identifier, TableName};
use levada_postgres::sink::{PostgresSinkConfig, WriteMode};

use super::fields::{ConfigError, ConfigErrors, Errors, Field, Section};
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

/// The Kafka source.
#[derive(Debug, Clone)]
pub struct KafkaPart {
    /// Bootstrap servers, `host:port`.
    pub brokers: Vec<String>,
    /// The topics, by name.
    pub topics: Vec<String>,
    /// Where a pipeline begins that has no stored positions.
    pub start: StartFrom,
    /// What becomes of a record that cannot be decoded.
    pub poison: Poison,
    /// The client's own properties.
    pub properties: BTreeMap<String, String>,
}

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFrom {
    /// At the oldest record.
    Earliest,
    /// Behind the newest record at the time of the first start.
    Latest,
}

/// What becomes of a record that cannot be decoded, or has no key where one is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poison {
    /// The pipeline stops and names the record.
    Fail,
    /// It is passed over and counted.
    Skip,
}

/// The Postgres sink.
#[derive(Clone)]
pub struct PostgresPart {
    /// Connection URL or `key=value` string, with its secrets.
    pub url: String,
    /// The table's schema; without one the connection's search path decides.
    pub schema: Option<String>,
    /// The table. A dot is part of the name.
    pub table: String,
    /// How rows are written.
    pub mode: TableMode,
    /// Where the key comes from; `None` for inserts without a key.
    pub key: Option<KeyFrom>,
    /// What a tombstone does.
    pub tombstones: Tombstones,
    /// What only the user can know about columns.
    pub columns: BTreeMap<String, ColumnPart>,
    /// How long one statement may take.
    pub statement_timeout: Option<Duration>,
    /// How long one statement may wait for a lock.
    pub lock_timeout: Option<Duration>,
}

// The URL may hold a password.
impl fmt::Debug for PostgresPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresPart")
            .field("table", &self.table)
            .field("mode", &self.mode)
            .field("key", &self.key)
            .field("tombstones", &self.tombstones)
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

/// What only the user can know about a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ColumnPart {
    /// What integers in a column of dates or times count.
    pub unit: Option<Unit>,
    /// Whether a time without an offset is UTC.
    pub assume_utc: bool,
    /// Whether text goes into a JSON column as a string instead of as a document.
    pub text_is_json_string: bool,
}

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableMode {
    /// One row a key; the last change wins.
    Upsert,
    /// One row a record.
    Insert,
}

/// What a tombstone does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tombstones {
    /// Nothing; counted as ignored.
    Ignore,
    /// It deletes the row of its key.
    Delete,
}

/// The unit of an integer that stands for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
}

/// The words for units.
pub(super) const UNITS: [(&str, Unit); 4] =
    [("s", Unit::Seconds), ("ms", Unit::Millis), ("us", Unit::Micros), ("ns", Unit::Nanos)];

/// Where the key columns get their values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyFrom {
    /// Fields of the value.
    Value {
        /// The fields, which are the columns.
        columns: Vec<String>,
    },
    /// The record's key.
    RecordKey {
        /// The columns.
        columns: Vec<String>,
        /// How the key is written.
        format: KeyFormat,
    },
    /// Topic, partition and offset.
    Coordinates {
        /// Their columns, in this order.
        columns: [String; 3],
    },
    /// Headers of these names.
    Headers {
        /// The headers, which are the columns.
        columns: Vec<String>,
    },
}

/// How a record's key is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyFormat {
    /// The whole key is the text of one column.
    Text,
    /// A JSON value for one column, or a JSON object with the columns as fields.
    Json,
    /// Texts with a delimiter between them.
    Delimited(String),
}

impl KeyFrom {
    /// Returns the key columns.
    pub fn columns(&self) -> &[String] {
        match self {
            KeyFrom::Value { columns }
            | KeyFrom::RecordKey { columns, .. }
            | KeyFrom::Headers { columns } => columns,
            KeyFrom::Coordinates { columns } => columns,
        }
    }
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

fn source(field: &Field<'_>) -> Option<KafkaPart> {
    let section = field.section()?;
    let kafka = section.required("kafka", "a section").and_then(|field| kafka(&field));
    section.finish();
    kafka
}

fn kafka(field: &Field<'_>) -> Option<KafkaPart> {
    let section = field.section()?;
    let brokers = section.required("brokers", "one or more host:port").and_then(|field| field.names());
    let topics = section.required("topics", "one or more topics").and_then(|field| distinct_names(&field));
    let starts = [("earliest", StartFrom::Earliest), ("latest", StartFrom::Latest)];
    let start = section.optional("start").map_or(Some(StartFrom::Earliest), |field| field.choice(&starts));
    let policies = [("fail", Poison::Fail), ("skip", Poison::Skip)];
    let poison = section.optional("poison").map_or(Some(Poison::Fail), |field| field.choice(&policies));
    let format = section.required("format", "json").and_then(|field| field.choice(&[("json", ())]));
    let properties =
        section.optional("properties").map_or_else(|| Some(BTreeMap::new()), |field| properties(&field));
    section.finish();
    format?;
    Some(KafkaPart {
        brokers: brokers?,
        topics: topics?,
        start: start?,
        poison: poison?,
        properties: properties?,
    })
}

fn properties(field: &Field<'_>) -> Option<BTreeMap<String, String>> {
    let read = |(name, field): (&str, Field<'_>)| {
        if is_ours(name) {
            field.error(match name {
                "auto.offset.reset" => "not passed on; \"start\" says where to begin",
                "bootstrap.servers" | "metadata.broker.list" => {
                    "not passed on; \"brokers\" names the servers"
                }
                _ => "not passed on; what is exactly once rests on it, or it is made of the pipeline's name",
            });
        }
        Some((name.to_owned(), field.text()?))
    };
    // Collecting first reports every entry, not only the first bad one.
    let entries: Vec<_> = field.section()?.all().map(read).collect();
    entries.into_iter().collect()
}

/// Tells whether the source sets a client property itself.
fn is_ours(property: &str) -> bool {
    let config = KafkaSourceConfig::new("any", ["any"]).property(property, "");
    matches!(config.check(), Err(KafkaError::OwnedProperty { .. }))
}

/// Reads one name or a list of names, each of which may stand there once.
fn distinct_names(field: &Field<'_>) -> Option<Vec<String>> {
    let names = field.names()?;
    if let Some(number) = (1..names.len()).find(|number| names[..*number].contains(&names[*number])) {
        field.error(format!("{:?} is named twice", names[number]));
    }
    Some(names)
}

fn sink(field: &Field<'_>) -> Option<PostgresPart> {
    let section = field.section()?;
    let postgres = section.required("postgres", "a section").and_then(|field| postgres(&field));
    section.finish();
    postgres
}

fn postgres(field: &Field<'_>) -> Option<PostgresPart> {
    let section = field.section()?;
    let url =
        section.required("url", "postgres://user:password@host:port/database").and_then(|field| url(&field));
    let table = section.required("table", "a table").and_then(|field| identifier(&field));
    let modes = [("upsert", TableMode::Upsert), ("insert", TableMode::Insert)];
    let mode = section.optional("mode").map_or(Some(TableMode::Upsert), |field| field.choice(&modes));
    let key_field = section.optional("key");
    let key = key_field.as_ref().map(key);
    let policies = [("ignore", Tombstones::Ignore), ("delete", Tombstones::Delete)];
    let tombstones_field = section.optional("tombstones");
    let tombstones =
        tombstones_field.as_ref().map_or(Some(Tombstones::Ignore), |field| field.choice(&policies));
    let schema = section.optional("schema").map(|field| identifier(&field));
    let columns = section.optional("columns").map_or_else(|| Some(BTreeMap::new()), |field| columns(&field));
    let statement_timeout = section.optional("statement_timeout").map(|field| field.duration());
    let lock_timeout = section.optional("lock_timeout").map(|field| field.duration());

    if mode == Some(TableMode::Upsert) && key_field.is_none() {
        field.error("upsert needs \"key\": the columns that make a row the same row");
    }
    let deletes = tombstones_field.as_ref().filter(|_| tombstones == Some(Tombstones::Delete));
    if let Some(field) = deletes.filter(|_| mode == Some(TableMode::Insert)) {
        field.error("\"delete\" needs \"mode: upsert\": plain inserts have no row to delete");
    }
    if let (Some(field), Some(Some(KeyFrom::Value { .. } | KeyFrom::Coordinates { .. }))) = (deletes, &key) {
        field.error(
            "\"delete\" needs a key from record_key or headers: a tombstone has no value to take it from",
        );
    }
    section.finish();
    Some(PostgresPart {
        url: url?,
        schema: schema.flatten(),
        table: table?,
        mode: mode?,
        key: match key {
            Some(key) => Some(key?),
            None => None,
        },
        tombstones: tombstones?,
        columns: columns?,
        statement_timeout: statement_timeout.flatten(),
        lock_timeout: lock_timeout.flatten(),
    })
}

/// Reads a connection string. The message repeats no part of it.
fn url(field: &Field<'_>) -> Option<String> {
    let url = field.name()?;
    let any = TableName::new("any").ok()?;
    if let Err(error) = PostgresSinkConfig::from_url(&url, any, WriteMode::Insert) {
        field.error(error.to_string());
    }
    Some(url)
}

fn identifier(field: &Field<'_>) -> Option<String> {
    let name = field.name()?;
    if let Err(error) = Identifier::new(name.as_str()) {
        field.error(error.to_string());
    }
    Some(name)
}

fn key(field: &Field<'_>) -> Option<KeyFrom> {
    #[derive(Clone, Copy, PartialEq)]
    enum From {
        Value,
        RecordKey,
        Coordinates,
        Headers,
    }
    let section = field.section()?;
    let origins = [
        ("value", From::Value),
        ("record_key", From::RecordKey),
        ("coordinates", From::Coordinates),
        ("headers", From::Headers),
    ];
    let from = section
        .required("from", "value, record_key, coordinates or headers")
        .and_then(|f| f.choice(&origins));
    let columns = if from == Some(From::Coordinates) {
        let defaults = ["kafka_topic", "kafka_partition", "kafka_offset"].map(str::to_owned);
        section.optional("columns").map_or_else(|| Some(defaults.to_vec()), |field| distinct_names(&field))
    } else {
        section.required("columns", "the key's columns").and_then(|field| distinct_names(&field))
    };
    let format = match from {
        Some(From::RecordKey) => key_format(&section),
        _ => Some(KeyFormat::Text),
    };
    section.finish();
    let (columns, format) = (columns?, format?);
    match from? {
        From::Value => Some(KeyFrom::Value { columns }),
        From::Headers => Some(KeyFrom::Headers { columns }),
        From::RecordKey if format == KeyFormat::Text && columns.len() != 1 => {
            field.error("a key of format \"text\" fills exactly one column; use \"delimited\" or \"json\" for several");
            None
        }
        From::RecordKey => Some(KeyFrom::RecordKey { columns, format }),
        From::Coordinates => match <[String; 3]>::try_from(columns) {
            Ok(columns) => Some(KeyFrom::Coordinates { columns }),
            Err(_) => {
                field.error("coordinates fill exactly three columns: topic, partition and offset");
                None
            }
        },
    }
}

fn key_format(section: &Section<'_>) -> Option<KeyFormat> {
    let delimiter = section.optional("delimiter").map(|field| field.name());
    let formats = [("text", 0), ("json", 1), ("delimited", 2)];
    let format = section.required("format", "text, json or delimited")?;
    match (format.choice(&formats)?, delimiter) {
        (0, None) => Some(KeyFormat::Text),
        (1, None) => Some(KeyFormat::Json),
        (2, Some(delimiter)) => Some(KeyFormat::Delimited(delimiter?)),
        (2, None) => {
            format.error("\"delimited\" needs \"delimiter\"");
            None
        }
        _ => {
            format.error("\"delimiter\" goes with format \"delimited\" only");
            None
        }
    }
}

fn columns(field: &Field<'_>) -> Option<BTreeMap<String, ColumnPart>> {
    let read = |(name, field): (&str, Field<'_>)| {
        let section = field.section()?;
        let unit = section.optional("unit").map(|field| field.choice(&UNITS));
        let assume_utc = section.optional("assume_utc").map_or(Some(false), |field| field.flag());
        let json_string = section.optional("text_is_json_string").map_or(Some(false), |field| field.flag());
        section.finish();
        let (assume_utc, text_is_json_string) = (assume_utc?, json_string?);
        Some((name.to_owned(), ColumnPart { unit: unit.flatten(), assume_utc, text_is_json_string }))
    };
    let entries: Vec<_> = field.section()?.all().map(read).collect();
    entries.into_iter().collect()
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
