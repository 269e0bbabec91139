//! A key's parts as the server's parameters, and as bytes that are equal when the keys are.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::{BufMut as _, BytesMut};
use levada_core::Value;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::sink::ColumnOptions;
use crate::sink::encode::{canonical_key, cell};
use crate::sink::statement::Array;
use crate::sink::write::cell_end;

use super::error::LookupError;
use super::plan::Plan;

/// A key, encoded.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    /// What tells it from others.
    pub(crate) canonical: Arc<[u8]>,
    /// Its parts as they are sent, one after the other.
    pub(crate) cells: Arc<[u8]>,
}

/// Buffers that are used again for each key.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) cells: Vec<u8>,
    pub(crate) canonical: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Buffers that have grown larger are not kept.
const KEPT_BYTES: usize = 4096;

impl Scratch {
    /// Lends the thread's own buffers.
    pub(crate) fn with<V>(work: impl FnOnce(&mut Self) -> V) -> V {
        SCRATCH.with_borrow_mut(|scratch| {
            let done = work(scratch);
            if scratch.cells.capacity() > KEPT_BYTES {
                *scratch = Self::default();
            }
            done
        })
    }

    /// Encodes a key; `false` if a part is NULL, so that it matches nothing.
    pub(crate) fn encode(&mut self, plan: &Plan, parts: &[Value]) -> Result<bool, LookupError> {
        self.cells.clear();
        self.canonical.clear();
        if parts.len() != plan.parameters.len() {
            let target = Arc::clone(&plan.target);
            return Err(LookupError::Parts { target, expected: plan.parameters.len(), found: parts.len() });
        }
        let mut is_whole = true;
        for (parameter, value) in plan.parameters.iter().zip(parts) {
            if matches!(value, Value::Null) {
                is_whole = false;
                continue;
            }
            let start = self.cells.len();
            cell(&parameter.ty, &ColumnOptions::default(), value, &mut self.cells).map_err(|problem| {
                LookupError::Key {
                    target: Arc::clone(&plan.target),
                    part: Arc::clone(&parameter.name),
                    problem: problem.to_string(),
                }
            })?;
            match parameter.is_canonical {
                true => canonical_key(&parameter.ty, &self.cells[start..], &mut self.canonical),
                // The server may tell apart what we would take for equal: a query can turn 1.0 and 1.00 into two texts.
                false => self.canonical.extend_from_slice(&self.cells[start..]),
            }
        }
        Ok(is_whole)
    }

    /// Returns what was encoded.
    pub(crate) fn key(&self) -> Key {
        Key { canonical: self.canonical.as_slice().into(), cells: self.cells.as_slice().into() }
    }
}

/// One parameter of a query.
#[derive(Debug)]
pub(crate) enum Parameter {
    /// A part of one key.
    Cell(Box<[u8]>),
    /// The same part of many keys.
    Array(Array),
}

impl ToSql for Parameter {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            // The driver writes the length by itself.
            Parameter::Cell(cell) => out.put_slice(cell.get(4..).unwrap_or_default()),
            Parameter::Array(array) => return array.to_sql(ty, out),
        }
        Ok(IsNull::No)
    }

    // Each statement is written for the parameters that it is given.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// Makes the parameters of a query for one key, or of one for many.
pub(crate) fn parameters(plan: &Plan, keys: &[Key]) -> Vec<Parameter> {
    if let [key] = keys {
        let mut start = 0;
        let next = |_| {
            let end = cell_end(&key.cells, start);
            let cell = key.cells[start..end].into();
            start = end;
            Parameter::Cell(cell)
        };
        return plan.parameters.iter().map(next).collect();
    }
    let mut arrays: Vec<Array> =
        plan.parameters.iter().map(|parameter| Array::new(parameter.ty.wire_oid())).collect();
    for key in keys {
        let mut start = 0;
        for array in &mut arrays {
            let end = cell_end(&key.cells, start);
            array.push(&key.cells[start..end]);
            start = end;
        }
    }
    arrays.into_iter().map(Parameter::Array).collect()
}
