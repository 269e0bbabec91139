//! The part of the pipeline file about lookups that add fields to rows.

use std::fmt;
use std::time::Duration;

use super::fields::{Field, Section};
use super::key::KeyFrom;
use super::postgres::{PostgresPart, TableMode, identifier, url};
use super::time::some_time;

/// A step that adds fields to each row from a row of Postgres.
#[derive(Clone, PartialEq, Eq)]
pub struct EnrichPart {
    /// The step's name, in metrics and messages.
    pub name: String,
    /// Connection URL or `key=value` string, with its secrets; the sink's unless the file names one.
    pub url: String,
    /// Where the row is found.
    pub found: Found,
    /// The fields that are added: each with the column it comes from.
    pub fields: Vec<(String, String)>,
    /// What many rows of a key mean.
    pub rows: Rows,
    /// What becomes of a row that has no match.
    pub miss: Miss,
    /// Whether a row without a field of the key has no match; else it is refused.
    pub is_absent_null: bool,
    /// Which rows may overtake each other.
    pub order: StepOrder,
    /// How long a row waits for its answer, all attempts together.
    pub timeout: Duration,
    /// The most keys of a query.
    pub batch: usize,
    /// The most queries of a subtask without an answer.
    pub in_flight: usize,
    /// What is kept of earlier answers.
    pub cache: Option<CachePart>,
    /// Reads the whole table at the start, and again after so long.
    pub preload: Option<Duration>,
    /// The channel whose notifications make kept answers invalid.
    pub invalidated_by: Option<String>,
}

// The URL may hold a password.
impl fmt::Debug for EnrichPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnrichPart")
            .field("name", &self.name)
            .field("found", &self.found)
            .field("fields", &self.fields)
            .field("miss", &self.miss)
            .finish_non_exhaustive()
    }
}

/// Where a row is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// In a table, by columns.
    Table {
        /// Its schema; without one the connection's search path decides.
        schema: Option<String>,
        /// The table. A dot is part of the name.
        table: String,
        /// The columns of the key, each with the field it is compared with.
        key: Vec<(String, String)>,
    },
    /// By a query.
    Query {
        /// The query, with parameters `:name`.
        text: String,
        /// The parameters, each with the field it gets its value from.
        parameters: Vec<(String, String)>,
    },
}

/// What many rows of a key mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// The first of them counts.
    First,
    /// There must be exactly one.
    One,
}

/// What becomes of a row that has no match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Miss {
    /// Its new fields are null.
    Nulls,
    /// It is dropped and counted.
    Drop,
    /// The pipeline stops and names the record.
    Fail,
}

/// Which rows may overtake each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepOrder {
    /// Rows of different keys.
    PerKey,
    /// None.
    Ordered,
    /// All.
    Unordered,
}

/// What is kept of earlier answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachePart {
    /// The most rows.
    pub rows: u64,
    /// How long an answer counts after it was read.
    pub after_write: Option<Duration>,
    /// How long an answer counts after it was last given.
    pub after_access: Option<Duration>,
    /// How long "there is no such row" counts.
    pub missing: Option<Duration>,
}

/// Reads the list of steps. `sink` lends its URL, and says which orders keep its rows right.
pub(super) fn enrich(field: &Field<'_>, sink: Option<&PostgresPart>) -> Option<Vec<EnrichPart>> {
    // Collecting first reports every step, not only the first bad one.
    let steps: Vec<_> = field.items()?.iter().map(|item| step(item, sink)).collect();
    let steps: Vec<EnrichPart> = steps.into_iter().collect::<Option<_>>()?;
    for (number, step) in steps.iter().enumerate() {
        if steps[..number].iter().any(|before| before.name == step.name) {
            field.error(format!("two steps are named {:?}", step.name));
        }
        let added = step.fields.iter().map(|(field, _)| field);
        for name in added {
            let mut before = steps[..number].iter().flat_map(|before| &before.fields);
            if before.any(|(field, _)| field == name) {
                field.error(format!("two steps add the field {name:?}"));
            }
        }
    }
    Some(steps)
}

fn step(field: &Field<'_>, sink: Option<&PostgresPart>) -> Option<EnrichPart> {
    let section = field.section()?;
    let name = section.required("name", "the step's name").and_then(|field| field.name());
    let place = section
        .required("postgres", "a section with \"table\" or \"query\"")
        .and_then(|field| place(&field, sink));
    let fields = section
        .required("fields", "what is added: {field: column}, or a list of columns")
        .and_then(|field| field.pairs());
    let misses = [("nulls", Miss::Nulls), ("drop", Miss::Drop), ("fail", Miss::Fail)];
    let miss_field = section.optional("miss");
    let miss = miss_field.as_ref().map_or(Some(Miss::Nulls), |field| field.choice(&misses));
    let absents = [("fail", false), ("miss", true)];
    let absent = section.optional("absent").map_or(Some(false), |field| field.choice(&absents));
    let order_field = section.optional("order");
    let orders = [
        ("per_key", StepOrder::PerKey),
        ("ordered", StepOrder::Ordered),
        ("unordered", StepOrder::Unordered),
    ];
    let order = order_field.as_ref().map_or_else(|| Some(default_order(sink)), |field| field.choice(&orders));
    let timeout = section.optional("timeout").map_or(Some(DEFAULT_TIMEOUT), |field| some_time(&field));
    let batch = section.optional("batch").map_or(Some(500), |field| field.number(1));
    let in_flight = section.optional("in_flight").map_or(Some(16), |field| field.number(1));
    section.finish();
    if let (Some(field), Some(order), Some(sink)) = (&order_field, order, sink) {
        check_order(field, order, sink);
    }
    let place = place?;
    if let (Some(field), Rows::One) = (miss_field, place.rows) {
        field.error("goes with \"rows: first\" only: \"one\" takes a missing row for an error");
    }
    Some(EnrichPart {
        name: name?,
        url: place.url,
        found: place.found,
        rows: place.rows,
        cache: place.cache,
        preload: place.preload,
        invalidated_by: place.invalidated_by,
        fields: fields?,
        miss: miss?,
        is_absent_null: absent?,
        order: order?,
        timeout: timeout?,
        batch: batch?,
        in_flight: in_flight?,
    })
}

