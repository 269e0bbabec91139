//! The start-up block: what is guaranteed, what that rests on, and what is about to happen.

use std::fmt::Write;

use crate::cli::{LogFormat, Until};
use crate::config::{
    EnrichPart, Found, KeyFrom, Miss, Pipeline, Poison, Rows, StartFrom, TableMode, TimeFrom, Tombstones,
    WatermarkPart, WithoutTime,
};

/// Prints the block as text, or logs it as one line.
pub(crate) fn announce(pipeline: &Pipeline, until: Option<Until>, format: LogFormat) {
    let lines = lines(pipeline, until);
    match format {
        LogFormat::Human => eprintln!("{}", block(pipeline, &lines)),
        LogFormat::Json => {
            let text =
                |name| lines.iter().find(|(line, _)| *line == name).map_or("", |(_, text)| text.as_str());
            tracing::info!(
                pipeline = pipeline.name,
                guarantee = text("guarantee"),
                rests_on = text("rests on"),
                topics = text("topics"),
                assignment = text("assignment"),
                table = text("table"),
                enriched = text("enriched"),
                order = text("order"),
                poison = text("poison"),
                event_time = text("event time"),
                commits = text("commits"),
                uses = text("uses"),
                "pipeline starts"
            );
        }
    }
}

fn block(pipeline: &Pipeline, lines: &[(&'static str, String)]) -> String {
    let mut block = format!("Pipeline {:?}", pipeline.name);
    for (name, text) in lines {
        // Writing to a string cannot fail.
        let _ = write!(block, "\n  {name:<11} {text}");
    }
    block
}

fn lines(pipeline: &Pipeline, until: Option<Until>) -> Vec<(&'static str, String)> {
    let Pipeline { source, sink, .. } = pipeline;
    let start = match source.start {
        StartFrom::Earliest => "earliest",
        StartFrom::Latest => "latest",
    };
    let end = match until {
        Some(Until::Now) => "until the end that each partition has now",
        None => "until stopped",
    };
    let commit = &pipeline.commit;
    vec![
        (
            "guarantee",
            "exactly once: each record's row and its source position are committed together".to_owned(),
        ),
        (
            "rests on",
            format!(
                "one Postgres transaction for rows and table levada.positions (pipeline {:?}), an epoch per partition \
                 that fences earlier owners, and read_committed",
                pipeline.name
            ),
        ),
        (
            "topics",
            format!(
                "{} at {}, {end}; from {start} where no position is stored",
                source.topics.join(", "),
                source.brokers.join(", ")
            ),
        ),
        (
            "assignment",
            format!(
                "owned: this process reads every partition that is there at the start, with {}; a second process of this \
                 pipeline takes over within 15 s instead of sharing",
                counted(pipeline.parallelism, "subtask")
            ),
        ),
        ("table", table(pipeline)),
        ("enriched", enriched(&pipeline.enrich)),
        ("order", order(sink.key.as_ref())),
        ("poison", poison(source.poison).to_owned()),
        ("event time", pipeline.watermark.as_ref().map_or_else(no_time, |part| event_time(pipeline, part))),
        (
            "commits",
            format!("every {} rows, {} MiB or {:?}", commit.max_rows, commit.max_bytes >> 20, commit.max_age),
        ),
        (
            "uses",
            format!(
                "at most {} MiB of records in flight beside the open intervals, {} to Postgres{}",
                pipeline.memory >> 20,
                counted(pipeline.parallelism, "connection"),
                if pipeline.enrich.is_empty() {
                    ""
                } else {
                    ", and up to 4 for each lookup, or 5 where it listens"
                }
            ),
        ),
    ]
}

fn table(pipeline: &Pipeline) -> String {
    let sink = &pipeline.sink;
    let columns = sink.key.as_ref().map(|key| key.columns().join(", "));
    match (sink.mode, columns) {
        (TableMode::Upsert, columns) => {
            let tombstones = match sink.tombstones {
                Tombstones::Ignore => "ignored and counted",
                Tombstones::Delete => "deletes",
            };
            format!(
                "{}, upsert by ({}); tombstones are {tombstones}",
                sink.table,
                columns.unwrap_or_default()
            )
        }
        (TableMode::Insert, Some(columns)) => format!("{}, insert; key ({columns})", sink.table),
        (TableMode::Insert, None) => format!("{}, insert without a key: one row a record", sink.table),
    }
}

fn enriched(steps: &[EnrichPart]) -> String {
    let step = |step: &EnrichPart| {
        let place = match &step.found {
            Found::Table { table, .. } => table.as_str(),
            Found::Query { .. } => "a query",
        };
        let fields: Vec<_> = step.fields.iter().map(|(field, _)| field.as_str()).collect();
        let miss = match (step.rows, step.miss) {
            (Rows::One, _) => "exactly one row must match",
            (Rows::First, Miss::Nulls) => "null where none matches",
            (Rows::First, Miss::Drop) => "dropped where none matches",
            (Rows::First, Miss::Fail) => "stops where none matches",
        };
        let kept = match (step.preload, step.cache) {
            (Some(every), _) => format!(", read whole every {every:?}"),
            (None, Some(_)) => ", with a cache".to_owned(),
            (None, None) => String::new(),
        };
        format!("{} from {place} ({miss}{kept}; {:?} at most)", fields.join(", "), step.timeout)
    };
    match steps {
        [] => "nothing is looked up".to_owned(),
        steps => {
            let steps: Vec<_> = steps.iter().map(step).collect();
            format!(
                "{}; as things are at the time of the lookup, which a replay may see changed",
                steps.join("; ")
            )
        }
    }
}

fn poison(policy: Poison) -> &'static str {
    match policy {
        Poison::Fail => "a record that cannot be decoded stops the pipeline",
        Poison::Skip => {
            "a record that cannot be decoded is skipped and counted; one that the table refuses stops the pipeline"
        }
    }
}

fn no_time() -> String {
    "no watermarks".to_owned()
}

fn event_time(pipeline: &Pipeline, watermark: &WatermarkPart) -> String {
    let from = match &pipeline.event_time.from {
        TimeFrom::Record => "Kafka's timestamp of each record".to_owned(),
        TimeFrom::Field(field) => format!("field {:?}", field.name),
    };
    let without = match pipeline.event_time.without {
        WithoutTime::Fail => "a record without it stops the pipeline",
        WithoutTime::TakeRecord => "a record without it takes Kafka's timestamp and is counted",
    };
    let idle = watermark.idle_after.map_or_else(
        || "never idle, so an empty one holds the watermark back".to_owned(),
        |timeout| format!("idle at its end after {timeout:?}, if its leader has nothing more"),
    );
    let drift = watermark.max_drift.map_or_else(String::new, |drift| {
        format!(", and rests when {drift:?} ahead of the slowest in this process")
    });
    format!(
        "{from}; {without}; watermarks {:?} behind it, every {:?}; a partition is {idle}{drift}",
        watermark.bound, watermark.every
    )
}

fn order(key: Option<&KeyFrom>) -> String {
    match key {
        Some(KeyFrom::Value { .. } | KeyFrom::Headers { .. }) => {
            "kept within a partition; the table's key is not the record's key, so changes of one row that stand in \
             different partitions are applied in no fixed order"
                .to_owned()
        }
        _ => "kept within a partition".to_owned(),
    }
}

fn counted(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
