//! A sink whose process can die at each of its calls.

use levada_core::{
    Assignment, AtomicSink, Batch, Committed, Pending, Positions, Sink, SinkContext, SinkError, SplitId,
};

use crate::fuse::Fuse;

#[derive(Debug)]
pub(super) struct Wrapped<S> {
    pub(super) sink: S,
    pub(super) fuse: Fuse,
}

/// Prints positions as `0@7`.
pub(super) fn shown(positions: &Positions) -> String {
    let one = |(split, position): (&SplitId, &levada_core::Position)| format!("{}@{position}", split.index);
    positions.iter().map(one).collect::<Vec<_>>().join(" ")
}

impl<T: Send + 'static, S: AtomicSink<T>> Sink<T> for Wrapped<S> {
    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        let call = self.fuse.enter(format_args!("open {} of {}", ctx.subtask, ctx.parallelism))?;
        call.leave(self.sink.open(ctx).await)
    }

    async fn write(&mut self, batch: Batch<T>) -> Result<(), SinkError> {
        let call = self.fuse.enter(format_args!("write {} records", batch.len()))?;
        call.leave(self.sink.write(batch).await)
    }

    async fn close(&mut self) {
        if let Ok(call) = self.fuse.enter("close") {
            self.sink.close().await;
            let _ = call.leave(Ok(()));
        }
    }
}

impl<T: Send + 'static, S: AtomicSink<T>> AtomicSink<T> for Wrapped<S> {
    async fn claim(&mut self, assignment: &Assignment) -> Result<Positions, SinkError> {
        let splits = assignment.splits.iter().map(|split| split.index).collect::<Vec<_>>();
        let call = self.fuse.enter(format_args!("claim {splits:?}"))?;
        call.leave(self.sink.claim(assignment).await)
    }

    async fn commit(&mut self, positions: &Positions) -> Result<Committed, SinkError> {
        let call = self.fuse.enter(format_args!("commit {}", shown(positions)))?;
        call.leave(self.sink.commit(positions).await)
    }

    fn discard(&mut self) {
        self.fuse.note("    discard");
        self.sink.discard();
    }

    fn release(&mut self, splits: &[SplitId]) {
        self.fuse
            .note(format!("    release {:?}", splits.iter().map(|split| split.index).collect::<Vec<_>>()));
        self.sink.release(splits);
    }

    fn pending(&self) -> Pending {
        self.sink.pending()
    }
}
