//! A sink whose target does not mind a repetition.

use std::fmt;
use std::future::Future;

use super::WriteContext;
use crate::batch::Batch;
use crate::error::SinkError;
use crate::sink::{SinkContext, WriteOrder};

/// Writes records so that a second time changes nothing: by a key that the record determines.
///
/// After a failure everything since the last checkpoint is written again: readers may see older values for that while,
/// and the same ones as before at its end.
pub trait IdempotentSink<T>: Send + fmt::Debug {
    /// Connects and checks the target. Called once, first.
    fn open(&mut self, ctx: SinkContext) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Writes records, or takes them over to write them at the next [`IdempotentSink::flush`].
    fn upsert(
        &mut self,
        batch: Batch<T>,
        ctx: &WriteContext,
    ) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Returns when everything taken over is durable in the target: before a checkpoint that covers it.
    fn flush(&mut self) -> impl Future<Output = Result<(), SinkError>> + Send {
        async { Ok(()) }
    }

    /// Tells what the order of records means to its target. Asked before it is opened, maybe of a sink that never is.
    fn write_order(&self) -> WriteOrder {
        WriteOrder::ByOwnKey
    }

    /// Releases everything. Called once, last, also after an error.
    fn close(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }
}
