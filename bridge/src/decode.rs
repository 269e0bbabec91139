//! From a record's bytes to a keyed change of a row.

use std::fmt;
use std::sync::Arc;

use levada_core::{BoxError, Change, Keyed, Row, Shape, Slice, Text, Value};
use levada_engine::{FlatMap, Input, Outputs};
use levada_formats::json::{JsonDecoder, JsonError, JsonLimits};
use thiserror::Error;

use crate::config::{KeyFormat, KeyFrom};

/// Why a record cannot become a change of a row. Never shows what the record holds.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The value is no JSON object.
    #[error("the value is not a JSON object")]
    Value(#[source] JsonError),
    /// The key is not what it should be.
    #[error("the key is not JSON")]
    Key(#[source] JsonError),
    /// The key is not UTF-8.
    #[error("{0} is not UTF-8 text")]
    NotText(String),
    /// There is no key.
    #[error("the record's key is null, and column {column:?} needs it")]
    NullKey {
        /// A column of the key.
        column: String,
    },
    /// A part of the key is missing.
    #[error("key column {column:?} has no value: its {origin} is {state}")]
    NoKeyPart {
        /// The column.
        column: String,
        /// Where the column's value comes from.
        origin: &'static str,
        /// What is there instead.
        state: &'static str,
    },
    /// A delimited key has other parts than there are columns.
    #[error("the key has {found} parts between {delimiter:?}, and {expected} columns need one each")]
    KeyParts {
        /// The delimiter.
        delimiter: String,
        /// The parts found.
        found: usize,
        /// The columns.
        expected: usize,
    },
}

/// Decodes JSON values and takes the key from where the pipeline says.
pub struct Decode {
    json: JsonDecoder,
    key_json: JsonDecoder,
    key: Option<Key>,
}

impl fmt::Debug for Decode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decode").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Key {
    from: KeyFrom,
    shape: Arc<Shape>,
}

impl Decode {
    /// Makes a decoder for one subtask.
    pub fn new(key: Option<KeyFrom>) -> Self {
        let key = key.map(|from| Key { shape: Shape::new(from.columns().iter().map(String::as_str)), from });
        let limits = JsonLimits::default();
        Self { json: JsonDecoder::new(limits), key_json: JsonDecoder::new(limits), key }
    }

    fn change(&mut self, input: &Input<'_, ()>) -> Result<Keyed, DecodeError> {
        let payload = input.value_slice().filter(|value| !is_tombstone(value.as_bytes()));
        let row =
            payload.map(|payload| self.json.decode_row(&payload).map_err(DecodeError::Value)).transpose()?;
        let Some(key) = &self.key else {
            return Ok(Keyed { key: None, change: row.map_or(Change::Delete, Change::Upsert) });
        };
        // The sink puts the key's columns into the row, so they are not repeated in it.
        let key = key.row(input, row.as_ref(), &mut self.key_json)?;
        Ok(Keyed { key, change: row.map_or(Change::Delete, Change::Upsert) })
    }
}

impl Key {
    /// Takes the key's columns from their place. `None` only for a tombstone of a key that stands in the value.
    fn row(
        &self,
        input: &Input<'_, ()>,
        row: Option<&Row>,
        json: &mut JsonDecoder,
    ) -> Result<Option<Row>, DecodeError> {
        let values = match &self.from {
            KeyFrom::Value { columns } => match row {
                Some(row) => {
                    columns.iter().map(|column| field(row, column, "field")).collect::<Result<_, _>>()?
                }
                None => return Ok(None),
            },
            KeyFrom::RecordKey { columns, format } => record_key(input, columns, format, json)?,
            KeyFrom::Coordinates { .. } => {
                let split = input.split();
                let offset = Value::Number(Text::from(input.origin().offset.to_string()));
                vec![Value::Text(Text::from(&*split.stream)), Value::Int(i64::from(split.index)), offset]
            }
            KeyFrom::Headers { columns } => {
                columns.iter().map(|column| header(input, column)).collect::<Result<_, _>>()?
            }
        };
        Ok(Some(Row::new(Arc::clone(&self.shape), values)))
    }
}

/// Returns a field that must have a value.
fn field(row: &Row, column: &str, origin: &'static str) -> Result<Value, DecodeError> {
    let missing = |state| DecodeError::NoKeyPart { column: column.to_owned(), origin, state };
    match row.get(column) {
        None => Err(missing("absent")),
        Some(Value::Null) => Err(missing("null")),
        Some(value) => Ok(value.clone()),
    }
}

fn record_key(
    input: &Input<'_, ()>,
    columns: &[String],
    format: &KeyFormat,
    json: &mut JsonDecoder,
) -> Result<Vec<Value>, DecodeError> {
    let null_key = || DecodeError::NullKey { column: columns.first().cloned().unwrap_or_default() };
    let key = input.key_slice().ok_or_else(null_key)?;
    match format {
        KeyFormat::Text => Ok(vec![text(key, || "the key".to_owned())?]),
        KeyFormat::Json => match json.decode_value(&key).map_err(DecodeError::Key)? {
            Value::Null => Err(null_key()),
            Value::Row(row) => columns.iter().map(|column| field(&row, column, "key field")).collect(),
            value if columns.len() == 1 => Ok(vec![value]),
            _ => {
                let column = columns.first().cloned().unwrap_or_default();
                Err(DecodeError::NoKeyPart {
                    column,
                    origin: "key field",
                    state: "absent: the key is no object",
                })
            }
        },
        KeyFormat::Delimited(delimiter) => {
            let whole = Text::new(key).map_err(|_| DecodeError::NotText("the key".to_owned()))?;
            let parts: Vec<&str> = whole.as_str().split(delimiter.as_str()).collect();
            if parts.len() != columns.len() {
                let (found, expected) = (parts.len(), columns.len());
                return Err(DecodeError::KeyParts { delimiter: delimiter.clone(), found, expected });
            }
            Ok(parts.into_iter().map(|part| Value::Text(Text::from(part))).collect())
        }
    }
}

/// Takes the last header of a name, as Kafka's own clients do.
fn header(input: &Input<'_, ()>, column: &str) -> Result<Value, DecodeError> {
    let missing = |state| DecodeError::NoKeyPart { column: column.to_owned(), origin: "header", state };
    let last = input.headers().filter(|(name, _)| *name == column.as_bytes()).last();
    let (_, value) = last.ok_or_else(|| missing("absent"))?;
    text(Slice::owned(value.ok_or_else(|| missing("null"))?), || format!("header {column:?}"))
}

fn text(slice: Slice, what: impl FnOnce() -> String) -> Result<Value, DecodeError> {
    Text::new(slice).map(Value::Text).map_err(|_| DecodeError::NotText(what()))
}

/// Tells whether a value says that there is no row: JSON cannot be empty, and its `null` is no row either.
fn is_tombstone(value: &[u8]) -> bool {
    matches!(value.trim_ascii(), b"" | b"null")
}

impl FlatMap<(), Keyed> for Decode {
    fn apply(&mut self, input: Input<'_, ()>, out: &mut Outputs<'_, Keyed>) -> Result<(), BoxError> {
        out.push(self.change(&input)?);
        Ok(())
    }
}
