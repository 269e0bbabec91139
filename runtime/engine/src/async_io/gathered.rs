//! Outputs on their way out, gathered into batches again.

use std::sync::Arc;

use levada_core::batch::BatchParts;
use levada_core::{Batch, Record};

use super::intake::Tag;

/// Outputs of records that were of one batch, one behind the other.
#[derive(Debug)]
pub(crate) struct Gathered<O> {
    parts: Option<Arc<BatchParts>>,
    records: Vec<Record<O>>,
}

impl<O> Gathered<O> {
    pub(crate) fn new() -> Self {
        Self { parts: None, records: Vec::new() }
    }

    /// Adds outputs of a record; returns those that were gathered before if they were of another batch.
    pub(crate) fn push(&mut self, tag: &Tag, outputs: Vec<O>) -> Option<Batch<O>> {
        let is_same = self.parts.as_ref().is_some_and(|parts| Arc::ptr_eq(parts, &tag.parts));
        let before = if is_same { None } else { self.take() };
        if !outputs.is_empty() {
            self.parts.get_or_insert_with(|| Arc::clone(&tag.parts));
            self.records.extend(outputs.into_iter().map(|item| Record { origin: tag.origin, item }));
        }
        before
    }

    /// Takes what was gathered.
    pub(crate) fn take(&mut self) -> Option<Batch<O>> {
        let parts = self.parts.take()?;
        Some(parts.with_records(std::mem::take(&mut self.records)))
    }
}
