//! A sink whose process can die at each of its calls.

use levada_core::template::{IdempotentSink, WriteContext};
use levada_core::{Batch, SinkContext, SinkError};

use crate::fuse::Fuse;

#[derive(Debug)]
pub(super) struct Wrapped<S> {
    pub(super) sink: S,
    pub(super) fuse: Fuse,
}

impl<T: Send + 'static, S: IdempotentSink<T>> IdempotentSink<T> for Wrapped<S> {
    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        let call = self.fuse.enter(format_args!("open {} of {}", ctx.subtask, ctx.parallelism))?;
        call.leave(self.sink.open(ctx).await)
    }

    async fn upsert(&mut self, batch: Batch<T>, ctx: &WriteContext) -> Result<(), SinkError> {
        let call = self.fuse.enter(format_args!("upsert {} records", batch.len()))?;
        call.leave(self.sink.upsert(batch, ctx).await)
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        let call = self.fuse.enter("flush")?;
        call.leave(self.sink.flush().await)
    }

    async fn close(&mut self) {
        if let Ok(call) = self.fuse.enter("close") {
            self.sink.close().await;
            let _ = call.leave(Ok(()));
        }
    }
}
