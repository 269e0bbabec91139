//! A sink whose process can die at each of its calls.

use std::time::Duration;

use levada_core::template::{Fate, TransactionName, TwoPhaseCommitSink, WriteContext};
use levada_core::{Batch, CheckpointId, SinkContext, SinkError};

use crate::fuse::Fuse;

#[derive(Debug)]
pub(super) struct Wrapped<S> {
    pub(super) sink: S,
    pub(super) fuse: Fuse,
}

impl<T, S> TwoPhaseCommitSink<T> for Wrapped<S>
where
    T: Send + 'static,
    S: TwoPhaseCommitSink<T>,
{
    type Handle = S::Handle;

    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        let call = self.fuse.enter(format_args!("open {} of {}", ctx.subtask, ctx.parallelism))?;
        call.leave(self.sink.open(ctx).await)
    }

    // It makes nothing happen that the sink would not do in `begin` else: no place to die of its own.
    fn will_begin(&mut self, first: &TransactionName) {
        self.sink.will_begin(first);
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<S::Handle, SinkError> {
        let call = self.fuse.enter(format_args!("begin {name}"))?;
        call.leave(self.sink.begin(name).await)
    }

    async fn write(
        &mut self,
        handle: &mut S::Handle,
        batch: Batch<T>,
        ctx: &WriteContext,
    ) -> Result<(), SinkError> {
        let call = self.fuse.enter(format_args!("write {} records to {handle:?}", batch.len()))?;
        call.leave(self.sink.write(handle, batch, ctx).await)
    }

    async fn pre_commit(&mut self, handle: &mut S::Handle) -> Result<(), SinkError> {
        let call = self.fuse.enter(format_args!("pre_commit {handle:?}"))?;
        call.leave(self.sink.pre_commit(handle).await)
    }

    async fn commit(&mut self, handle: &S::Handle) -> Result<(), SinkError> {
        let call = self.fuse.enter(format_args!("commit {handle:?}"))?;
        call.leave(self.sink.commit(handle).await)
    }

    async fn abort(&mut self, handle: &S::Handle) -> Result<(), SinkError> {
        let call = self.fuse.enter(format_args!("abort {handle:?}"))?;
        call.leave(self.sink.abort(handle).await)
    }

    async fn inspect(&mut self, handles: &[S::Handle]) -> Result<Option<Vec<Fate>>, SinkError> {
        let call = self.fuse.enter(format_args!("inspect {} handles", handles.len()))?;
        call.leave(self.sink.inspect(handles).await)
    }

    async fn fence(&mut self, first: CheckpointId, kept: &[S::Handle]) -> Result<(), SinkError> {
        let call = self.fuse.enter(format_args!("fence what is named below {first}, keeping {kept:?}"))?;
        call.leave(self.sink.fence(first, kept).await)
    }

    fn context(&self) -> Option<Vec<u8>> {
        self.sink.context()
    }

    fn restore_context(&mut self, contexts: &[Vec<u8>]) -> Result<(), SinkError> {
        self.sink.restore_context(contexts)
    }

    fn writers(&self) -> Option<u32> {
        self.sink.writers()
    }

    fn transaction_timeout(&self) -> Option<Duration> {
        self.sink.transaction_timeout()
    }

    async fn close(&mut self) {
        // A process that dies here dies before or behind its last act: there is no outcome to be lost.
        if let Ok(call) = self.fuse.enter("close") {
            self.sink.close().await;
            let _ = call.leave(Ok(()));
        }
    }
}
