//! A sink and a committer whose process can die at each of their calls.

use levada_core::template::{CheckpointCommitter, Marker, Segment, WriteAheadSink};
use levada_core::{CheckpointId, SinkContext, SinkError};

use super::log::Log;
use crate::failure::Finding;
use crate::fuse::Fuse;

#[derive(Debug)]
pub(super) struct Sender<S> {
    pub(super) sink: S,
    /// Whether sending commits the marker, too.
    pub(super) marks: bool,
    pub(super) fuse: Fuse,
    pub(super) log: Log,
}

impl<T: Send + Sync + 'static, S: WriteAheadSink<T>> WriteAheadSink<T> for Sender<S> {
    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        let call = self.fuse.enter(format_args!("open {} of {}", ctx.subtask, ctx.parallelism))?;
        call.leave(self.sink.open(ctx).await)
    }

    async fn send(&mut self, segment: &Segment<T>) -> Result<bool, SinkError> {
        let Segment { marker, records, .. } = segment;
        let call = self.fuse.enter(format_args!("send {marker} with {} records", records.len()))?;
        let sent = self.sink.send(segment).await;
        match &sent {
            Ok(true) => self.log.truth().sent(marker, self.marks),
            Ok(false) => {
                let cause = "it answered that it did not take it";
                self.log.truth().refused(Finding::refused(format!("send {marker}"), cause));
            }
            Err(error) => {
                let cause = levada_core::ErrorChain(error).to_string();
                self.log.truth().refused(Finding::refused(format!("send {marker}"), cause));
            }
        }
        call.leave(sent)
    }

    async fn close(&mut self) {
        if let Ok(call) = self.fuse.enter("close") {
            self.sink.close().await;
            let _ = call.leave(Ok(()));
        }
    }
}

#[derive(Debug)]
pub(super) struct Noter<C> {
    pub(super) committer: C,
    pub(super) fuse: Fuse,
    pub(super) log: Log,
}

impl<C: CheckpointCommitter> CheckpointCommitter for Noter<C> {
    async fn open(&mut self, ctx: &SinkContext) -> Result<(), SinkError> {
        let call = self.fuse.enter("open the committer")?;
        call.leave(self.committer.open(ctx).await)
    }

    async fn fence(&mut self, uid: &str, first: CheckpointId) -> Result<(), SinkError> {
        let call = self.fuse.enter(format_args!("fence openings before {first}"))?;
        call.leave(self.committer.fence(uid, first).await)
    }

    async fn is_committed(&mut self, marker: &Marker) -> Result<bool, SinkError> {
        let call = self.fuse.enter(format_args!("is_committed {marker}"))?;
        let answer = self.committer.is_committed(marker).await;
        match &answer {
            Ok(answer) => self.log.truth().answered(marker, *answer),
            Err(error) => {
                let cause = levada_core::ErrorChain(error).to_string();
                self.log.truth().refused(Finding::refused(format!("tell of {marker}"), cause));
            }
        }
        call.leave(answer)
    }

    async fn commit(&mut self, marker: &Marker) -> Result<(), SinkError> {
        let call = self.fuse.enter(format_args!("commit {marker}"))?;
        let noted = self.committer.commit(marker).await;
        match &noted {
            Ok(()) => self.log.truth().committed(marker),
            Err(error) => {
                let cause = levada_core::ErrorChain(error).to_string();
                self.log.truth().refused(Finding::refused(format!("note {marker}"), cause));
            }
        }
        call.leave(noted)
    }

    async fn forget(&mut self, markers: &[Marker]) -> Result<(), SinkError> {
        let call = self.fuse.enter(format_args!("forget {} markers", markers.len()))?;
        // Also when it fails: whether they are gone is open then.
        self.log.truth().forgotten(markers);
        call.leave(self.committer.forget(markers).await)
    }

    fn shares_transaction(&self) -> bool {
        self.committer.shares_transaction()
    }
}