/// Rows of one key must stay in order. Where the table's key is not the record's, only the sink knows which those are, so all do.
fn default_order(sink: Option<&PostgresPart>) -> StepOrder {
    match sink.and_then(|sink| sink.key.as_ref()) {
        Some(KeyFrom::RecordKey { .. }) => StepOrder::PerKey,
        _ => StepOrder::Ordered,
    }
}

fn check_order(field: &Field<'_>, order: StepOrder, sink: &PostgresPart) {
    match order {
        StepOrder::Unordered if sink.mode == TableMode::Upsert => field.error(
            "\"unordered\" lets an older change of a row overtake a newer one, and \"mode: upsert\" would keep the older",
        ),
        StepOrder::PerKey if default_order(Some(sink)) != StepOrder::PerKey => field.error(
            "\"per_key\" goes by the record's key, and that is not the table's key: it needs \"from: record_key\" there",
        ),
        _ => {}
    }
}

/// How long a row waits for its answer, unless the file says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// What stands in a step's `postgres` section.
struct Place {
    url: String,
    found: Found,
    rows: Rows,
    cache: Option<CachePart>,
    preload: Option<Duration>,
    invalidated_by: Option<String>,
}

fn place(field: &Field<'_>, sink: Option<&PostgresPart>) -> Option<Place> {
    let section = field.section()?;
    let own_url = section.optional("url").map(|field| url(&field));
    let found = found(field, &section);
    let choices = [("first", Rows::First), ("one", Rows::One)];
    let rows = section.optional("rows").map_or(Some(Rows::First), |field| field.choice(&choices));
    let cache_field = section.optional("cache");
    let cache = cache_field.as_ref().map(cache);
    let preload_field = section.optional("preload");
    let preload = preload_field.as_ref().map(some_time);
    let channel_field = section.optional("invalidated_by");
    let channel = channel_field.as_ref().map(identifier);
    if let (Some(field), Some(_)) = (&preload_field, section.optional("query")) {
        field.error("a query cannot be read whole; \"preload\" needs \"table\"");
    }
    section.finish();
    if let (Some(field), None, None) = (&channel_field, &cache_field, &preload_field) {
        field.error("does nothing without \"cache\" or \"preload\": nothing is kept");
    }
    Some(Place {
        // Without a sink its own mistakes are told, and nothing is started.
        url: match own_url {
            Some(url) => url?,
            None => sink?.url.clone(),
        },
        found: found?,
        rows: rows?,
        cache: match cache {
            Some(cache) => Some(cache?),
            None => None,
        },
        preload: preload.flatten(),
        invalidated_by: channel.flatten(),
    })
}

fn found(field: &Field<'_>, section: &Section<'_>) -> Option<Found> {
    let schema_field = section.optional("schema");
    let schema = schema_field.as_ref().map(identifier);
    let table = section.optional("table");
    let query = section.optional("query");
    let key = section.optional("key");
    let parameters = section.optional("parameters");
    match (table, query) {
        (Some(table), None) => {
            if let Some(field) = parameters {
                field.error("goes with \"query\" only; a table has \"key\"");
            }
            if key.is_none() {
                field.error("\"table\" needs \"key\": {column: field}, or a list of columns");
            }
            let (table, key) = (identifier(&table), key?.pairs());
            Some(Found::Table { schema: schema.flatten(), table: table?, key: key? })
        }
        (None, Some(query)) => {
            for field in [&key, &schema_field].into_iter().flatten() {
                field.error("goes with \"table\" only");
            }
            if parameters.is_none() {
                field.error("\"query\" needs \"parameters\": {parameter: field}, or a list");
            }
            let (text, parameters) = (query.name(), parameters?.pairs());
            Some(Found::Query { text: text?, parameters: parameters? })
        }
        _ => {
            field.error("needs either \"table\" or \"query\"");
            None
        }
    }
}

fn cache(field: &Field<'_>) -> Option<CachePart> {
    let section = field.section()?;
    let rows = section.required("rows", "the most rows that are kept").and_then(|field| field.number(1));
    let [after_write, after_access, missing] =
        ["after_write", "after_access", "missing"].map(|name| section.optional(name).map(|f| some_time(&f)));
    section.finish();
    Some(CachePart {
        rows: rows?,
        after_write: after_write.flatten(),
        after_access: after_access.flatten(),
        missing: missing.flatten(),
    })
}
