//! What a change is looked up by.

use levada_core::async_io::CallError;
use levada_core::{Change, Keyed, Value};

/// The fields that make the key, in the order in which the lookup takes them.
#[derive(Debug)]
pub(super) struct KeyFields {
    pub(super) fields: Vec<String>,
    pub(super) is_absent_null: bool,
}

impl KeyFields {
    /// Takes the key from a change; `None` from one that has no row.
    pub(super) fn of(&self, input: &Keyed) -> Result<Option<Vec<Value>>, CallError> {
        let Change::Upsert(row) = &input.change else { return Ok(None) };
        let value = |field: &String| {
            // The key's columns count over the fields of the row, as in the table.
            let of_key = input.key.as_ref().and_then(|key| key.get(field));
            match of_key.or_else(|| row.get(field)) {
                Some(value) => Ok(value.clone()),
                None if self.is_absent_null => Ok(Value::Null),
                None => Err(CallError::bad_record(format!(
                    "the row has no field {field:?} to look up by; \"absent: miss\" would take it for a row without a match"
                ))),
            }
        };
        self.fields.iter().map(value).collect::<Result<_, _>>().map(Some)
    }
}
