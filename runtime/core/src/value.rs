//! Rows and values as they travel from a format to a sink.
//!
//! Two rules make them exact. Numbers travel as the text they were written in until the target column's type is
//! known, so nothing passes through a double. And a field that a row does not have is *absent*, which is not *null*.

mod stored;

use std::fmt;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::arena::{Slice, Text};

/// One value, of the types that the supported formats can express.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// An explicit null.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer from a typed format.
    Int(i64),
    /// A decimal number as its text in JSON's grammar: of any size, exact.
    Number(Text),
    /// A binary floating-point number from a typed format.
    Float(f64),
    /// Text.
    Text(Text),
    /// Bytes.
    Bytes(Slice),
    /// A calendar date: days since 1970-01-01, proleptic Gregorian.
    Date(i32),
    /// A time of day: microseconds since midnight.
    Time(i64),
    /// Microseconds since 1970-01-01T00:00:00.
    Timestamp {
        /// The microseconds.
        micros: i64,
        /// Whether they count from the epoch in UTC, or are a wall-clock reading somewhere.
        is_instant: bool,
    },
    /// A UUID in network byte order.
    Uuid([u8; 16]),
    /// A list.
    List(Vec<Value>),
    /// Keys and values in their order.
    Map(Vec<(Value, Value)>),
    /// Nested fields.
    Row(Box<Row>),
}

impl Value {
    /// Names the value's class for messages that must not show the value itself.
    pub fn class(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Int(_) => "integer",
            Value::Number(_) => "number",
            Value::Float(_) => "float",
            Value::Text(_) => "text",
            Value::Bytes(_) => "bytes",
            Value::Date(_) => "date",
            Value::Time(_) => "time",
            Value::Timestamp { .. } => "timestamp",
            Value::Uuid(_) => "uuid",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Row(_) => "record",
        }
    }
}

/// The names of a row's fields, in order. Shared by all rows of the same shape, so that a sink resolves fields to
/// columns once per shape and not once per row.
#[derive(PartialEq, Eq)]
pub struct Shape {
    names: Box<[Box<str>]>,
    /// Only for shapes too wide to search by walking.
    index: Option<HashMap<Box<str>, usize>>,
}

impl Shape {
    /// From this many fields on, a lookup by name goes through a hash table.
    const WIDE: usize = 24;

    /// Makes a shape of distinct `names`.
    pub fn new<S: Into<Box<str>>>(names: impl IntoIterator<Item = S>) -> Arc<Self> {
        let names: Box<[Box<str>]> = names.into_iter().map(Into::into).collect();
        let index = (names.len() >= Self::WIDE)
            .then(|| names.iter().enumerate().map(|(position, name)| (name.clone(), position)).collect());
        Arc::new(Self { names, index })
    }

    /// Returns the names in order.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// Finds a field.
    pub fn position(&self, name: &str) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(name).copied(),
            None => self.names.iter().position(|candidate| &**candidate == name),
        }
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Tells whether it has no field.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names.iter()).finish()
    }
}

/// Fields in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    shape: Arc<Shape>,
    values: Vec<Value>,
}

impl Row {
    /// Puts `values` under the names of `shape`.
    ///
    /// # Panics
    /// Panics if their numbers differ.
    pub fn new(shape: Arc<Shape>, values: Vec<Value>) -> Self {
        assert_eq!(shape.len(), values.len(), "a row has one value for each name of its shape");
        Self { shape, values }
    }

    /// Returns the names.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// Returns the values in the order of the names.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Returns a field; `None` when it is absent, `Some(Value::Null)` when it is null.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.shape.position(name).map(|position| &self.values[position])
    }

    /// Walks through names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.shape.names.iter().map(|name| &**name).zip(&self.values)
    }
}

/// What happens to the row of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// The row has these fields now.
    Upsert(Row),
    /// There is no such row any more.
    Delete,
}

/// A change with the key it applies to.
#[derive(Debug, Clone, PartialEq)]
pub struct Keyed {
    /// The key, each field under the name of its target column. Its fields belong to the row as well, and count over
    /// fields of the same name there. `None` for targets without a key, and for a record whose key is null.
    pub key: Option<Row>,
    /// The change.
    pub change: Change,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [FMT-01] null is not absent, and fields keep their order.
    #[test]
    fn absent_field_is_not_a_null_field() {
        let row = Row::new(Shape::new(["b", "a"]), vec![Value::Null, Value::Int(1)]);
        assert_eq!(row.get("b"), Some(&Value::Null));
        assert_eq!(row.get("c"), None);
        assert_eq!(row.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["b", "a"]);
    }

    #[test]
    fn wide_shape_finds_every_field() {
        let names: Vec<String> = (0..1600).map(|n| format!("c{n}")).collect();
        let shape = Shape::new(names.iter().map(String::as_str));
        assert!((0..1600).all(|n| shape.position(&names[n]) == Some(n)));
        assert_eq!(shape.position("c1600"), None);
    }

    #[test]
    fn debug_output_shows_no_value() {
        let secret = Value::Text("hunter2".into());
        assert!(!format!("{secret:?}").contains("hunter2"));
    }
}
