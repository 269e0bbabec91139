//! A function at the end of a flow, in place of a sink.

use std::fmt;

use levada_core::template::{IdempotentSink, WriteContext};
use levada_core::{Batch, BoxError, Record, SinkContext, SinkError, WriteOrder};

use super::flow::Flow;
use super::line::Line;
use crate::driver::IdempotentDriver;

/// Calls a function with each record.
struct ForEach<F>(F);

impl<F> fmt::Debug for ForEach<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ForEach")
    }
}

impl<T, F> IdempotentSink<T> for ForEach<F>
where
    T: Send,
    F: FnMut(&Record<T>, &WriteContext) -> Result<(), BoxError> + Send,
{
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn upsert(&mut self, batch: Batch<T>, ctx: &WriteContext) -> Result<(), SinkError> {
        for record in batch.records() {
            (self.0)(record, ctx).map_err(|cause| {
                SinkError::bad_record(batch.coordinates(&record.origin), "the function failed")
                    .caused_by(cause)
            })?;
        }
        Ok(())
    }
}

impl<I: Send + 'static, T: Send + 'static, L: Line> Flow<I, T, L> {
    /// Ends the line with a function that is called with each record, to print or to count them. It must not block.
    ///
    /// At least once: after a failure it is called again with every record since the last checkpoint. An error ends the
    /// attempt and names the record. Order is taken to mean nothing to it.
    pub fn for_each<F>(self, uid: impl Into<String>, function: F) -> L::Ended
    where
        F: FnMut(&Record<T>, &WriteContext) -> Result<(), BoxError> + Clone + Send + 'static,
    {
        // Nobody knows what the function does with a repetition: an older checkpoint is not gone back to unasked.
        self.sink(uid, false, || WriteOrder::Any, move |_| IdempotentDriver::new(ForEach(function.clone())))
    }
}
