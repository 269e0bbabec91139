//! The part of the pipeline file about the key of a row.

use super::fields::{Field, Section};

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

pub(super) fn key(field: &Field<'_>) -> Option<KeyFrom> {
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
        section.optional("columns").map_or_else(|| Some(defaults.to_vec()), |field| field.distinct_names())
    } else {
        section.required("columns", "the key's columns").and_then(|field| field.distinct_names())
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
