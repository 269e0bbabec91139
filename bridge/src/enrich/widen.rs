//! A row with the fields of what it has found.

use std::sync::{Arc, Mutex, PoisonError};

use levada_core::async_io::CallError;
use levada_core::{Row, Shape, Value};

/// The most shapes that are remembered: rows of one topic have few, and a topic of many must not fill the memory.
const MOST_SHAPES: usize = 64;

/// Adds a step's fields to rows.
#[derive(Debug)]
pub(super) struct Widened {
    /// Each with its column.
    fields: Vec<(String, String)>,
    /// What shapes become. Locked for a search among few, never over an await.
    shapes: Mutex<Vec<(Arc<Shape>, Arc<Shape>)>>,
}

impl Widened {
    pub(super) fn new(fields: &[(String, String)]) -> Self {
        Self { fields: fields.to_vec(), shapes: Mutex::default() }
    }

    /// Puts what was found behind the fields of `row`, or nulls.
    pub(super) fn row(&self, row: &Row, key: Option<&Row>, found: Option<&Row>) -> Result<Row, CallError> {
        let shape = self.shape(row.shape(), key)?;
        let value = |(_, column): &(String, String)| match found {
            Some(found) => found.get(column).cloned().ok_or_else(|| missing(column)),
            None => Ok(Value::Null),
        };
        let mut values = Vec::with_capacity(shape.len());
        values.extend_from_slice(row.values());
        for field in &self.fields {
            values.push(value(field)?);
        }
        Ok(Row::new(shape, values))
    }

    fn shape(&self, narrow: &Arc<Shape>, key: Option<&Row>) -> Result<Arc<Shape>, CallError> {
        if let Some((field, _)) =
            self.fields.iter().find(|(field, _)| key.is_some_and(|key| key.get(field).is_some()))
        {
            return Err(taken(field));
        }
        let mut shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, wide)) = shapes.iter().find(|(known, _)| Arc::ptr_eq(known, narrow)) {
            return Ok(Arc::clone(wide));
        }
        if let Some((field, _)) = self.fields.iter().find(|(field, _)| narrow.position(field).is_some()) {
            return Err(taken(field));
        }
        let names = narrow.names().iter().map(|name| &**name);
        let wide = Shape::new(names.chain(self.fields.iter().map(|(field, _)| field.as_str())));
        if shapes.len() == MOST_SHAPES {
            shapes.clear();
        }
        shapes.push((Arc::clone(narrow), Arc::clone(&wide)));
        Ok(wide)
    }
}

fn taken(field: &str) -> CallError {
    CallError::bad_record(format!(
        "the row has a field {field:?} already, and the lookup would write over it: give the step's field another name"
    ))
}

fn missing(column: &str) -> CallError {
    CallError::new(levada_core::ErrorClass::Fatal, format!("the lookup gave no column {column:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(names: &[&str]) -> Row {
        Row::new(Shape::new(names.iter().copied()), names.iter().map(|_| Value::Int(1)).collect())
    }

    fn widened() -> Widened {
        Widened::new(&[("airline".to_owned(), "name".to_owned())])
    }

    /// [LKP-02] found fields stand behind the row's own; without a match they are null, and shapes stay shared.
    #[test]
    fn fields_stand_behind_those_of_the_row() {
        let (widened, narrow) = (widened(), row(&["id"]));
        let found = Row::new(Shape::new(["name"]), vec![Value::Text("Delta".into())]);
        let matched = widened.row(&narrow, None, Some(&found)).expect("a row");
        let missed = widened.row(&narrow, None, None).expect("a row");
        assert_eq!(
            matched.iter().collect::<Vec<_>>(),
            [("id", &Value::Int(1)), ("airline", &Value::Text("Delta".into()))]
        );
        assert_eq!(missed.get("airline"), Some(&Value::Null));
        assert!(Arc::ptr_eq(matched.shape(), missed.shape()));
    }

    /// Nothing is written over silently, be it in the row or in its key.
    #[test]
    fn field_that_is_there_already_is_refused() {
        let refused = widened().row(&row(&["airline"]), None, None).expect_err("taken");
        assert!(refused.is_bad_record() && refused.to_string().contains("\"airline\""), "{refused}");
        assert!(widened().row(&row(&["id"]), Some(&row(&["airline"])), None).is_err());
    }

    #[test]
    fn shapes_that_are_remembered_are_bounded() {
        let widened = widened();
        for _ in 0..3 * MOST_SHAPES {
            widened.row(&row(&["id"]), None, None).expect("a row");
        }
        assert!(widened.shapes.lock().expect("no panic").len() <= MOST_SHAPES);
    }
}
