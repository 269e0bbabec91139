//! Sinks and committers that break their contract on purpose, so that a test can show that a crash loop finds it out.

use std::collections::BTreeSet;
use std::path::PathBuf;

use levada_core::template::{CheckpointCommitter, Marker, TransactionName, TwoPhaseCommitSink, WriteContext};
use levada_core::{Batch, SinkContext, SinkError};
use levada_engine::driver::FileCommitter;
use levada_files::{FileHandle, FileSink};

/// Publishes a transaction when it is only to be prepared.
#[derive(Debug)]
pub(super) struct PublishesEarly(pub(super) FileSink<String>);

impl TwoPhaseCommitSink<String> for PublishesEarly {
    type Handle = FileHandle;

    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        self.0.open(ctx).await
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<FileHandle, SinkError> {
        self.0.begin(name).await
    }

    async fn write(
        &mut self,
        handle: &mut FileHandle,
        batch: Batch<String>,
        ctx: &WriteContext,
    ) -> Result<(), SinkError> {
        self.0.write(handle, batch, ctx).await
    }

    async fn pre_commit(&mut self, handle: &mut FileHandle) -> Result<(), SinkError> {
        self.0.pre_commit(handle).await?;
        self.0.commit(handle).await
    }

    async fn commit(&mut self, handle: &FileHandle) -> Result<(), SinkError> {
        self.0.commit(handle).await
    }

    async fn abort(&mut self, handle: &FileHandle) -> Result<(), SinkError> {
        self.0.abort(handle).await
    }

    async fn close(&mut self) {
        self.0.close().await;
    }
}

/// Commits what it has begun itself, and nothing that an earlier process has left prepared.
#[derive(Debug)]
pub(super) struct LeavesPending {
    sink: FileSink<String>,
    begun: BTreeSet<PathBuf>,
}

impl LeavesPending {
    pub(super) fn new(sink: FileSink<String>) -> Self {
        Self { sink, begun: BTreeSet::new() }
    }
}

impl TwoPhaseCommitSink<String> for LeavesPending {
    type Handle = FileHandle;

    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        self.sink.open(ctx).await
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<FileHandle, SinkError> {
        let handle = self.sink.begin(name).await?;
        self.begun.insert(handle.pending());
        Ok(handle)
    }

    async fn write(
        &mut self,
        handle: &mut FileHandle,
        batch: Batch<String>,
        ctx: &WriteContext,
    ) -> Result<(), SinkError> {
        self.sink.write(handle, batch, ctx).await
    }

    async fn pre_commit(&mut self, handle: &mut FileHandle) -> Result<(), SinkError> {
        self.sink.pre_commit(handle).await
    }

    async fn commit(&mut self, handle: &FileHandle) -> Result<(), SinkError> {
        match self.begun.remove(&handle.pending()) {
            true => self.sink.commit(handle).await,
            false => Ok(()),
        }
    }

    async fn abort(&mut self, handle: &FileHandle) -> Result<(), SinkError> {
        self.sink.abort(handle).await
    }

    async fn close(&mut self) {
        self.sink.close().await;
    }
}

/// Marks a segment when it is asked whether it was sent: before the send.
#[derive(Debug)]
pub(super) struct MarksFirst(pub(super) FileCommitter);

impl CheckpointCommitter for MarksFirst {
    async fn open(&mut self, ctx: &SinkContext) -> Result<(), SinkError> {
        self.0.open(ctx).await
    }

    async fn is_committed(&mut self, marker: &Marker) -> Result<bool, SinkError> {
        let is_known = self.0.is_committed(marker).await?;
        self.0.commit(marker).await?;
        Ok(is_known)
    }

    async fn commit(&mut self, _: &Marker) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Marks what was sent, and never looks at the marks.
#[derive(Debug)]
pub(super) struct NeverKnows(pub(super) FileCommitter);

impl CheckpointCommitter for NeverKnows {
    async fn open(&mut self, ctx: &SinkContext) -> Result<(), SinkError> {
        self.0.open(ctx).await
    }

    async fn is_committed(&mut self, _: &Marker) -> Result<bool, SinkError> {
        Ok(false)
    }

    async fn commit(&mut self, marker: &Marker) -> Result<(), SinkError> {
        self.0.commit(marker).await
    }
}
